"""``dynarule generate`` and ``dynarule chat``: answers with rules, and the rules that were read at each step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .loading import load_all, no_questions, read_rows, warn_of_unknown
from .shared import (
    AdapterOption,
    BatchSizeOption,
    DeviceOption,
    EncoderOption,
    FolOption,
    Json,
    MaxNewTokensOption,
    ModelOption,
    QuestionsOption,
    RulesOption,
    message_of,
    note,
    one_line,
    print_json,
    say,
)

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

HELP = """a question         is answered, with the rules read at each step
+ RULE             adds a rule
- ID               removes a rule
rules [WORDS]      lists the rules with these words
help, quit"""


def generate(
    model: ModelOption,
    adapter: AdapterOption,
    rules: RulesOption,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="May be given several times.")
    ] = None,
    questions: QuestionsOption = None,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    max_new_tokens: MaxNewTokensOption = 256,
    max_searches: Annotated[int, typer.Option("--max-searches", min=0, help="<search> per answer.")] = 16,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.01, help="Sample.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of sampling.")] = 0,
    batch_size: BatchSizeOption = 8,
    trace: Annotated[bool, typer.Option("--trace", help="Show the rules read at each step.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Rules shown per step.")] = 5,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Answer questions with rules.

    Example: dynarule generate --model MODEL --adapter adapter --rules rules.txt -q "If a tiny cat ..." --trace
    """
    asked = [*(question or []), *([row["question"] for row in read_rows(questions)] if questions else [])]
    if not asked:
        raise ValueError("no question; give --question TEXT, or --questions FILE")
    with no_questions():
        base, tokenizer, bank = load_all(model, adapter, rules, encoder, fol, device)
    warn_of_unknown(tokenizer, asked)
    import torch

    from ..generation import generate as run
    from ..generation import question_prompts, repeats

    torch.manual_seed(seed)
    sampling: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    answers = run(
        base,
        tokenizer,
        bank,
        question_prompts(tokenizer, asked, base.active_peft_config.reading),
        max_new_tokens=max_new_tokens,
        max_searches=max_searches,
        batch_size=batch_size,
        **sampling,
    )
    looped = sum(repeats(torch.tensor(answer.token_ids)) for answer in answers)
    if looped:
        note(f"{looped} of {len(answers)} answers repeated themselves and were ended")
    results = []
    for text, answer in zip(asked, answers, strict=True):
        result: dict[str, Any] = {"question": text, "answer": answer.text}
        if trace:
            result["trace"] = [
                {
                    "step": found.step,
                    "layer": found.layer,
                    "ids": found.ids[:top],
                    "rules": found.texts[:top],
                    "scores": found.scores[:top],
                }
                | ({"way": found.way, "backward": found.backward} if found.backward else {})
                for found in answer.trace
            ]
        results.append(result)
    if as_json:
        print_json({"answers": results})
        return
    for result in results:
        if len(results) > 1:
            say(one_line(f"# {result['question']}"))
        say(result["answer"].strip())
        for step in result.get("trace", []):
            say(f"  step {step['step']}, layer {step['layer']}")
            for name, rule, score in zip(step["ids"], step["rules"], step["scores"], strict=True):
                say(f"    {score:7.3f}  [{one_line(name)}] {one_line(rule)}")
            for name in step.get("way", []):
                say(f"       then  [{one_line(name)}] {one_line(bank.texts[bank.row(name)])}")


def chat(
    model: ModelOption,
    adapter: AdapterOption,
    rules: RulesOption,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    max_new_tokens: MaxNewTokensOption = 256,
    top: Annotated[int, typer.Option("--top", min=1, help="Rules shown per step.")] = 2,
    device: DeviceOption = None,
) -> None:
    """Ask, add rules, remove rules, ask again; one line each, from the keyboard or a pipe.

    Example: dynarule chat --model MODEL --adapter adapter --rules rules.txt
    """
    with no_questions():  # what is typed is for us, not for a library that would ask something
        base, tokenizer, bank = load_all(model, adapter, rules, encoder, fol, device)

    rule_encoder = rule_encoder_of(bank, base, tokenizer, encoder, fol)

    def ask(question: str) -> None:
        from ..generation import generate, question_prompts
        from ..search_token import SEARCH_TOKEN

        warn_of_unknown(tokenizer, [question])
        config = base.active_peft_config
        token = config.search_token or SEARCH_TOKEN
        prompts = question_prompts(tokenizer, [question], config.reading)
        (answer,) = generate(base, tokenizer, bank, prompts, max_new_tokens=max_new_tokens, keep_search=True)
        opens = answer.text.lstrip().startswith(token)
        for found in answer.trace:
            if not (opens and found.step == 0):  # what the prompt found is read by no step
                rules = [one_line(f"[{i}] {text}") for i, text in zip(found.ids, found.texts, strict=True)]
                ahead = "".join(f" -> [{one_line(name)}]" for name in found.way)
                say(f"  step {found.step + (not opens)}: {'; '.join(rules[:top])}{ahead}")
        say(answer.text.replace(token, "").strip())

    note(f"{len(bank):,} rules; a question, + RULE, - ID, rules, help or quit")
    for line in _lines():
        if line in ("quit", "exit"):
            break
        try:
            with no_questions():
                _reply(line, bank, rule_encoder, ask)
        except (ValueError, KeyError, ImportError) as error:  # a slip of the keyboard ends no conversation
            note(message_of(error))


def rule_encoder_of(
    bank: RuleBank, model: Any, tokenizer: Any, encoder: str | None, fol: bool
) -> Callable[[], Any]:
    """Return what opens the encoder of rules that are added to a bank; it is not needed until one is."""

    @cache
    def opened() -> Any:
        from ..bank.encoders import encoder_of, open_encoder

        if encoder is None:
            return encoder_of(bank.encoder, model, tokenizer)
        found = open_encoder(encoder, fol, model, tokenizer)
        if bank.encoder not in ("", found.fingerprint):
            raise ValueError(
                f"the rules were encoded by {bank.encoder!r}, {encoder} is {found.fingerprint!r}"
            )
        return found

    return opened


def add_rule(bank: RuleBank, text: str, encoder: Callable[[], Any]) -> str:
    """Add a rule to a bank; return its name, the first whole number after all names that are one."""
    if not text:
        raise ValueError("no rule to add; type for example: If A is in the attic, A will be dizzy.")
    name = str(1 + max((int(name) for name in bank.ids if name.isdecimal()), default=0))
    more = type(bank).from_texts([text], None, encoder(), [name], encoder=bank.encoder)
    bank.add(more.to(bank.device, bank.dtype))
    return name


def _lines() -> Iterator[str]:
    """Yield the lines of the keyboard or a pipe that say something."""
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _reply(line: str, bank: RuleBank, rule_encoder: Callable[[], Any], ask: Callable[[str], None]) -> None:
    """Do what one line says."""
    if line == "help":
        say(HELP)
    elif line.startswith("+"):
        text = line[1:].strip()
        if not text:
            raise ValueError("no rule after +; type for example: + If A is in the attic, A will be dizzy.")
        name = add_rule(bank, text, rule_encoder)
        say(f"added [{name}], {len(bank):,} rules")
    elif line.startswith("-"):
        bank.remove([line[1:].strip()])
        say(f"{len(bank):,} rules")
    elif line == "rules" or line.startswith("rules "):
        words = line.lower().split()[1:]
        for name, text in zip(bank.ids, bank.texts, strict=True):
            if all(word in text.lower() for word in words):
                say(one_line(f"[{name}] {text}"))
    else:
        ask(line)
