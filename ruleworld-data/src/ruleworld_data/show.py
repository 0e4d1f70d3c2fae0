"""Questions, rules, counts and scores as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from .generate import question_table, rule_table, world_of
from .questions import training_text
from .spec import WorldSpec, check_name

if TYPE_CHECKING:
    from .io import BuildStats

Form = Literal["nl", "fol"]
FORMS = get_args(Form)


def rows_with_rules(config: str, spec: WorldSpec, start: int, n: int) -> list[dict[str, Any]]:
    """Return rows of a split as dicts; questions come with their gold rules under ``rules``.

    Raises
    ------
    ValueError
        For an unknown name, or a start past the end.
    """
    rows, split, place = spec.num_rows(config), spec.split, (spec.scale, spec.seed)
    made: dict[str, Any] = {"version": spec.version, "dials": spec.dials}
    if start >= rows:
        raise ValueError(
            f"--start {start} is past the end: {config}, split {split}, scale {spec.scale} has {rows} rows"
        )
    stop = min(rows, start + n)
    if config == "rules":
        return rule_table(split, *place, start, stop, **made).to_pylist()
    questions = question_table(config, split, *place, start, stop, **made).to_pylist()
    rules = rule_table("heldout" if split == "heldout" else "train", spec.drawn.scale, spec.seed, **made)
    wanted = sorted({rule for row in questions for rule in row["gold_rule_ids"]})
    gold = rules.filter(pc.is_in(rules.column("id"), pa.array(wanted, pa.int32())))
    by_id = {rule["id"]: rule for rule in gold.select(["id", "nl", "fol"]).to_pylist()}
    return [row | {"rules": [by_id[rule] for rule in row["gold_rule_ids"]]} for row in questions]


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
    lines += [f"  {line}" for line in training_text(row, cast(Form, form or "nl"), None).split("\n")]
    return "\n".join(lines)


def head_text(spec: WorldSpec) -> str:
    """Return a line that names a world: version, id, scale, and the dials that are turned."""
    dials = f", {spec.dials}" if str(spec.dials) else ""
    return f"RuleWorld {spec.version}, world {world_of(spec).world_id}, scale {spec.scale}{dials}"


def print_stats(stats: BuildStats) -> None:
    """Print what a build holds."""
    turned = "".join(f", {name} {value}" for name, value in stats.dials.items())
    where = f"scale {stats.scale}, seed {stats.seed}{turned}"
    head = f"RuleWorld {stats.generator_version}, {where}, {stats.bytes / 1e6:.1f} MB"
    _print(head, *(_table(columns, rows) for columns, *rows in stats.tables().values()))


def print_scores(result: dict[str, Any]) -> None:
    """Print the result of `ruleworld_data.scoring.score_predictions`."""
    from .scoring.selective import SELECTIVE

    metrics = ("exact_match", "strict_match", "length_mismatch", "missing_box")
    macro = result["macro"] | {name: result[name] for name in ("n", "missing")}
    rows = [
        [name, str(scores["n"]), str(scores["missing"]), *(f"{scores[m]:.4f}" for m in metrics)]
        for name, scores in [*result["subtasks"].items(), ("macro average", macro)]
    ]
    lines = [_table(["sub-task", "n", "missing", *metrics], rows[:-1], rows[-1])]
    more = [name for name in (*SELECTIVE, "aurc") if any(name in own for own in result["subtasks"].values())]
    if more:
        rows = [
            [name, *(f"{own[m]:.4f}" if m in own else "" for m in more)]
            for name, own in result["subtasks"].items()
        ]
        lines.append(_table(["sub-task", *more], rows))
    if result["paper"] is not None:
        lines.append(f"Mean of the paper's six groups (exact_match): {result['paper']['exact_match']:.4f}")
    if result["foreign"]:
        lines.append(
            f"Ignored, because they belong to none of these questions: {result['foreign']} predictions."
        )
    _print(*lines)


def _print(*parts: Any) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # wide enough for the tables where no terminal sets the width
    for part in parts:
        console.print(part)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], last: Sequence[Any] = ()) -> Any:
    """Lay out texts and counts, these with commas."""
    from rich.table import Table
    from rich.text import Text

    from .verify.report import printable

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(
            column, justify="left" if not i or column in ("skeleton", "split") else "right", no_wrap=True
        )
    for row in [*rows, last] if last else rows:
        if row is last:
            table.add_section()
        cells = (cell if isinstance(cell, str) else f"{cell:,}" for cell in row)
        table.add_row(*(Text(printable(cell)) for cell in cells))  # as it is, no markup
    return table
