"""Rules of documents, and the folder of a book of them: rules to edit, a page that shows what was made of what."""

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .._files import part_of
from ..bank.clauses import split_rule
from .blocks import is_whole


@dataclass
class DocumentRule:
    """A rule of a document.

    Attributes
    ----------
    text : str
        The rule, one or more whole sentences.
    premise, conclusion : str
        Its parts; both are the whole text where ``sure`` is false.
    source : str
        Name of the file, or its path where two have one name; of a workbook of several sheets, with the sheet's.
    line : int
        Where it begins: a line, a page of a PDF, a paragraph of a DOCX, a row of a table.
    context : tuple of str
        The headings above it.
    sure : bool
        Whether the parts were found by the structure of the sentence.
    also : list of str
        Where else the same rule stands.
    """

    text: str
    premise: str
    conclusion: str
    source: str
    line: int
    context: tuple[str, ...] = ()
    sure: bool = True
    also: list[str] = field(default_factory=list)

    def go_on(self, sentence: str) -> None:
        """Add a sentence that says nothing by itself."""
        self.text = f"{self.text}{'' if is_whole(self.text) else '.'} {sentence[:1].upper()}{sentence[1:]}"
        self.premise, self.conclusion, self.sure = split_rule(self.text)

    @property
    def place(self) -> str:
        """File and line, as an answer cites it: ``handbook.md:12``."""
        return f"{self.source}:{self.line}"


@dataclass
class BookReading:
    """What was made of some documents: rules, what was left out and why, how tables were read, what failed."""

    rules: list[DocumentRule] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)
    tables: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def write_book(folder: Path, reading: BookReading) -> None:
    """Write ``rules.csv``, which ``--rules`` reads, and ``review.html`` into a new folder, whole or not at all.

    An id is the rule's file and line, so every answer cites them. A cell that a spreadsheet would run as a formula has
    a space before it, which reading takes off.
    """
    import jinja2

    names = ids_of(reading.rules)
    table = io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerow(("id", "rule", "premise", "conclusion", "context", "also"))
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
    seen: Counter[str] = Counter()
    names = []
    for rule in rules:
        seen[rule.place] += 1
        names.append(rule.place + (f".{seen[rule.place]}" if seen[rule.place] > 1 else ""))
    return names
