"""Questions and rules as a person reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .generate import num_rows, question_table, rule_table
from .questions import training_text
from .spec import CONFIGS, check_name


def shown(config: str, split: str, scale: str, seed: int, start: int, n: int) -> list[dict[str, Any]]:
    """Return rows as dicts; questions come with their gold rules under ``rules``.

    Raises
    ------
    ValueError
        For an unknown name, or a start past the end.
    """
    check_name("configuration", config, CONFIGS)
    rows = num_rows(config, split, scale, seed)
    if start >= rows:
        raise ValueError(
            f"--start {start} is past the end: {config}, split {split}, scale {scale} has {rows} rows"
        )
    stop = min(rows, start + n)
    if config == "rules":
        return rule_table(split, scale, seed, start, stop).to_pylist()
    questions = question_table(config, split, scale, seed, start, stop).to_pylist()
    # Evaluation questions use the paper's rules, which every larger scale holds under the same ids.
    source = "paper" if scale == "full" and split != "train" else scale
    rules = rule_table("heldout" if split == "heldout" else "train", source, seed)
    wanted = sorted({rule for row in questions for rule in row["gold_rule_ids"]})
    found = rules.filter(pc.is_in(rules.column("id"), pa.array(wanted, pa.int32()))).select(
        ["id", "nl", "fol"]
    )
    by_id = {rule["id"]: rule for rule in found.to_pylist()}
    return [row | {"rules": [by_id[rule] for rule in row["gold_rule_ids"]]} for row in questions]


def text(row: dict[str, Any]) -> str:
    """Render a row of `shown`."""
    if "question" not in row:
        return f"[{row['id']}] {row['type']}\n  {row['nl']}\n  {row['fol']}"
    lines = [f"{row['id']}  ({row['skeleton']}; {row['template_id']})", "", row["question"], "", "Gold rules"]
    for rule in row["rules"]:
        lines += [f"  [{rule['id']}] {rule['nl']}", f"  {' ' * len(str(rule['id']))}   {rule['fol']}"]
    lines += ["", "Proof"]
    lines += [f"  {line}" for line in training_text(row, "nl", None).split("\n")]
    return "\n".join(lines)
