"""Notes of a document, put where their signs call them: "5 years*", "a badge [2]", "at once.¹"."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from unicodedata import normalize

from ..bank.lexicon import patterns
from .blocks import Block
from .sentences import bare, sentences

_RE = patterns("notes")


def with_notes(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks without the notes that those above them call, which stand there instead.

    A note begins with its sign, as no block beside it does: signs one below another are those of a list.
    """
    said = [f"{block.mark} {block.text}" if block.kind == "item" else block.text for block in blocks]
    signs = [_RE.sign.match(text) for text in said]
    names = [_name(sign[0]) if sign else "" for sign in signs]
    calls: dict[str, list[int]] = {}
    notes: dict[int, dict[str, str]] = {}  # of the blocks that call some, by their places
    for at, (block, sign, name) in enumerate(zip(blocks, signs, names, strict=True)):
        beside = names[max(0, at - 1) : at] + names[at + 1 : at + 2]
        if sign and block.kind in ("item", "text") and name not in beside:
            note = said[at][sign.end() :].strip()
            for caller in calls.get(name, ()):
                notes[caller][name] = note
            if calls.pop(name, None):
                block.text = ""
        texts = [block.text, *(cell for _, cells in block.rows for cell in cells)]
        for call in (call for text in texts for call in _RE.call.finditer(text)):
            if block.kind not in ("heading", "rule"):
                notes.setdefault(at, {})
                calls.setdefault(_name(call[2]), []).append(at)
    for at, called in notes.items():
        _put(blocks[at], called)
    return [block for block, text in zip(blocks, said, strict=True) if block.text or block.rows or not text]


def _name(sign: str) -> str:
    return normalize("NFKC", sign).strip("[]().:^#_ ")


def _put(block: Block, notes: Mapping[str, str]) -> None:
    """Put notes into a text, whose lines still begin where they do, and into cells."""
    for call in reversed([*_RE.call.finditer(block.text)]):
        words, (begin, end) = _called(call, notes), call.span()
        more = len(words) - (end - begin)
        block.text = block.text[:begin] + words + block.text[end:]
        block.starts = [(at + more * (at >= end), line) for at, line in block.starts]
    for _, cells in block.rows:
        cells[:] = [_RE.call.sub(partial(_called, notes=notes), cell) for cell in cells]


def _called(call: re.Match[str], notes: Mapping[str, str]) -> str:
    """Return a note in brackets, before the stop of the sentence that calls it, or nothing where it is lost."""
    before, sign, stop = call.groups()
    if _name(sign) not in notes:
        raised = sign != normalize("NFKC", sign) and not call.string[call.start(2) - 1].isdigit()  # "10²"
        lost = raised or sign.strip()[:2] in ("[^", "[#")
        return before + stop if lost else call[0]
    return f" ({'; '.join(bare(part) for _, part in sentences(notes[_name(sign)]))}){before or stop}"
