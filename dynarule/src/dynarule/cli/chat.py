"""``dynarule chat``: questions one after the other, with rules that come and go in between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .shared import (
    AdapterOption,
    DeviceOption,
    EncoderOption,
    FolOption,
    MaxNewTokensOption,
    ModelOption,
    RulesOption,
    load_all,
    user_errors,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..bank.bank import RuleBank

HELP = """a question         is answered, with the rules read at each step
+ RULE             adds a rule
- ID               removes a rule
rules [WORDS]      lists the rules with these words
help, quit"""


@user_errors
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
    base, tokenizer, adapted, bank = load_all(model, adapter, rules, encoder, fol, device)

    @cache  # a bank's own encoder is not needed until a rule is added
    def encoder_here() -> Any:
        from ..bank.encoder_choice import encoder_of, open_encoder

        if encoder is None:
            return encoder_of(bank.encoder, base, tokenizer)
        found = open_encoder(encoder, fol, base, tokenizer)
        if bank.encoder not in ("", found.fingerprint):
            raise ValueError(
                f"the rules were encoded by {bank.encoder!r}, {encoder} is {found.fingerprint!r}"
            )
        return found

    def ask(question: str) -> None:
        from ..generation import generate, question_prompts
        from ..memory.search import SEARCH_TOKEN

        prompts = question_prompts(tokenizer, [question])
        (answer,) = generate(
            base, tokenizer, (adapted, bank), prompts, max_new_tokens=max_new_tokens, keep_search=True
        )
        opens = answer.text.lstrip().startswith(SEARCH_TOKEN)
        for found in answer.trace:
            if opens and found.step == 0:
                continue  # what the prompt found is read by no step
            names = "; ".join(
                f"[{i}] {text}" for i, text in zip(found.ids[:top], found.texts[:top], strict=True)
            )
            typer.echo(f"  step {found.step + (not opens)}: {names}")
        typer.echo(answer.text.replace(SEARCH_TOKEN, "").strip())

    typer.echo(f"{len(bank):,} rules; a question, + RULE, - ID, rules, help or quit", err=True)
    while (line := _line()) is not None:
        if line in ("quit", "exit"):
            break
        try:
            _answer(line, bank, lambda texts: encoder_here()(texts), ask)
        except (ValueError, KeyError, ImportError) as error:
            # A slip of the keyboard ends no conversation.
            typer.echo(f"dynarule: {error.args[0] if error.args else error}", err=True)


def _line() -> str | None:
    """Return the next line that says something, None at the end of the input."""
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return None
        if line.strip():
            return line.strip()


def _answer(
    line: str, bank: RuleBank, encode: Callable[[Sequence[str]], Tensor], ask: Callable[[str], Any]
) -> None:
    """Do what one line says."""
    if line == "help":
        typer.echo(HELP)
    elif line.startswith("+"):
        name = _new_id(bank)
        bank.add(_bank_of(line[1:].strip(), name, bank, encode))
        typer.echo(f"added [{name}], {len(bank):,} rules")
    elif line.startswith("-"):
        bank.remove([line[1:].strip()])
        typer.echo(f"{len(bank):,} rules")
    elif line == "rules" or line.startswith("rules "):
        words = line.split()[1:]
        for name, text in zip(bank.ids, bank.texts, strict=True):
            if all(word.lower() in text.lower() for word in words):
                typer.echo(f"[{name}] {text}")
    else:
        ask(line)


def _bank_of(text: str, name: str, bank: RuleBank, encode: Callable[[Sequence[str]], Tensor]) -> RuleBank:
    """Return a bank of one rule, as the other one holds its rules."""
    from ..bank.bank import RuleBank

    if not text:
        raise ValueError("no rule after +; type for example: + If A is in the attic, A will be dizzy.")
    made = RuleBank.from_texts([text], None, encode, [name], encoder=bank.encoder)
    return made.to(bank.keys_MP.device, bank.keys_MP.dtype)


def _new_id(bank: RuleBank) -> str:
    """Return the first whole number after all ids that are one."""
    return str(1 + max((int(name) for name in bank.ids if name.isdecimal()), default=0))
