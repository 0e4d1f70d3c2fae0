"""``dynarule confidence``, ``support`` and ``inspect``: what is measured of an adapter, and what a folder holds."""

from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer

from ..books.questions import read_rows
from .loading import Served
from .shared import BatchSizeOption, MaxNewTokensOption, QuestionsOption, grouped, one_line, say


@grouped
def confidence(
    served: Served,
    questions: QuestionsOption = None,
    batch_size: BatchSizeOption = 8,
    write: Annotated[bool, typer.Option("--write", help="Store layer and curve in the adapter.")] = False,
) -> None:
    """Measure the entropy of rule attention in every layer; the lowest is the confidence layer.

    Example: dynarule confidence --model MODEL --adapter stage1 --rules bank --questions questions.txt --write
    """
    texts = [row["question"] for row in read_rows(questions, "200 questions or more")]
    base, tokenizer, bank = served.load()
    from ..config import DynaRuleConfig
    from ..memory.confidence import measure_confidence
    from ..tokenizer import question_prompts

    curve = measure_confidence(base, tokenizer, bank, question_prompts(tokenizer, texts), batch_size)
    if write:
        config = DynaRuleConfig.from_pretrained(served.adapter)
        config.confidence_layer, config.curve = curve.confidence_layer, curve.to_dict()
        config.save_pretrained(str(served.adapter))
    say(_curve_text(curve.to_dict()))


@grouped
def support(
    served: Served,
    questions: QuestionsOption = None,
    max_new_tokens: MaxNewTokensOption = 256,
    batch_size: BatchSizeOption = 8,
    write: Annotated[bool, typer.Option("--write", help="Store the best point in the adapter.")] = False,
) -> None:
    """Answer questions of a validation book, some of them unanswerable, and say below which support to refuse.

    A search's support is how clearly its best rule stands out: that rule's share among the rules found, by softmax of
    their scores. An answer has the least support of its searches.

    Example: dynarule support --model MODEL --adapter adapter --rules book/rules.csv --questions
    book/questions.jsonl --write
    """
    from ..books.questions import read_questions

    rows = read_questions(questions)
    golds = [row["answers"] for row in rows]
    if ["unknown"] not in golds:
        raise ValueError(f'{questions}: some questions must have the answers ["unknown"]')
    base, tokenizer, bank = served.load()
    from ..config import DynaRuleConfig
    from ..generation import generate
    from ..memory.refusal import says, support_curve
    from ..tokenizer import question_prompts

    texts = [row["question"] for row in rows]
    prompts = question_prompts(tokenizer, texts, base.active_peft_config.question_opening)
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "batch_size": batch_size}
    answers = generate(base, tokenizer, bank, prompts, min_support=0.0, **settings)
    right = [says(answer.text, gold) for answer, gold in zip(answers, golds, strict=True)]
    unknown = [gold == ["unknown"] for gold in golds]
    points, best = support_curve([answer.support or 0.0 for answer in answers], right, unknown)
    if write:
        config = DynaRuleConfig.from_pretrained(served.adapter)
        config.min_support = round(min(best.least, 1.0), 6)
        config.save_pretrained(str(served.adapter))
    say(f"{len(rows)} questions, {sum(unknown)} of them unknown; right now {points[0].accuracy:.3f}")
    say("min_support  answered  right in all  right of those answered")
    shown = points[:: max(1, len(points) // 10)]
    for point in sorted({*shown, best}):
        figures = "{:11.3f}  {:8.3f}  {:12.3f}  {:10.3f}".format(*point)
        say(figures + ("  <- most right" if point == best else ""))


def inspect(
    folder: Annotated[Path, typer.Argument(help="Adapter or bank folder.", show_default=False)],
) -> None:
    """Say what an adapter or a bank is: shapes, layers, encoder, confidence curve.

    Example: dynarule inspect adapter
    """
    from ..bank.storage import FILE, is_bank

    if is_bank(folder):
        _inspect_bank(folder)
    elif (folder / "adapter_config.json").is_file():
        _inspect_adapter(folder)
    else:
        raise FileNotFoundError(f"{folder} has neither adapter_config.json nor {FILE}; give one of them")


def _inspect_bank(folder: Path) -> None:
    from ..bank.bank import RuleBank

    bank = RuleBank.load(folder)
    say(f"{folder}: {len(bank):,} rules, width {bank.encoder_dim}, {str(bank.dtype).removeprefix('torch.')}")
    say(one_line(f"encoder  {bank.encoder or '(unknown)'}"))
    for name, text in zip(bank.ids[:3], bank.texts[:3], strict=True):
        say(one_line(f"{name:>7}  {text}"))


def _inspect_adapter(folder: Path) -> None:
    from .._files import read_shapes
    from ..base_model import BaseModel
    from ..config import WEIGHTS_FILE, DynaRuleConfig

    config = DynaRuleConfig.from_pretrained(folder)
    base = BaseModel(**config.base or {})
    count = sum(map(prod, read_shapes(folder / WEIGHTS_FILE).values()))
    layer, row = config.confidence_layer, config.search_id
    try:
        curve = "" if config.curve is None else f"\n{_curve_text(config.curve)}"
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"{folder}: the curve is none that `dynarule confidence --write` stores") from None
    say(
        f"{folder}: adapter of {one_line(str(config.base_model_name_or_path or base.model_type))}, "
        f"{count:,} parameters\n"
        f"base       {base.model_type}, {base.num_layers} layers, hidden {base.hidden_size}, "
        f"query {base.query_size}, head {base.head_dim}\n"
        f"encoder    {one_line(config.encoder) or '(unknown)'}, width {config.encoder_dim}\n"
        f"layers     {config.layers(base.num_layers)} (0-based), top_k {config.top_k}, "
        f"update_scope {config.update_scope}\n"
        f"confidence {'not measured' if layer is None else f'layer {layer} (0-based)'}\n"
        f"support    {config.min_support:g} at least, else no rule says so\n"
        f"search     {'no row of its own' if row is None else one_line(f'{config.search_token} = {row}')}{curve}"
    )


def _curve_text(curve: dict[str, Any]) -> str:
    uniform, chosen = curve["uniform"], curve["confidence_layer"]
    lines = [f"entropy over {curve['questions']} questions, {curve['rules']:g} rules; uniform {uniform:.3f}"]
    for layer, mean, std in zip(curve["layers"], curve["mean"], curve["std"], strict=True):
        bar = "#" * round(40 * mean / uniform) if uniform else ""
        chosen_here = "  <- confidence layer" if layer == chosen else ""
        lines.append(f"{layer:>5} {mean:7.3f} +- {std:5.3f} {bar}{chosen_here}")
    return "\n".join(lines)
