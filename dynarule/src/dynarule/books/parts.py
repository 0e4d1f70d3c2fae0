"""Texts that hold several rules, as parts of one rule each."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ..bank.lexicon import VERBS, blanked, has_verb, patterns
from ..bank.openings import LEAD
from .blocks import Block

_RE = patterns("parts")
FOREIGN = _RE.foreign


def parted(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield what is counted within a text, "1) No dogs 2) No bikes", as items; of two languages the English one."""
    for block in blocks:
        if block.kind not in ("text", "item"):
            yield block
            continue
        halves = block.text.split(" / ")
        english = [half for half in halves if not FOREIGN.match(half)]
        if len(english) == 1 < len(halves):
            said = " / ".join(half for half in halves if half != english[0])
            yield Block("lost", said, block.starts, mark="the same in another language")
            block.text = english[0]
        yield from _counted(block)


def _counted(block: Block) -> Iterator[Block]:
    """Yield the items that are counted in a block from its first mark on, behind what leads in to them."""
    text, marks = block.text, [(0, 0, _place(block.mark))]
    for mark in _RE.counted.finditer(text):
        before, (form, number) = text[: mark.start()].lower().split()[-1:], _place(mark[1])
        last_form, last = marks[-1][2]
        if number == 1 and (not before or before[0][-1] in ":.!?–—") and len(marks) == 1:
            marks = [(mark.start(), mark.end(), (form, number))]
        elif (form, number) == (last_form, last + 1) and _RE.closed.search(text[: mark.start()]):
            marks.append((mark.start(), mark.end(), (form, number)))
    # "1. Fill in form 2. Sign it." is an order and its form
    if len(marks) < 2 + (marks[-1][2][0] == "1."):
        yield block
        return
    if lead := text[: marks[0][0]].strip():
        yield replace(block, text=lead)
    text += "" if _RE.stop.search(text) else "."  # what stands below is another list
    depth = block.depth + bool(lead and block.kind == "item")
    for (_, begin, (form, number)), (end, *_) in pairwise([*marks, (len(text), 0, ("", 0))]):
        starts = [(at - begin, line) for at, line in block.starts if begin < at < end]
        name = form.replace("1", str(number)).replace("a", chr(96 + number))
        yield Block("item", text[begin:end].strip(), [(0, block.line_at(begin)), *starts], depth, name)


def _place(mark: str) -> tuple[str, int]:
    """Return the form of an item's mark, such as "(a)" or "1.", and its place in the count; 0 for other marks."""
    name = mark.strip("().")
    if name.isdecimal():
        return mark.replace(name, "1"), int(name)
    return (mark.replace(name, "a"), ord(name) - 96) if len(name) == 1 and "a" <= name <= "z" else (mark, 0)


def clauses(sentence: str) -> list[tuple[int, str]]:
    """Return the clauses that a sentence joins by ";", with their offsets, if each has a subject and a verb of its own.

    What goes on with the condition, the label or the order of the first, or refers to it, stays with it.
    """
    shown = blanked(sentence)
    ends = [0, *(mark.end() for mark in _RE.semicolon.finditer(shown)), len(shown) + 2]
    first, *others = [shown[begin : end - 2] for begin, end in pairwise(ends)]
    holds = ": " in first or LEAD.match(first) or _RE.holds.search(first)
    if holds or not others or not has_verb(first) or not all(map(_is_own, others)):
        return [(0, sentence)]
    parts = [(at, sentence[at : end - 2].removesuffix(".")) for at, end in pairwise(ends)]
    return [
        (at, f"{part[:1].upper() if part.split()[0].isalpha() else part[:1]}{part[1:]}.")
        for at, part in parts
    ]


def _is_own(clause: str) -> bool:
    order = VERBS.get(clause.split()[0].lower()) if clause else True
    return bool(has_verb(clause) and not order and not LEAD.match(clause) and not _RE.refers.match(clause))
