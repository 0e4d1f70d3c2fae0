"""The text of a file, and its parts: headings, paragraphs, list items and tables, with the lines they begin on."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Literal

from ..bank.lexicon import ARTICLES, INLINE, LISTS, MODALS, VERBS, has_verb, is_plural, patterns

Line = tuple[int, str]
"""The number of a line, or of a page, and its text."""
Row = tuple[int, list[str]]
"""The line of a table's row, and its cells."""


@dataclass
class Block:
    """One part of a document; a rule is taken as it stands, what is lost is named with its reason as the mark."""

    kind: Literal["heading", "text", "item", "table", "rule", "lost"]
    text: str  # on one line, without marks of the format; a table's title
    # Offsets in the text at which a line begins, and the number of that line, from 1: a line of a text, a page of a
    # PDF, a paragraph of a DOCX.
    starts: list[tuple[int, int]]
    depth: int = 0  # level of a heading from 1; nesting of an item from 0
    mark: str = ""  # what an item begins with, such as "(a)"
    rows: list[Row] = field(default_factory=list)  # the cells of a table
    part: str = ""  # the sheet, where a file has several
    title: str = ""  # what stood before the text of an item: "Weeds." before "Grass that ..."

    def line_at(self, offset: int) -> int:
        """Return the line on which a place in the text stands."""
        return self.starts[max(0, bisect_right(self.starts, (offset, 1 << 60)) - 1)][1]

    def go_on(self, text: str, line: int) -> None:
        """Add one more line of a wrapped text; a word that was parted at its end is whole again."""
        torn = _RE.torn.search(self.text) and text[:1].islower() and not text.startswith(("and ", "or "))
        parted = torn and _RE.parted.search(self.text)
        self.text = self.text[:-1] if parted else self.text if torn else f"{self.text} "
        self.starts.append((len(self.text), line))
        self.text += text


_RE = patterns("blocks")
BULLET, NUMBER, OPEN, SECTION = _RE.bullet, _RE.number, _RE.open, _RE.section
_INLINE = [(re.compile(pattern), replacement) for pattern, replacement in INLINE]
"""Marks within a line, each of bounded length: a line of thousands of open ones would take minutes."""


def is_whole(text: str) -> bool:
    """Say whether a text ends as a sentence does."""
    return text.endswith((".", "!", "?", ".)", "。", "！", "？", "؟"))


def plain(text: str) -> str:
    """Return a text without the marks of Markdown, on one line."""
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return " ".join(_RE.dots.sub(":", text).split())


def unnumbered(text: str) -> str:
    """Return a clause without its number."""
    mark = NUMBER.match(text)
    return text[len(mark[0]) :] if mark and len(mark[0]) < len(text) else text


def is_title(text: str) -> bool:
    """Say whether a line is a title: no stop at its end, and all in capitals, or numbered, or every word capital."""
    titled = _RE.titled.match(text)
    rest = text[titled.end() :] if titled else unnumbered(text)
    words = re.findall(r"[^\W\d_]+", rest)
    says = _RE.says.search(text)
    if not words or says or len(words) > 10 or OPEN.search(text):
        return text[:1] == "§" and not words
    verb = is_clause(rest) if len(rest) < len(text) else has_verb(rest)
    long = [word for word in words if len(word) > 3] or words
    counted = len(rest) < len(text) and len(words) < 7 and not verb
    return rest.isupper() or counted or all(word[0].isupper() for word in long)


def is_clause(title: str) -> bool:
    """Say whether the verb of a title is no noun, as in "§ 8 Fees and charges", "SECTION 4: First aid measures"."""
    words = re.sub(" (?:of|a|the) will$", "", title.lower()).split()
    if words[0] in ("what", "who", "how", "why"):
        return False  # "SECTION 2: What is covered"
    after = "".join(words[1:2])
    order = VERBS.get(words[0]) and after not in LISTS["runs_on"] - ARTICLES and after[-2:] != "ed"
    if order or words[0] in ARTICLES:
        return has_verb(title)
    pairs = zip(words, words[1:], [*words[2:], ""], strict=False)
    agrees = (VERBS.get(verb) is is_plural(noun) and (end or is_plural(noun)) for noun, verb, end in pairs)
    return any(agrees) or not MODALS.isdisjoint(words)


def count_of(block: Block) -> str:
    """Return what counts an item: "1", "A" or "a", or nothing."""
    name = block.mark.strip("().")
    return "1" if name.isdigit() else "" if not name.isalnum() else "A" if name.isupper() else "a"


def next_of(mark: str) -> str:
    """Return the mark that is next in the count: "(b)" for "(a)"."""
    return re.sub(r"[a-h]|\d+", lambda n: str(int(n[0]) + 1) if n[0].isdigit() else chr(ord(n[0]) + 1), mark)


def says_itself(text: str) -> bool:
    """Say whether a text is a clause, and no thing of which a clause tells more: "any pool that stands open"."""
    before = _RE.relative.split(text)[0]
    return has_verb(before if before and not _RE.subject.match(text) else text)


def _is_titled_thing(block: Block) -> bool:
    """Say whether a paragraph begins with its title, and is no clause: "Weeds. Grass that is higher than ..."."""
    title = _RE.run_in.match(block.text)
    return block.kind == "text" and title is not None and not says_itself(block.text[title.end() :])


def _part_titles(blocks: list[Block]) -> None:
    """Part titles off the items of a list, if half begin with one: "(1) Weeds. Grass that is ..."."""
    for _, run in groupby(blocks, lambda block: block.kind):
        items = [block for block in run if block.kind == "item" and count_of(block)]
        for depth in {item.depth for item in items}:
            beside = [(item, _RE.run_in.match(item.text)) for item in items if item.depth == depth]
            titles = [(item, title) for item, title in beside if title]
            named = sum(not is_clause(title[1][:-1]) for _, title in titles)
            for item, title in titles if 1 < named >= len(beside) / 2 else ():
                item.title, item.text = title[1], item.text[title.end() :]
                item.starts = [(max(0, at - title.end()), line) for at, line in item.starts]


def nested(blocks: list[Block]) -> list[Block]:
    """Give items their nesting in place of their columns; what leads in to another kind of mark holds its items."""
    levels: list[tuple[int, str]] = []
    last: dict[tuple[int, str], str] = {}  # the mark that was read last on each
    above = Block("text", "", [])
    for at, (block, below) in enumerate(pairwise(blocks), 1):
        if block.kind == "text" and (block.text.endswith(":") or _RE.lists.fullmatch(block.text)):
            for item in takewhile(_is_titled_thing, blocks[at:]):
                item.kind, item.mark = "item", "1."
        deeper = block.kind == "text" or below.depth > block.depth or next_of(block.mark) != below.mark
        if block.kind in ("text", "item") and below.kind == "item" and deeper:
            items = takewhile(lambda item: item.kind == "item", blocks[at:])
            named = _RE.names.fullmatch(block.text) and not all(says_itself(item.text) for item in items)
            if named or _RE.lists.fullmatch(block.text):
                block.text = f"{block.text[:-1]}:"  # "The following are banned."
    for block in blocks:
        if block.kind != "item":
            levels = []
            continue
        # the kind of its mark: "(1)", "a)", "(i)"; "(i)" behind "(h)" is a letter
        name = block.mark.strip("().")
        roman = name.strip("ivx") == "" and above.mark.strip("().") != chr(ord(name[:1] or "a") - 1)
        kind = "i" if roman else count_of(block)
        level = block.depth, block.mark.replace(name, kind) if name.isalnum() else block.mark
        counts = [each for each in levels if each[1] == level[1] and next_of(last[each]) == block.mark]
        if counts and name.isalnum() and level not in levels:
            level = counts[-1]  # whatever its column
        # numbers lead in to those of another kind, bullets behind a colon
        goes_on = not count_of(above) or above.text.endswith((",", ";")) or is_whole(above.text)
        leads = above.text.endswith((":", "—", "–")) or not goes_on
        while levels and level not in levels and level[0] < levels[-1][0]:
            levels.pop()
        if level in levels:
            del levels[levels.index(level) + 1 :]
        elif not levels or level[0] > levels[-1][0] or leads:
            levels.append(level)
        else:
            levels[-1] = level
        block.depth, above, last[level] = len(levels) - 1, block, block.mark
    _part_titles(blocks)
    return blocks


def decoded(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or cp1252, with or without a byte order mark."""
    body = path.read_bytes()
    if body[:5] == b"%PDF-" or body[:4] == b"PK\x03\x04":
        raise ValueError("it is a PDF or an office document under the name of a text")
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    zeros = {"utf-16-le": body[1::2].count(0), "utf-16-be": body[::2].count(0)}
    said = [name for mark, name in marks.items() if body.startswith(mark)]
    guessed = [name for name, count in zeros.items() if count > len(body) // 8]
    try:
        text = body.decode([*said, *guessed, "utf-8"][0])
    except UnicodeDecodeError:
        text = body.decode("cp1252", errors="replace")
    if "\0" in text:
        raise ValueError("it is no text: it holds zero bytes")
    return text
