"""Questions, rules and tables as a person reads them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .generate import table
from .questions import training_text
from .spec import FORMS, WorldSpec, check_name


def rows_with_rules(config: str, spec: WorldSpec, start: int, n: int) -> list[dict[str, Any]]:
    """Return rows of a split as dicts; questions come with their gold rules under ``rules``.

    A ValueError for an unknown name, or a start past the end.
    """
    rows, split = spec.num_rows(config), spec.split
    if start >= rows:
        raise ValueError(
            f"--start {start} is past the end: {config}, split {split}, scale {spec.scale} has {rows} rows"
        )
    shown = table(config, spec, start, min(rows, start + n)).to_pylist()
    if config == "rules":
        return shown
    rules = table("rules", replace(spec.drawn, split="heldout" if split == "heldout" else "train"))
    wanted = sorted({rule for row in shown for rule in row["gold_rule_ids"]})
    gold = rules.filter(pc.is_in(rules.column("id"), pa.array(wanted, pa.int32())))
    by_id = {rule["id"]: rule for rule in gold.select(["id", "nl", "fol"]).to_pylist()}
    return [row | {"rules": [by_id[rule] for rule in row["gold_rule_ids"]]} for row in shown]


def row_text(row: dict[str, Any], form: str | None = None) -> str:
    """Render a row of `rows_with_rules`, its rules and steps in one form; None: rules in both, steps in English."""
    if form is not None:
        check_name("form", form, FORMS)
    forms = (form,) if form else FORMS
    if "question" not in row:
        return "\n  ".join([f"[{row['id']}] {row['type']}", *(row[name] for name in forms)])
    lines = [f"{row['id']}  ({row['skeleton']}; {row['template_id']})", "", row["question"], "", "Gold rules"]
    for rule in row["rules"]:
        number = f"[{rule['id']}]"
        lines += [f"  {'' if i else number:{len(number)}} {rule[name]}" for i, name in enumerate(forms)]
    lines += ["", "Proof"]
    lines += [f"  {line}" for line in training_text(row, form or "nl", None).split("\n")]
    return "\n".join(lines)


def table_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out a Markdown table that a terminal shows well, too: names to the left, numbers to the right."""
    from .verify.report import printable

    body = [[f"{cell:,}" if isinstance(cell, int) else printable(str(cell)) for cell in row] for row in rows]
    columns = list(zip(head, *body, strict=True))
    sides = ["<" if any(cell[:1].isalpha() for cell in below) else ">" for _, *below in columns]
    widths = [max(map(len, column)) for column in columns]
    rule = [
        "-" * (width - 1) + ("-" if side == "<" else ":") for side, width in zip(sides, widths, strict=True)
    ]
    lines = (
        " | ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in (head, rule, *body)
    )
    return "\n".join(f"| {line} |" for line in lines)
