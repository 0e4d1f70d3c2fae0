"""Texts that hold several rules, as parts of one rule each."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ..bank.lexicon import VERBS, blanked, has_verb, patterns
from ..bank.openings import LEAD
from .blocks import Block, is_title, next_of

_RE = patterns("parts")
FOREIGN = _RE.foreign


def parted(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield what is counted within a text, "1) No dogs 2) No bikes", as items; of two languages the English one."""
    for block in blocks:
        halves = block.text.split(" / ") if block.kind in ("text", "item") else []
        english = [half for half in halves if not FOREIGN.match(half)]
        if len(english) == 1 < len(halves):
            said = " / ".join(half for half in halves if half != english[0])
            yield Block("lost", said, block.starts, mark="the same in another language")
            block.text = english[0]
        yield from _counted(block) if halves else [block]


def _counted(block: Block) -> Iterator[Block]:
    """Yield the items that are counted in a block from its first mark on, behind what leads in to them."""
    text, marks = block.text, [(0, 0, block.mark)]
    for mark in _RE.counted.finditer(text):
        if len(marks) == 1 and _RE.first.fullmatch(text[: mark.end(1)]):
            marks = [(mark.start(), mark.end(), mark[1])]
        elif mark[1] == next_of(marks[-1][2]) and _RE.closed.search(text[: mark.start()]):
            marks.append((mark.start(), mark.end(), mark[1]))
    if len(marks) < 2 + marks[-1][2].endswith("."):  # "1. Fill in form 2. Sign it."
        yield block
        return
    if lead := text[: marks[0][0]].strip():
        yield replace(block, text=lead, kind="heading" if is_title(lead) else block.kind)
    text += "" if _RE.stop.search(text) else "."  # what stands below is another list
    depth = block.depth + bool(lead and block.kind == "item")
    for (_, begin, name), (end, *_) in pairwise([*marks, (len(text), 0, "")]):
        starts = [(at - begin, line) for at, line in block.starts if begin < at < end]
        yield Block("item", text[begin:end].strip(), [(0, block.line_at(begin)), *starts], depth, name)


def clauses(sentence: str) -> list[tuple[int, str]]:
    """Return the clauses that a sentence joins by ";", with their offsets, if each has a subject and a verb of its own.

    What goes on with the condition, the label or the order of the first, or refers to it, stays with it.
    """
    shown = blanked(sentence)
    ends = [0, *(mark.end() for mark in _RE.semicolon.finditer(shown)), len(shown) + 2]
    first, *others = [shown[begin : end - 2] for begin, end in pairwise(ends)]
    own = all(has_verb(each) and not _RE.refers.match(each) and not _opens(each) for each in others)
    if ": " in first or _opens(first) or _RE.holds.search(first) or not (others and own and has_verb(first)):
        return [(0, sentence)]
    parts = [(at, sentence[at : end - 2].removesuffix(".")) for at, end in pairwise(ends)]
    return [(at, f"{one[:1].upper()}{one[1:]}." if _RE.word.match(one) else f"{one}.") for at, one in parts]


def _opens(clause: str) -> bool:
    """Whether a clause begins with a condition, or is an order."""
    return bool(LEAD.match(clause) or VERBS.get(clause.split(" ")[0].lower()))
