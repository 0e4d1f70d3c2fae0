"""How each method is drawn, everywhere: one colour and one marker, told apart without colour too.

The ten colours of contenders are at least 17 (CIE 1976) apart for readers with normal, protanopic and deuteranopic
vision, and stand out from white and from dark paper. A retriever has the colour of the method that reads what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INK, SOFT, LINE = "#1b1f24", "#59636e", "#d9dee3"
"""Text, axes and grid; on a page they are its CSS variables, so that figures follow light and dark."""

CEILINGS = ("solver", "gold-only")
FLOORS = ("random", "no-rules", "rag-random")


@dataclass(frozen=True)
class Style:
    """Colour, marker and line style of one method, in matplotlib's words."""

    colour: str
    marker: str
    line: str = "-"


STYLES = {
    "dynarule-plus": Style("#d55e00", "o"),
    "rule-vectors": Style("#d55e00", "o", "-."),
    "dynarule": Style("#d55e00", "o", "--"),
    "kblam": Style("#e69f00", "s", "--"),
    "srki": Style("#aa4499", "D", "--"),
    "prompting": Style("#17becf", "p"),
    "rag-bm25-aware": Style("#3f90da", "^"),
    "rag-bm25-naive": Style("#44aa99", "v", "-."),
    "rag-dense": Style("#7a4bd6", "<"),
    "rag-rrf": Style("#117733", ">"),
    "rag-both-ends": Style("#44aa99", "8"),
    "rag-graph": Style("#e69f00", "H"),
    "stepwise": Style("#aa4499", "h"),
    "ircot": Style("#b9ac70", "P"),
    "react": Style("#e73f74", "X"),
    "bm25-aware": Style("#3f90da", "^", "--"),
    "bm25-naive": Style("#44aa99", "v", "--"),
    "dense": Style("#7a4bd6", "<", "--"),
    "rrf": Style("#117733", ">", "--"),
    "solver": Style(INK, "*", ":"),
    "gold-only": Style(INK, "d", ":"),
    "random": Style(SOFT, "x", ":"),
    "no-rules": Style(SOFT, "1", ":"),
    "rag-random": Style(SOFT, "+", ":"),
}
_COLOURS = list(dict.fromkeys(style.colour for style in STYLES.values() if style.colour not in (INK, SOFT)))
SPARE = tuple(Style(colour, marker, "-.") for marker in ("h", "8", "H") for colour in _COLOURS)
"""Of methods without an entry, in the order of their keys."""


def styles(keys: Iterable[str]) -> dict[str, Style]:
    """Return a style per method key."""
    unknown = sorted(set(keys) - set(STYLES))
    return STYLES | {key: SPARE[slot % len(SPARE)] for slot, key in enumerate(unknown)}
