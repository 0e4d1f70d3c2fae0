"""PDFs as blocks: columns, running titles, small print and ruled tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .._lazy import need
from .blocks import Block
from .markdown import blocks_of
from .sheets import tables_of


def read_pdf(path: Path) -> list[Block]:
    """Return the blocks of a PDF's text and its ruled tables; line numbers are pages.

    Running titles are left out; small print, which parts sentences that go on overleaf, comes last.
    """
    pages, notes = [], []
    tables: list[list[Block]] = []
    with need("pdfplumber", "documents").open(path) as pdf:
        sizes = Counter(round(char["size"]) for page in pdf.pages for char in page.chars)
        usual = max(sizes, key=lambda size: sizes[size], default=0)
        for page in pdf.pages:
            number, ruled = page.page_number, page.find_tables()
            words = page.extract_words(extra_attrs=["size"])
            for table in ruled:
                left, top, right, bottom = table.bbox
                middle = [(w["top"] + w["bottom"]) / 2 if left < w["x1"] < right else 0 for w in words]
                words = [w for w, y in zip(words, middle, strict=True) if not top < y < bottom]
                at = max((i for i, word in enumerate(words, 1) if word["top"] < top), default=0)
                # a title, which the table takes the place of
                place = {"text": f"\0{len(tables)}", "x0": left, "x1": right, "size": 2 * usual}
                words.insert(at, place | {"top": top, "bottom": (top + bottom) / 2})
                rows = [(number, [" ".join((cell or "").split()) for cell in row]) for row in table.extract()]
                tables.append(tables_of(rows))
            lines: list[list[Any]] = []
            for word in words:
                if not lines or abs(lines[-1][0]["bottom"] - word["bottom"]) > 0.3 * usual:
                    lines.append([])
                lines[-1].append(word)
            small = [line for line in lines if all(word["size"] < 0.85 * usual for word in line)]
            notes += [(number, re.sub(r"^\d+ ", "", _line(words))) for words in small]
            lines = [  # without the numbers of footnotes
                [word for word in line if word["size"] >= 0.85 * usual or not word["text"].isdigit()]
                for line in lines
                if line not in small
            ]
            pages.append((number, page.width, lines))
    if not tables and not any(lines for *_, lines in pages):
        raise ValueError("its pages hold no text; if they are pictures of text, run an OCR first")
    gap = _gutter([(width, line) for *_, width, lines in pages for line in lines])
    texts = [(number, list(_in_columns(lines, usual, gap))) for number, _, lines in pages]
    for edge in (0, -1, 0, -1):  # up to two lines above and below
        known = Counter(re.sub(r"\d+", "#", page[edge]) for _, page in texts if page)
        for _, page in texts:
            if page and len(texts) > 2 and known[re.sub(r"\d+", "#", page[edge])] > len(texts) / 2:
                del page[edge]
    once = Counter(re.sub(r"\d+", "#", line) for _, line in notes)
    ends = [(number, line) for number, line in notes if once[re.sub(r"\d+", "#", line)] == 1]
    blocks = blocks_of([(number, line) for number, page in texts for line in page] + [(0, ""), *ends])
    return [
        part
        for block in blocks
        for part in (tables[int(block.text[1:])] if block.text[:1] == "\0" else [block])
    ]


def _line(words: Sequence[Any]) -> str:
    return " ".join(word["text"] for word in words)


def _gutter(lines: Sequence[tuple[float, list[Any]]]) -> float:
    """Return where the gap between two columns of text is, or 0."""
    gaps: Counter[int] = Counter()
    for width, words in lines:
        for left, right in pairwise(words):
            sides = left["x1"] - words[0]["x0"], words[-1]["x1"] - right["x0"]
            if right["x0"] - left["x1"] > 9 and min(sides) > 0.15 * width:
                gaps.update(range(int(left["x1"]) + 4, int(right["x0"]) - 4))
    gap, count = max(gaps.items(), key=lambda pair: pair[1], default=(0, 0))
    return gap if count > max(4, 0.25 * len(lines)) else 0


def _in_columns(lines: Sequence[list[Any]], usual: float, gap: float) -> Iterator[str]:
    """Yield the lines of a page, those of a left column before those of a right one; large print is a heading."""
    right: list[str] = []
    for words in lines:
        sides = [
            [word for word in words if not gap or word["x0"] < gap],
            [word for word in words if word["x0"] >= gap > 0],
        ]
        mark = "# " if all(word["size"] > 1.15 * usual for word in words) else ""
        if any(word["x0"] < gap < word["x1"] for word in words):
            yield from right
            right, sides = [], [words, []]
        if sides[0]:
            yield mark + _line(sides[0])
        if sides[1]:
            right.append(mark + _line(sides[1]))
    yield from right
