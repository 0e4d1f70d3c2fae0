"""``dynarule generate``: answers to questions, and the rules that were read at each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .loading import Served, closed_stdin, read_rows, warn_of_unknown
from .shared import (
    BatchSizeOption,
    Json,
    MaxNewTokensOption,
    QuestionsOption,
    TopOption,
    grouped,
    one_line,
    print_json,
    say,
)

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..memory.serving import Retrieval


@grouped
def generate(
    served: Served,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="May be given several times.")
    ] = None,
    questions: QuestionsOption = None,
    max_new_tokens: MaxNewTokensOption = 256,
    max_searches: Annotated[int, typer.Option("--max-searches", min=0, help="<search> per answer.")] = 16,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.01, help="Sample.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of sampling.")] = 0,
    batch_size: BatchSizeOption = 8,
    trace: Annotated[bool, typer.Option("--trace", help="Show the rules read at each step.")] = False,
    top: TopOption = 5,
    as_json: Json = False,
) -> None:
    """Answer questions with rules.

    Example: dynarule generate --model MODEL --adapter adapter --rules rules.txt -q "If a tiny cat ..." --trace
    """
    texts = [*(question or []), *([row["question"] for row in read_rows(questions)] if questions else [])]
    if not texts:
        raise ValueError("no question; give --question TEXT, or --questions FILE")
    with closed_stdin():
        base, tokenizer, bank = served.load()
    warn_of_unknown(tokenizer, texts)
    import torch

    from ..generation import generate as run
    from ..generation import question_prompts

    torch.manual_seed(seed)
    sampling: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    answers = run(
        base,
        tokenizer,
        bank,
        question_prompts(tokenizer, texts, base.active_peft_config.question_opening),
        max_new_tokens=max_new_tokens,
        max_searches=max_searches,
        batch_size=batch_size,
        **sampling,
    )
    if as_json:
        results = [
            {"question": text, "answer": answer.text}
            | ({"trace": [_json_search(search, top) for search in answer.trace]} if trace else {})
            for text, answer in zip(texts, answers, strict=True)
        ]
        print_json({"answers": results})
        return
    for text, answer in zip(texts, answers, strict=True):
        if len(texts) > 1:
            say(one_line(f"# {text}"))
        say(answer.text.strip())
        if trace:
            for search in answer.trace:
                _say_search(search, bank, top)


def _json_search(search: Retrieval, top: int) -> dict[str, Any]:
    values: dict[str, Any] = {"step": search.step, "layer": search.layer, "ids": search.ids[:top]}
    values |= {"rules": search.texts[:top], "scores": search.scores[:top]}
    if getattr(search, "backward", None):  # DynaRule+ looked ahead
        values |= {"way": search.way, "backward": search.backward}  # type: ignore[attr-defined]
    return values


def _say_search(search: Retrieval, bank: RuleBank, top: int) -> None:
    say(f"  step {search.step}, layer {search.layer}")
    for name, rule, score in list(zip(search.ids, search.texts, search.scores, strict=True))[:top]:
        say(f"    {score:7.3f}  [{one_line(name)}] {one_line(rule)}")
    for name in getattr(search, "way", ()):
        say(f"       then  [{one_line(name)}] {one_line(bank.texts[bank.row(name)])}")
