"""PDFs as blocks: columns, running titles, small print and ruled tables."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .._lazy import need
from .blocks import Block, is_whole
from .markdown import blocks_of
from .sheets import tables_of


def read_pdf(path: Path) -> list[Block]:
    """Return the blocks of a PDF's text and its ruled tables; line numbers are pages.

    Running titles are left out; small print, which parts sentences that go on overleaf, comes last.
    """
    pages, notes = [], []
    tables: list[list[Block]] = []
    plumber = need("pdfplumber", "documents")
    with plumber.open(path) as pdf:
        drawn = [(page, page.chars, page.lines or page.rects or page.curves) for page in pdf.pages]
        sizes = Counter(round(char["size"]) for _, chars, _ in drawn for char in chars)
        usual = max(sizes, key=lambda size: sizes[size], default=0)
        for page, chars, lined in drawn:
            number, ruled = page.page_number, page.find_tables() if lined else []
            words = plumber.utils.extract_words(chars, extra_attrs=["size"])
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
            for call in [w for w in words if w["text"].isdigit() and w["size"] < 0.85 * usual]:
                middle = (call["top"] + call["bottom"]) / 2
                beside = (w for w in words if 0 < call["x1"] - w["x1"] < usual and w["size"] > call["size"])
                if called := next((w for w in beside if w["top"] < middle < w["bottom"]), None):
                    called["text"] += f"[^{number}x{call['text']}]"
                    words.remove(call)
            lines: list[list[Any]] = []
            for word in words:
                if not lines or abs(lines[-1][0]["bottom"] - word["bottom"]) > 0.3 * usual:
                    lines.append([])
                lines[-1].append(word)
            small = [line for line in lines if all(word["size"] < 0.85 * usual for word in line)]
            notes += [(number, _line(line)) for line in small]
            pages.append((number, page.width, [line for line in lines if line not in small]))
    if not tables and not any(lines for *_, lines in pages):
        raise ValueError("its pages hold no text; if they are pictures of text, run an OCR first")
    forms = Counter(re.sub(r"\d+", "#", line) for _, line in notes)
    once = [(number, line) for number, line in notes if forms[re.sub(r"\d+", "#", line)] == 1]
    ends = [(number, re.sub(r"^(\d+) (?=\S)", rf"[^{number}x\1]: ", line)) for number, line in once]
    gap = _gutter([(width, line) for _, width, lines in pages for line in lines])
    texts = [(number, list(_in_columns(lines, usual, gap))) for number, _, lines in pages]
    for edge in (0, -1, 0, -1):  # up to two lines above and below
        digits = r"\d+" if len(texts) > 2 else r"(?!)"  # of two pages they may tell two rules apart
        titles = Counter(re.sub(digits, "#", page[edge]) for _, page in texts if page)
        for _, page in texts:
            often = bool(page) and titles[re.sub(digits, "#", page[edge])] > len(texts) / 2
            if often and len(texts) > 1 + is_whole(page[edge]):
                del page[edge]
    blocks = blocks_of([(number, line) for number, page in texts for line in page] + [(0, ""), *ends])
    parts = (tables[int(block.text[1:])] if block.text[:1] == "\0" else [block] for block in blocks)
    return [block for some in parts for block in some]


def _line(words: Sequence[Any]) -> str:
    """Return the words of a line, with three blanks where there is a wide gap."""
    wide = [False, *(b["x0"] - a["x1"] > 1.1 * a["size"] for a, b in pairwise(words))]
    return "".join(" " * (1 + 2 * gap) + word["text"] for gap, word in zip(wide, words, strict=True)).strip()


def _gutter(lines: Sequence[tuple[float, list[Any]]]) -> float:
    """Return where the gap between two columns of prose is, or 0: what few words cross, with whole lines beside it."""
    width = max((width for width, _ in lines), default=0)
    words = [word for _, line in lines for word in line]
    crossed = Counter(x for word in words for x in range(int(word["x0"]) - 3, int(word["x1"]) + 4))
    middle = range(int(0.35 * width), int(0.65 * width))
    gap = min(middle, key=lambda x: (crossed[x], abs(x - width / 2)), default=0)
    left = [sum(word["x1"] < gap for word in line) for _, line in lines]
    right = [len(line) - count for (_, line), count in zip(lines, left, strict=True)]
    # cells of a table have fewer words
    rows = min(sum(count > 3 for count in side) for side in (left, right))
    return gap if rows > max(4, 0.25 * len(lines), 10 * crossed[gap]) else 0


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
