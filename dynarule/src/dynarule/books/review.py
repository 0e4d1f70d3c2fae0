"""The folder of a rule book: rules to edit, and a page that shows what was made of the documents."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from .._files import part_of
from .rules import BookReading, DocumentRule

COLUMNS = ("id", "rule", "premise", "conclusion", "context", "also")


def write_book(folder: Path, reading: BookReading) -> None:
    """Write ``rules.csv``, which ``--rules`` reads, and ``review.html`` into a new folder, whole or not at all.

    An id is the rule's file and line, so every answer cites them. A cell that a spreadsheet would run as a formula has
    a space before it, which reading takes off.
    """
    import jinja2

    names = ids_of(reading.rules)
    table = io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerow(COLUMNS)
    for name, rule in zip(names, reading.rules, strict=True):
        parts = (rule.premise, rule.conclusion) if rule.sure else ("", "")
        cells = (name, rule.text, *parts, " > ".join(rule.context), ", ".join(rule.also))
        rows.writerow([f" {cell}" if cell[:1] in tuple("=+-@") else cell for cell in cells])
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (Path(__file__).parent / "review.html").read_text(encoding="utf-8")
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with part_of(folder, folder=True) as work:
        (work / "rules.csv").write_text(table.getvalue(), encoding="utf-8", newline="")
        page = template.render(rules=list(zip(names, reading.rules, strict=True)), reading=reading)
        (work / "review.html").write_text(page + "\n", encoding="utf-8")
        work.replace(folder)


def ids_of(rules: list[DocumentRule]) -> list[str]:
    """Return an id for each rule: ``handbook.md:12``, and ``handbook.md:12.2`` for the next on that line."""
    seen: dict[str, int] = {}
    names = []
    for rule in rules:
        count = seen[rule.place] = seen.get(rule.place, 0) + 1
        names.append(rule.place if count == 1 else f"{rule.place}.{count}")
    return names
