"""No rule says so: an answer ends where a search finds nothing that stands out, and from which point on is measured."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .serving import Retrieval, RuleMemory

NEAREST = 3
"""Rules that a refusal names."""


def refusal(search: Retrieval) -> str:
    """Return what is answered where a search found no rule: the nearest ones, and ``unknown`` in a box."""
    found = list(zip(search.ids, search.texts, search.scores, strict=True))[:NEAREST]
    rules = [f"[{name}] {text} ({score:.3f})" for name, text, score in found]
    return "\n".join(["No rule says so. The nearest rules:", *rules, "\\boxed{unknown}"])


class Refusals:
    """Ends rows of a batch at the first search whose best rule has less than ``least`` support (a criterion)."""

    def __init__(self, memory: RuleMemory, start: int, least: float) -> None:
        layer = memory.config.confidence_layer
        if layer is None:
            raise ValueError("min_support needs the searches of a confidence layer, the adapter has none")
        self.memory, self.start, self.least, self.layer = memory, start, least, layer
        self.at: dict[
            int, tuple[int, Retrieval]
        ] = {}  # rows that ended: tokens before the search, and what it found
        self._seen = 0

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Say which rows end."""
        written = input_ids.shape[1] - self.start
        for search in self.memory.trace[self._seen :]:
            if search.layer == self.layer and search.support < self.least:
                # the last two tokens are the <search> and what was written behind it
                self.at.setdefault(search.row, (max(0, written - 2), search))
        self._seen = len(self.memory.trace)
        return torch.tensor([row in self.at for row in range(len(input_ids))], device=input_ids.device)


class Point(NamedTuple):
    """What comes of answering where support is at least ``least``: shares of all questions."""

    least: float
    coverage: float  # answered
    accuracy: float  # answered rightly, or rightly refused
    answered: float  # accuracy of what is answered; 1 where nothing is


def support_curve(
    supports: Sequence[float], right: Sequence[bool], unknown: Sequence[bool]
) -> tuple[list[Point], Point]:
    """Return coverage against accuracy, from every question answered to none, and the most accurate point.

    For each answer its `Generation.support`, whether it is ``right``, and whether to refuse it would be.
    """
    ranked = sorted(zip(supports, right, unknown, strict=True))
    if not ranked:
        raise ValueError("no answers to choose a support by")
    points = []
    for refused in range(len(ranked) + 1):
        below, above = (ranked[at][0] if 0 <= at < len(ranked) else None for at in (refused - 1, refused))
        if below == above:  # equal supports are refused together
            continue
        least = 0.0 if below is None else 1.01 if above is None else (below + above) / 2
        hits = sum(ok for _, ok, _ in ranked[refused:])
        count, kept = len(ranked), len(ranked) - refused
        rightly = sum(gone for *_, gone in ranked[:refused])
        points.append(Point(least, kept / count, (hits + rightly) / count, hits / kept if kept else 1.0))
    return points, max(points, key=lambda point: point.accuracy)


def says(text: str, answers: Sequence[str]) -> bool:
    """Whether the last box of a text holds these answers; case, blanks, a leading article and LaTeX marks apart."""
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    said = boxes[-1].split(",") if boxes else []
    return [*map(_bare, said)] == [*map(_bare, answers)]


def _bare(answer: str) -> str:
    plain = " ".join(re.sub(r"\\(?:text|mathrm)\b|[{}$]", " ", answer.casefold()).split()).rstrip(". ")
    return re.sub(r"^(?:the|an?) (?=.)", "", plain)
