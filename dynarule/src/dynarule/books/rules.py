"""Documents as rules: sentences with what they need to be whole, where they stand, their premise and conclusion."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from os import PathLike
from pathlib import Path
from typing import Any

from ..bank.clauses import split_rule
from ..bank.lexicon import has_verb
from .blocks import Block, is_whole
from .lists import RUNS_ON, joined, whole_item
from .readers import read_blocks
from .sentences import IMPRINT, REFERS_BACK, no_rule, sentences
from .tables import ALONE_NAMES, PREMISE_NAMES, THEN_NAMES, table_rules


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
        rest = [re.split(r"(^[\s,;:]+|[\s.,;:]+$)", part) for part in (before, after)]
        kinds = [
            [(part, "then" if re.search(r"\w", part) else "") for part in parts if part] for parts in rest
        ]
        return [*kinds[0], (premise, "if"), *kinds[1]]

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


LONGEST_ANSWER = 800
"""Characters below a heading that asks: a longer answer is no rule but a chapter."""
_IF, _THEN = (
    re.compile(rf"(?:{'|'.join(names)})\s*:\s*(.+)", re.IGNORECASE)
    for names in (
        [*PREMISE_NAMES, *ALONE_NAMES, "trigger"],
        [*THEN_NAMES, "action", "result", "outcome", "response"],
    )
)
"""Lines as "Condition: ..." and "Action: ..."."""
_EXCEPTIONS, _EXCEPTED = (
    re.compile(rf"(?:exceptions?|exclusions?|exempt(?:ions?)?){end}", re.IGNORECASE) for end in (":?$", ": ")
)


def read_documents(
    paths: Iterable[str | PathLike[str]] | str | PathLike[str], **columns: Any
) -> list[DocumentRule]:
    """Read the rules of documents: Markdown, text, HTML, DOCX, PDF, CSV, TSV, XLSX, JSON lines, parquet, Prolog, Rego.

    Headings become context, bullets are joined with what leads in to them, wrapped lines with each other; code, tables
    of contents and page numbers are left out; a rule that comes twice is kept once. A file that cannot be read is a
    warning, the others are read.

    Parameters
    ----------
    paths : path or iterable of path
        Files, or folders whose files are read.
    **columns
        Of tables: ``text``, the column of rules, or ``outcomes``, a list of columns.

    Raises
    ------
    ValueError
        If there is no rule in any of them.
    """
    reading = read_book(paths, **columns)
    for problem in reading.problems:
        warnings.warn(problem, stacklevel=2)
    return reading.rules


def read_book(paths: Iterable[str | PathLike[str]] | str | PathLike[str], **columns: Any) -> BookReading:
    """Read documents as `read_documents` does; return what was left out, too."""
    reading = BookReading()
    listed = [Path(paths)] if isinstance(paths, str | PathLike) else [Path(path) for path in paths]
    files = [file for path in listed for file in (sorted(path.rglob("*.*")) if path.is_dir() else [path])]
    if not files:
        raise ValueError("no document given; give files or folders")
    first: dict[str, DocumentRule] = {}
    names = Counter(path.name for path in files)
    for path in files:
        if path.is_symlink() and path not in listed:
            reading.problems.append(f"{path} is a link, and is not followed from a folder; give it by itself")
            continue
        source = path.name if names[path.name] == 1 else path.as_posix()
        try:
            blocks = read_blocks(path)
            rules = _Document(source, reading, columns).read(blocks)
        except (ValueError, OSError) as error:
            reading.problems.append(str(error))
            continue
        titles = {title for rule in rules for title in rule.context}
        reading.left_out += [
            (f"{source}:{block.line_at(0)}", block.text, "a title with no rule below it")
            for block in blocks
            if block.kind == "heading" and block.text not in titles
        ]
        if not rules:
            reading.problems.append(f"{path} holds no rules: no whole sentence and no table of them")
        for rule in rules:
            key = " ".join(rule.text.casefold().rstrip(".").split())
            if key in first:
                first[key].also.append(rule.place)
            else:
                first[key] = rule
                reading.rules.append(rule)
    if not reading.rules:
        raise ValueError("no rules found: " + "; ".join(reading.problems))
    return reading


@dataclass
class _Document:
    """One document: its rules so far, and the headings above the next."""

    source: str
    reading: BookReading
    columns: dict[str, Any]
    part: str = ""
    rules: list[DocumentRule] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)

    def read(self, blocks: Sequence[Block]) -> list[DocumentRule]:
        at = 0
        while at < len(blocks):
            block, end = blocks[at], at + 1
            after = blocks[end] if end < len(blocks) else Block("heading", "", [(0, 0)])
            self.part = f":{block.part}" if block.part else ""
            lists = after.kind == "item" and not is_whole(block.text)
            if block.kind == "heading" and IMPRINT.match(block.text):
                block.kind = "text"
            elif block.kind in ("text", "item") and _is_heading(block, after):
                block.kind, block.depth, block.text = "heading", 8 + block.depth, block.text.rstrip(":")
            if block.kind in ("heading", "text") and block.text.endswith("?"):
                end = self._answer(block, blocks[end:]) + end
            if block.kind == "heading":
                self._below(block.depth)
                self.headings.append((block.depth, block.text))
            elif block.kind == "table":
                self._table(block)
            elif block.kind == "rule":
                self._add(block.text, block.line_at(0))
            elif block.kind == "lost":
                self._leave(block.line_at(0), block.text, block.mark)
            elif (premise := _IF.match(block.text)) and (then := _THEN.match(after.text)):
                self._add(
                    f"If {premise[1]}, {then[1].rstrip('.')}.", block.line_at(0), f"If {premise[1]}", then[1]
                )
                end += 1
            elif end == at + 1:
                if block.text.endswith(":"):  # "Opening hours:", a line for each day
                    for line in takewhile(_is_fragment, blocks[end:]):
                        line.kind, lists = "item", True
                pairs = zip(blocks[end:], [*blocks[end + 1 :], Block("heading", "", [])], strict=False)
                if block.kind == "item" or lists:
                    end += sum(1 for _ in takewhile(partial(_is_below, block), pairs))
                self._sentences(block, blocks[at + 1 : end])
            at = end
        return self.rules

    def _leave(self, line: int, text: str, reason: str) -> None:
        self.reading.left_out.append((f"{self.source}{self.part}:{line}", text[:300], reason))

    def _below(self, depth: int) -> None:
        self.headings = [heading for heading in self.headings if heading[0] < depth]

    def _add(self, text: str, line: int, premise: str | None = None, conclusion: str | None = None) -> None:
        context = tuple(title for _, title in self.headings)
        rule = DocumentRule(text, premise or "", conclusion or "", self.source + self.part, line, context)
        if premise is None or conclusion is None:
            rule.premise, rule.conclusion, rule.sure = split_rule(text)
        self.rules.append(rule)

    def _answer(self, question: Block, blocks: Sequence[Block]) -> int:
        """Add a question with its answer; return their number: all below a title, else one and its list."""
        taken = list(takewhile(lambda b: b.kind in ("text", "item") and "? " not in f"{b.text} ", blocks))
        texts: list[str] = []
        at = 0
        while at < len(taken) and (not at or question.kind == "heading"):
            text = re.sub(r"^A(?:nswer)?\s?\d*[.:]\s+", "", taken[at].text)
            lists = taken[at].kind == "item" or not is_whole(text)
            below = list(takewhile(lambda b: b.kind == "item", taken[at + 1 :])) if lists else []
            if taken[at].kind == "text":
                texts += [part for part, _ in joined(text, 0, below)] if below else [text]
            else:
                texts += [text, *(block.text for block in below)]
            at += 1 + len(below)
        whole = any(map(is_whole, texts))
        answer = " ".join(t if is_whole(t) else f"{t}." for t in texts) if whole else f"{', '.join(texts)}."
        if not at or len(answer) > LONGEST_ANSWER:
            return 0
        if question.kind == "heading":
            self._below(question.depth)
        asked = re.sub(r"^Q(?:uestion)?\s?\d*[.:]\s+", "", question.text)
        self._add(f"{asked} {answer}", question.line_at(0))
        question.kind = "text"
        return at

    def _table(self, block: Block) -> None:
        above = self.headings
        self.headings = [*above, (9, block.text)] if block.text else above
        title = self.headings[-1][1] if self.headings else ""
        made, read_as = table_rules(block.rows, title=title, **self.columns)
        if made:
            self.reading.tables.append((f"{self.source}{self.part}:{block.rows[0][0]}", read_as))
        for line, text, *parts in made:
            if text:
                self._add(text, line, *parts)
            else:
                self._leave(line, str(parts[0]), "a row that says nothing of what follows")
        self.headings = above

    def _sentences(self, block: Block, items: Sequence[Block]) -> None:
        """Add the rules of a text, joined with the items below it."""
        pieces: list[tuple[str, Block | int]] = [(block.text, block)]
        if items:
            pieces = list(joined(block.text, block.line_at(0), items))
        if items and _EXCEPTIONS.match(block.text):
            bare = [_EXCEPTED.sub("", text).rstrip(".") for text, _ in pieces]
            whole = all(map(has_verb, bare))
            pieces = [(f"Exceptions: {('. ' if whole else ', ').join(bare)}.", block)]
        for text, where in pieces:
            parts = sentences(text)
            if self.headings and isinstance(where, Block) and where.kind == "item" and len(parts) == 1:
                parts = [(0, whole_item(re.sub(r"^[\d.]+ ", "", self.headings[-1][1]), parts[0][1]))]
            for number, (offset, sentence) in enumerate(parts):
                line = where if isinstance(where, int) else where.line_at(offset)
                last = self.rules[-1] if self.rules and not number else None
                if (
                    last
                    and last.context == tuple(t for _, t in self.headings)
                    and REFERS_BACK.match(sentence)
                    and not sentence.endswith(":")
                ):
                    last.go_on(sentence)
                elif reason := no_rule(sentence, not number, len(parts) == 1):
                    self._leave(line, sentence, reason)
                else:
                    self._add(sentence, line)


def _is_heading(block: Block, after: Block) -> bool:
    """Whether a text is the title of the table, list or sentence below it, though it is not written as one."""
    text = block.text
    if block.kind == "item" and not (block.mark[-1:] in (".", ")") and after.text[:1].isupper()):
        return False
    if after.kind == "table":
        return block.kind == "text" and (text.endswith(":") or not (has_verb(text) or is_whole(text)))
    if (
        text.endswith((":", "-", "—", ","))
        or RUNS_ON.search(text)
        or has_verb(text)
        or is_whole(text.removesuffix("etc."))
    ):
        return False
    lists = block.kind == "text" and after.kind == "item"
    below = after.kind == "text" or after.depth > block.depth
    whole = is_whole(after.text) or after.text.endswith(":")
    return lists or (below and whole and not re.search(r"\d|: |^no\b|^not\b", text, re.IGNORECASE))


def _is_fragment(block: Block) -> bool:
    """Whether a text is no sentence, and leads in to nothing."""
    return block.kind == "text" and not (
        is_whole(block.text) or block.text.endswith(":") or has_verb(block.text)
    )


def _is_below(lead: Block, pair: tuple[Block, Block]) -> bool:
    """Whether the first of two blocks is an item of what stands above it, and no title of the second."""
    item, after = pair
    if item.kind == "item" and after.kind == "text" and _is_heading(item, after):
        return False
    if item.kind != "item" or lead.kind != "item" or item.depth > lead.depth:
        return item.kind == "item"
    return lead.text.endswith(":") and item.text[:1].islower()
