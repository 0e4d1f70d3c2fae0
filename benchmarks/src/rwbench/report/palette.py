"""How each method is drawn, everywhere: colour, marker and line, told apart without colour too.

Colours are Okabe and Ito's, which colour-blind readers can tell apart. A method keeps its style in every
figure; methods without an entry get the next free one, in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INK = "var(--ink)"
GREY = "#8c8c8c"
BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7"

CEILINGS = ("solver", "gold-only")
FLOORS = ("random", "no-rules", "rag-random")


@dataclass(frozen=True)
class Style:
    """Colour (CSS), marker shape and dash pattern (SVG) of one method."""

    colour: str
    marker: str
    dash: str = ""


STYLES = {
    "solver": Style(INK, "star", "2 3"),
    "random": Style(GREY, "cross", "2 3"),
    "bm25-aware": Style(BLUE, "circle"),
    "bm25-naive": Style(SKY, "square", "6 3"),
    "dense": Style(PURPLE, "triangle"),
    "rrf": Style(GREEN, "diamond"),
    "dynarule": Style(VERMILION, "circle"),
    "kblam": Style(ORANGE, "square"),
    "srki": Style(PURPLE, "diamond", "6 3"),
    "prompting": Style(SKY, "circle"),
    "rag-bm25-aware": Style(BLUE, "square", "6 3"),
    "rag-bm25-naive": Style(SKY, "triangle", "4 2"),
    "rag-dense": Style(PURPLE, "circle", "4 2"),
    "rag-rrf": Style(GREEN, "square", "6 3"),
    "ircot": Style(ORANGE, "triangle", "8 3 2 3"),
    "react": Style(VERMILION, "diamond", "8 3 2 3"),
    "gold-only": Style(INK, "diamond", "2 3"),
    "no-rules": Style(GREY, "triangle", "2 3"),
    "rag-random": Style(GREY, "square", "2 3"),
}
SPARE = tuple(
    Style(colour, marker, dash)
    for dash in ("8 3 2 3", "4 2", "")
    for marker in ("diamond", "triangle", "square", "circle")
    for colour in (ORANGE, VERMILION, GREEN, BLUE, PURPLE, SKY)
)


def styles(keys: Iterable[str]) -> dict[str, Style]:
    """Return a style per method key."""
    unknown = sorted(set(keys) - set(STYLES))
    return STYLES | {key: SPARE[slot % len(SPARE)] for slot, key in enumerate(unknown)}
