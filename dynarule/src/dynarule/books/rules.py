"""Documents as rules: sentences with what they need to be whole, where they stand, their premise and conclusion."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from .._lazy import need
from ..bank.clauses import Clauses, has_verb, split_rule
from ..bank.sources import LONGEST
from .blocks import Block, unnumbered
from .lists import is_whole, joined
from .readers import EXTRA, read_blocks
from .tables import table_rules


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
        Name of the file; its path, where two have one name.
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
        if not self.sure:
            return [(self.text, "")]
        kinds = {self.premise: "if", self.conclusion: "then"}
        parts = re.split(
            "(" + "|".join(map(re.escape, sorted(kinds, key=len, reverse=True))) + ")", self.text
        )
        return [(part, kinds.get(part, "")) for part in parts if part]

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


_NEEDS_LAST = re.compile(
    r"(?:otherwise|in that case|in this case|in such cases?|in all other cases|if not|if so|if it does|if they do|"
    r"the same (?:applies|holds|goes)|this|these|those|they|it|its|such|however|except|else|he|she|them|their|both|but|"
    r"also|additionally|in addition|moreover|furthermore|instead|then|here|there|"
    r"(?:after|before|until|from|on|by|in|under|at|for|to) (?:that|this|these|those|such|it|them))\b",
    re.IGNORECASE,
)
"""The beginning of a sentence that says nothing without the one before it."""
_ABBREVIATION = re.compile(
    r"\b(?:sec|art|no|nos|nr|para|par|fig|approx|max|min|ch|cl|p|pp|vol|ca|cf|rev)\.$", re.IGNORECASE
)
_OPENER = re.compile(
    r"(?<=[a-z)\"'.][.!?])\s+(?=(?:If|When|The|A|An|All|No|Every|Each|Any|Unless|They|It|This|In|For)\s)"
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
            rules = list(_rules(blocks, source, reading, columns))
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


def _rules(
    blocks: Sequence[Block], source: str, reading: BookReading, columns: dict[str, Any]
) -> Iterator[DocumentRule]:
    """Yield the rules of one document."""
    headings: list[tuple[int, str]] = []
    at = 0
    while at < len(blocks):
        block = blocks[at]
        after = blocks[at + 1] if at + 1 < len(blocks) else block
        if block.kind == "text" and block.text.endswith(":") and after.kind == "table":
            block.kind, block.depth, block.text = "heading", 8, block.text.rstrip(":")
        elif block.kind == after.kind == "text" and block.text.endswith("?"):  # its answer
            after.text = f"{block.text} {after.text}"
            after.starts = [*block.starts, *((o + len(block.text) + 1, line) for o, line in after.starts)]
            at += 1
            continue
        if block.kind == "heading":
            headings = [(depth, text) for depth, text in headings if depth < block.depth] + [
                (block.depth, block.text)
            ]
            at += 1
            continue
        context = tuple(text for _, text in headings)
        if block.kind == "table":
            rules, read_as = table_rules(block.rows, **columns)
            reading.tables.append((f"{source}:{block.rows[0][0] if block.rows else 0}", str(read_as)))
            for line, text, premise, conclusion in rules:
                parts = (
                    split_rule(text)
                    if premise is None or conclusion is None
                    else Clauses(premise, conclusion, True)
                )
                yield DocumentRule(text, *parts[:2], source, line, context, parts.sure)
            at += 1
            continue
        end = at + 1
        if (
            block.kind == "text"
            and end < len(blocks)
            and blocks[end].kind == "item"
            and not is_whole(block.text)
        ):
            while end < len(blocks) and blocks[end].kind == "item":
                end += 1
            pieces = list(joined(block.text, block.line_at(0), blocks[at + 1 : end]))
        elif block.kind == "item":
            while end < len(blocks) and blocks[end].kind == "item" and blocks[end].depth > block.depth:
                end += 1
            nested = blocks[at + 1 : end]
            pieces = list(joined(block.text, block.line_at(0), nested)) if nested else [(block.text, block)]
        elif block.kind == "rule":
            parts = split_rule(block.text)
            yield DocumentRule(block.text, *parts[:2], source, block.line_at(0), context, parts.sure)
            pieces = []
        else:
            pieces = [(block.text, block)]
        for text, where in pieces:
            yield from _sentences(text, where, source, context, reading)
        at = end


def _sentences(
    text: str, where: Block | int, source: str, context: tuple[str, ...], reading: BookReading
) -> Iterator[DocumentRule]:
    """Yield a rule a sentence; one that says nothing by itself goes with the one before it."""
    whole: list[tuple[int, str]] = []
    for offset, sentence in _split(text):
        last = whole[-1][1] if whole else ""
        torn = sentence[:1].islower() or (sentence[:1].isdigit() and _ABBREVIATION.search(last))
        if whole and (torn or _NEEDS_LAST.match(sentence) or last.endswith("?")):
            whole[-1] = (whole[-1][0], f"{last} {sentence}")
        else:
            whole.append((offset, sentence))
    for offset, sentence in whole:
        line = where if isinstance(where, int) else where.line_at(offset)
        if reason := _no_rule(sentence):
            reading.left_out.append((f"{source}:{line}", sentence, reason))
            continue
        parts = split_rule(sentence)
        yield DocumentRule(sentence, parts.premise, parts.conclusion, source, line, context, parts.sure)


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text with their offsets."""
    segmenter = need("syntok.segmenter", EXTRA)
    offset = 0
    for paragraph in segmenter.process(text):
        for tokens in paragraph:
            sentence = "".join(token.spacing + token.value for token in tokens).strip()
            for part in _OPENER.split(sentence):
                place = text.find(part[:20], offset)
                offset = max(offset, place)
                yield offset, unnumbered(part.strip())


def _no_rule(sentence: str) -> str:
    """Return why a sentence is no rule, or nothing."""
    if len(sentence.encode()) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    if not re.search(r"[^\W\d_]{2}", sentence):
        return "no words"
    if sentence.endswith("?"):
        return "a question without an answer"
    if sentence.endswith(":"):
        return "leads in to nothing"
    if len(sentence.split()) < 3 and not has_verb(sentence):
        return "no sentence"
    return ""
