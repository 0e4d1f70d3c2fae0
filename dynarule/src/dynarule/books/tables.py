"""Rules of tables: a row each of a decision table, a cell each of a matrix, or the texts of one column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .blocks import Row

TEXT_NAMES = (
    "nl",
    "rule",
    "rules",
    "text",
    "statement",
    "policy",
    "requirement",
    "sentence",
    "description",
    "regulation",
)
PREMISE_NAMES = ("premise", "if", "condition", "when")
OUTCOME_NAMES = (
    *(
        "then",
        "conclusion",
        "result",
        "outcome",
        "action",
        "decision",
        "output",
        "answer",
        "effect",
        "consequence",
    ),
    *(
        "fee",
        "price",
        "cost",
        "rate",
        "discount",
        "charge",
        "penalty",
        "limit",
        "value",
        "amount",
        "approval",
    ),
)
_ANY = {"", "-", "–", "—", "*", "any", "all", "n/a"}
"""Cells that say nothing: a condition that does not matter, no outcome."""
_COUNTER = {"", "#", "no", "no.", "nr", "nr.", "id", "row", "rule id", "u", "f", "a", "c", "number"}
_BOUNDS = (
    (re.compile(r"(?:>=|≥)\s*(.+)"), "at least {}"),
    (re.compile(r"(?:<=|≤)\s*(.+)"), "at most {}"),
    (re.compile(r">\s*(.+)"), "more than {}"),
    (re.compile(r"<\s*(.+)"), "less than {}"),
    (re.compile(r"[\[(]?\s*([\d.,]+)\s*(?:\.\.|–|-)\s*([\d.,]+)\s*[\])]?(.*)"), "from {} to {}{}"),
)


class TableRule(NamedTuple):
    """A rule of a table: its line, text, premise and conclusion (None where the text is yet to be parsed)."""

    line: int
    text: str
    premise: str | None = None
    conclusion: str | None = None


class Columns(NamedTuple):
    """How a table was read: its columns of rules, or of conditions and outcomes."""

    text: str = ""
    conditions: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    matrix: bool = False

    def __str__(self) -> str:
        if self.matrix:
            return "a matrix, a rule a cell"
        if self.text:
            return f"rules in column {self.text!r}"
        return f"if {', '.join(self.conditions)}, then {', '.join(self.outcomes)}"


def table_rules(
    rows: Sequence[Row], text: str | None = None, outcomes: Sequence[str] | None = None
) -> tuple[list[TableRule], Columns]:
    """Return the rules of a table and how its columns were read.

    Parameters
    ----------
    rows : sequence of (int, list of str)
        Lines and cells, the names of the columns first.
    text, outcomes : str, sequence of str, optional
        The column of rules, or the columns of outcomes; guessed by names, else the last column is the outcome.

    Raises
    ------
    ValueError
        If a column that is named is not there.
    """
    rows = [
        (line, [cell.strip() for cell in cells])
        for line, cells in rows
        if any(cell.strip() for cell in cells)
    ]
    while len(rows) > 1 and sum(map(bool, rows[0][1])) == 1 < sum(map(bool, rows[1][1])):
        rows = rows[1:]  # a title above the names
    if not rows:
        return [], Columns()
    header, body = rows[0][1], rows[1:]
    if len({len(cells) for _, cells in rows}) == 1 and not _is_header(header, [cells for _, cells in body]):
        header, body = [f"column {i}" for i in range(1, len(header) + 1)], rows
    names = [name.lower() for name in header]
    for name in [*([text] if text else []), *(outcomes or ())]:
        if name.lower() not in names:
            raise ValueError(f"no column {name!r}; the columns are {header}")
    longest = (
        max(
            (sum(map(len, column)) / max(1, len(body)), i)
            for i, column in enumerate(zip(*_even(body, header), strict=True))
        )
        if body
        else (0, 0)
    )
    texts = [names.index(text.lower())] if text else [i for i, name in enumerate(names) if name in TEXT_NAMES]
    if not texts and not outcomes and (longest[0] > 40 or len(header) == 1):
        texts = [longest[1]]
    if texts and not outcomes:
        return list(_texts(header, body, texts[0])), Columns(text=header[texts[0]])
    corner = header[0]
    if not outcomes and len(header) > 2 and (not corner or re.search(r"[/\\]", corner)):
        return list(_matrix(header, body)), Columns(matrix=True)
    kept = [i for i, name in enumerate(names) if name not in _COUNTER]
    last = (
        [names.index(name.lower()) for name in outcomes]
        if outcomes
        else _outcomes(names, _even(body, header), kept)
    )
    first = [i for i in kept if i not in last]
    first = [i for i in first if names[i] in (*PREMISE_NAMES, "wenn")] or first
    columns = Columns(conditions=tuple(header[i] for i in first), outcomes=tuple(header[i] for i in last))
    return list(_decisions(header, body, first, last)), columns


def _outcomes(names: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> Sequence[int]:
    """Guess the columns of outcomes.

    By their names; else, in a table with bounds or "any" among its cells, the last; else all that the first columns,
    as many as tell the rows apart, do not hold.
    """
    named = [i for i in kept[1:] if {*re.findall(r"\w+", names[i])} & {*OUTCOME_NAMES}]
    bounds = any(
        row[i] in ("-", "*", "any") or any(p.fullmatch(row[i]) for p, _ in _BOUNDS)
        for row in rows
        for i in kept[:-1]
    )
    if named or bounds:
        return named or kept[-1:]
    for count in range(1, min(len(kept), 20)):  # all, of thousands of columns, would take the square
        if len({tuple(row[i] for i in kept[:count]) for row in rows}) == len(rows):
            return kept[count:]
    return kept[-1:]


def _even(body: Sequence[Row], header: Sequence[str]) -> list[list[str]]:
    return [[*cells, *[""] * len(header)][: len(header)] for _, cells in body]


def _is_header(header: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: its cells are short words, unlike those of some column below."""
    if not body:
        return False
    if len(header) == 1:
        return header[0].lower() in TEXT_NAMES
    if any(re.fullmatch(r"[\d.,%€$£ ]+", cell) for cell in header[1:]):
        return bool(not header[0] or re.search(r"[/\\]", header[0]))
    return all(len(cell) < 50 and not cell.endswith(".") for cell in header)


def _texts(header: Sequence[str], body: Sequence[Row], column: int) -> Iterator[TableRule]:
    names = [name.lower() for name in header]
    whole = [
        next((i for i, n in enumerate(names) if n in known), None)
        for known in (PREMISE_NAMES, ("conclusion", "then"))
    ]
    for line, cells in body:
        cells = [*cells, *[""] * len(header)]
        if cells[column]:
            premise, conclusion = (None if i is None or i == column else cells[i] or None for i in whole)
            yield TableRule(line, cells[column], premise, conclusion)


def _matrix(header: Sequence[str], body: Sequence[Row]) -> Iterator[TableRule]:
    row_name, _, column_name = re.sub(r"[/\\]", "\0", header[0]).partition("\0")
    for line, cells in body:
        for name, cell in zip(header[1:], cells[1:], strict=False):
            if cell not in _ANY:
                where = " and ".join(
                    f"{kind.strip()} {value}".strip()
                    for kind, value in ((row_name, cells[0]), (column_name, name))
                )
                yield TableRule(line, f"For {where}: {cell}.", f"For {where}", cell)


def _decisions(
    header: Sequence[str], body: Sequence[Row], first: Sequence[int], last: Sequence[int]
) -> Iterator[TableRule]:
    for line, cells in body:
        cells = [*cells, *[""] * len(header)]
        conditions = [_condition(header[i], cells[i]) for i in first if cells[i].lower() not in _ANY]
        effects = [_effect(header[i], cells[i]) for i in last if cells[i] not in _ANY]
        if effects:
            premise = f"If {' and '.join(conditions)}" if conditions else "In any case"
            conclusion = " and ".join(effects)
            yield TableRule(line, f"{premise}, {conclusion}.", premise, conclusion)


def _effect(name: str, cell: str) -> str:
    if name.lower() in ("then", "conclusion", "dann", "consequence", "rule"):
        return cell
    phrase = _phrase(name)
    return f"{phrase} {cell}" if re.search(r"\b(?:if|when|by|to|in|for)$", phrase) else f"{phrase} is {cell}"


def _condition(name: str, cell: str) -> str:
    if name.lower() in (*PREMISE_NAMES, "wenn"):
        return cell
    for pattern, words in _BOUNDS:
        if match := pattern.fullmatch(cell):
            return f"{_phrase(name)} is {words.format(*match.groups(default=''))}".rstrip()
    if cell.lower() in ("yes", "true", "x", "✓", "no", "false"):
        return f"{_phrase(name)} is {'yes' if cell.lower() in ('yes', 'true', 'x', '✓') else 'no'}"
    return f"{_phrase(name)} is {cell}"


def _phrase(name: str) -> str:
    """Return a column's name as words: "order_total" is "order total"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).strip()
    return words if words.isupper() else words[:1].lower() + words[1:]
