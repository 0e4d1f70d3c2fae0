"""The README.md beside a trained adapter: what it was trained on and how, what was measured, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from . import __version__
from .adapter_info import AdapterInfo
from .memory.search import SEARCH_TOKEN
from .training.recipe import Recipe

CURVE_ROWS = 12  # of the table of held-out measurements

_LOAD = """```python
from dynarule import (
{names}
)
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(BASE, dtype="auto").eval()
{tokenizer}
adapter = load_adapter(model, ADAPTER)
bank = RuleBank.from_file("rules.txt", encoder_of(adapter.encoder, model, tokenizer))
asked = question_prompts(tokenizer, ["..."])
print(generate(model, tokenizer, (adapter, bank), asked)[0].text)
```"""


@dataclass(frozen=True)
class TrainingFacts:
    """What a card says beyond the recipe and the adapter.

    Attributes
    ----------
    steps, processes : int
        Optimizer steps, and the processes that took them together.
    questions, held_out : int
        Questions trained on, and measured on; 0 for none.
    families : mapping of str to int
        Questions per family; empty where they have none.
    rules : int
        Rules of the table.
    dtype : str
        Of the base model.
    opening : bool
        Whether answers begin with ``<search>``.
    """

    steps: int
    processes: int
    questions: int
    held_out: int
    families: Mapping[str, int]
    rules: int
    dtype: str
    opening: bool = False


def model_card(
    info: AdapterInfo, recipe: Recipe, facts: TrainingFacts, history: Sequence[Mapping[str, float]]
) -> str:
    """Return the card as Markdown, with the front matter that the Hub reads.

    Parameters
    ----------
    info : AdapterInfo
        What was saved.
    recipe : Recipe
        How it was trained.
    facts : TrainingFacts
        On what.
    history : sequence of mapping
        The log, as `dynarule.training.trainer.train` returns it.
    """
    base = _base(info)
    return (
        "\n\n".join(
            [
                _front_matter(info),
                f"# {_title(recipe)} for {base}",
                f"Rules as key/value memory inside a frozen language model: {_method(recipe)}. Written by dynarule "
                f"{__version__} at the end of training.",
                "## How to load it",
                _load(info, recipe),
                "## Data",
                _data(info, facts),
                "## Training",
                _training(recipe, facts, info),
                "## Results",
                _results(history, facts),
                "## Limits",
                _limits(recipe, facts, info),
            ]
        ).rstrip()
        + "\n"
    )


def _base(info: AdapterInfo) -> str:
    """Name the base model, a local folder by its last part only."""
    return Path(info.base.name).name if _is_local(info.base.name) else info.base.name or info.base.model_type


def _is_local(name: str) -> bool:
    return Path(name).is_absolute() or name.startswith(".") or Path(name).is_dir()


def _front_matter(info: AdapterInfo) -> str:
    lines = ["---", "library_name: dynarule", "tags: [dynarule, rules, retrieval]"]
    if info.base.name and not _is_local(info.base.name):
        lines.append(f"base_model: {info.base.name}")
    return "\n".join([*lines, "---"])


def _title(recipe: Recipe) -> str:
    name = {"dynarule": "DynaRule", "srki": "SR-KI", "kblam": "KBLaM"}[recipe.method]
    return f"{name} adapter" + (f", stage {recipe.stage}," if recipe.method != "kblam" else "")


def _method(recipe: Recipe) -> str:
    if recipe.searches:
        return "each layer keeps the rules that fit the question, and `<search>` looks again at the next step"
    if recipe.retrieves:
        return "each layer keeps the rules that fit the question, chosen once"
    return "all rules are attended; nothing was trained to retrieve them"


def _load(info: AdapterInfo, recipe: Recipe) -> str:
    search = info.search is not None
    tokenizer = f"tokenizer = load_tokenizer({'ADAPTER' if search else 'BASE'})"
    names = ["RuleBank", "encoder_of", "generate", "load_adapter", "load_tokenizer", "question_prompts"]
    if search:
        tokenizer += "\nprepare_search(model, tokenizer)"
        names.insert(5, "prepare_search")
    base = "the folder `base` beside this file, whose embedding matrix was trained"
    return (
        f"`BASE` is {base if recipe.embedding == 'full' else f'the base model ({_base(info)}, unchanged)'}, "
        f"`ADAPTER` this folder, and the prompt is the one of training. `encoder_of` loads the encoder it was trained "
        "with (see Data). `dynarule inspect ADAPTER` prints shapes and layers.\n\n"
        + _LOAD.format(tokenizer=tokenizer, names="\n".join(f"    {name}," for name in names))
    )


def _data(info: AdapterInfo, facts: TrainingFacts) -> str:
    families = ", ".join(f"{name} {count:,}" for name, count in sorted(facts.families.items()))
    return _table(
        [
            ("questions", f"{facts.questions:,}" + (f" ({families})" if families else "")),
            ("held-out questions", f"{facts.held_out:,}" if facts.held_out else "none"),
            ("rules", f"{facts.rules:,}"),
            ("encoder", f"`{info.encoder}`" if info.encoder else "not said"),
        ]
    )


def _training(recipe: Recipe, facts: TrainingFacts, info: AdapterInfo) -> str:
    seen = facts.steps * facts.processes * recipe.batch_size * recipe.accumulation
    layer = info.memory.confidence_layer
    rows = [
        ("steps", f"{facts.steps:,}, {seen:,} questions in all"),
        ("processes", str(facts.processes)),
        ("base model's numbers", facts.dtype),
        ("confidence layer", "none" if layer is None else f"{layer}, counted from 0"),
        ("rules kept per layer", "all" if info.memory.top_k is None else str(info.memory.top_k)),
    ]
    if recipe.searches:
        opening = "before every step (`--opening`)" if facts.opening else "between steps"
        rows.append((f"`{SEARCH_TOKEN}`", opening))
    values = recipe.to_dict()
    rows += [
        (f"`{f.name}`", f"`{json.dumps(values[f.name])}` ({f.metadata['help']})") for f in fields(Recipe)
    ]
    return _table(rows)


def _results(history: Sequence[Mapping[str, float]], facts: TrainingFacts) -> str:
    trained = [entry for entry in history if "lm_loss" in entry]
    measured = [entry for entry in history if "eval_lm_loss" in entry]
    said = []
    if trained:
        last = trained[-1]
        parts = [f"language model loss {last['lm_loss']:.3f}", f"retrieval loss {last['retrieval_loss']:.3f}"]
        if "recall_at_1" in last:
            parts.append(f"Recall@1 among kept rules {last['recall_at_1']:.3f}")
        said.append(f"Training batches at the end (step {last['step']}): {', '.join(parts)}.")
    if not measured:
        said.append("Nothing was measured on held-out questions.")
        return "\n\n".join(said)
    said.append(
        f"On {facts.held_out:,} held-out questions, the right answer given so far, all rules of a pool competing. A "
        "step counts the share of its rules among as many best-ranked ones at the confidence layer."
    )
    every = -(-len(measured) // CURVE_ROWS)
    shown = measured[::-1][::every][::-1]  # always with the last
    head = ["step", "Recall@1", "retrieval loss", "language model loss"]
    names = ("step", "eval_recall_at_1", "eval_retrieval_loss", "eval_lm_loss")
    body = [[_number(entry.get(name)) for name in names] for entry in shown]
    said.append("\n".join(_line(row) for row in [head, ["---"] * 4, *body]))
    return "\n\n".join(said)


def _limits(recipe: Recipe, facts: TrainingFacts, info: AdapterInfo) -> str:
    said = [
        "It fits this base model and this encoder only; others are refused. A base in fp16 or quantised has weights "
        "that cannot be compared: it is refused for another shape alone.",
        f"It was trained with {_pool(recipe)} rules at once; with many more, or of another kind, measure first.",
        "No answers were generated here: the figures above say how well rules are found, not how many answers are "
        "right.",
    ]
    if not facts.held_out:
        said.append("Without held-out figures nothing is known about questions that were not trained on.")
    if info.memory.confidence_layer is None and recipe.method == "dynarule":
        said.append(
            "No confidence layer was measured yet: run `dynarule confidence --write`, then train stage 2 from it."
        )
    return "\n".join(f"- {each}" for each in said)


def _pool(recipe: Recipe) -> str:
    size = recipe.pool_size
    return f"{size:,}" if isinstance(size, int) else f"{size[0]:,} to {size[1]:,}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join([_line(["", ""]), _line(["---", "---"]), *(_line(list(row)) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
