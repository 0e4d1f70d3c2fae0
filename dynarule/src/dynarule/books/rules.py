"""Rules of documents: where they stand, their premise and conclusion, and what else was made of a document."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def pieces(self) -> list[tuple[str, str]]:
        """Return the text in pieces, each with what it is: "if", "then", or nothing."""
        if not self.sure or self.premise not in self.text:
            return [(self.text, "")]
        before, premise, after = self.text.partition(self.premise)
        return [(before, "then"), (premise, "if"), (after, "then")]

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
