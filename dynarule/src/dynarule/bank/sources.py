"""Rules from the user's own files and tables: a text, a conclusion and an id each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Self

_ARROW = re.compile(r"\s*(?:=>|->|⇒|→)\s*")
_IF = re.compile(r"(if\s[^,]*),\s*(?:then\s+)?(.+)", re.IGNORECASE | re.DOTALL)


def split_rule(rule: str) -> tuple[str, str]:
    """Return the premise of a rule and its conclusion, the text that becomes its value.

    ``premise => conclusion`` (also ``->``): around the first arrow. ``If premise, conclusion.``: around the first
    comma, without the full stop. Anything else is its own premise and its own conclusion, so it shares neither.

    Examples
    --------
    >>> split_rule("If A chases B, B will enter the bridge.")
    ('If A chases B', 'B will enter the bridge')
    >>> split_rule("Chase(A, B) => In(B, Bridge)")
    ('Chase(A, B)', 'In(B, Bridge)')
    >>> split_rule("All bridges are closed.")
    ('All bridges are closed.', 'All bridges are closed.')
    """
    whole = rule.strip()
    parts = _ARROW.split(rule, maxsplit=1)
    if len(parts) == 2 and parts[1].strip():
        return parts[0].strip(), parts[1].strip()
    found = _IF.fullmatch(whole)
    if not found:
        return whole, whole
    return found[1].strip(), found[2].strip().removesuffix(".") or whole


def conclusion_of(rule: str) -> str:
    """Return the conclusion of a rule, see `split_rule`."""
    return split_rule(rule)[1]


def premise_of(rule: str) -> str:
    """Return the premise of a rule, by which training finds hard negatives, see `split_rule`."""
    return split_rule(rule)[0]


@dataclass(frozen=True)
class Rules:
    """Checked rules, before they are embedded.

    Attributes
    ----------
    texts, conclusions, ids : list of str
        As many of each.
    """

    texts: list[str]
    conclusions: list[str]
    ids: list[str]

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        conclusions: Sequence[str | None] | None = None,
        ids: Sequence[object] | None = None,
    ) -> Self:
        """Check rules and fill in what is not given.

        Raises
        ------
        ValueError
            If lengths differ, or a rule or a conclusion is empty, or a rule comes twice.
        """
        names = [str(i) for i in (range(len(texts)) if ids is None else ids)]
        given: Sequence[str | None] = [None] * len(texts) if conclusions is None else conclusions
        if not len(texts) == len(given) == len(names):
            raise ValueError(
                f"{len(texts)} rules, {len(given)} conclusions, {len(names)} ids; give one of each per rule"
            )
        first: dict[str, str] = {}
        for name, text, conclusion in zip(names, texts, given, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"rule {name!r} has no text, got {text!r}")
            if conclusion is not None and not conclusion.strip():
                raise ValueError(
                    f"rule {name!r} has an empty conclusion; leave conclusions out to find them in the rules"
                )
            if text in first:
                raise ValueError(
                    f"rules {first[text]!r} and {name!r} are the same text, {text!r}; keep one of them"
                )
            first[text] = name
        found = [conclusion_of(text) if c is None else c for text, c in zip(texts, given, strict=True)]
        return cls(list(texts), found, names)


def read_rules(
    path: str | PathLike[str],
    text: str = "nl",
    conclusion: str | None = "conclusion_nl",
    id: str | None = "id",
) -> Rules:
    """Read rules from a file, by its ending.

    ``.parquet`` has columns of texts, conclusions and ids; without the last two (None) they are found in the rules, and
    row numbers. ``.tsv`` has a rule and its conclusion on each line, separated by a
    tab. Any other file has one rule per line. Blank lines are skipped; ids are line numbers, from 1.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    ValueError
        If it holds no rules, or a line is not as described.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no rule file {path}; expected .parquet, .tsv, or text with one rule per line"
        )
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except pa.ArrowException as error:
            raise ValueError(f"{path} is not a readable parquet file: {error}") from error
        for use, name in (("text", text), ("conclusion", conclusion), ("id", id)):
            if name is not None and name not in table.column_names:
                or_none = "" if use == "text" else f", or {use}=None"
                raise ValueError(
                    f"no column {name!r} for {use}; the columns are {table.column_names}: "
                    f"pass {use}=<one of them>{or_none}"
                )
        columns = [None if name is None else table[name].to_pylist() for name in (conclusion, id)]
        return Rules.of(table[text].to_pylist(), *columns)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    numbered = [(str(number), line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise ValueError(f"{path} holds no rules; expected one per line")
    ids = [number for number, _ in numbered]
    if path.suffix != ".tsv":
        return Rules.of([line for _, line in numbered], None, ids)
    cells = [line.split("\t") for _, line in numbered]
    for number, row in zip(ids, cells, strict=True):
        if len(row) != 2:
            raise ValueError(
                f"{path} line {number} has {len(row)} columns, expected 2: rule, tab, conclusion"
            )
    return Rules.of([row[0].strip() for row in cells], [row[1].strip() for row in cells], ids)
