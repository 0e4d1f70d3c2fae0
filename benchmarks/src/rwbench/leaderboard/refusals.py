"""How a submission is refused: file, line, what is wrong, the value seen, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

SHOWN = 80
MAX_PROBLEMS = 20
"""Problems that are told; who hands in millions does not keep us busy."""


@dataclass(frozen=True)
class Problem:
    """One reason for refusal.

    Attributes
    ----------
    file : str
        Name of the file in the submission's folder, or of the folder.
    what : str
        What is wrong.
    mend : str
        What to do about it.
    line : int or None
        1-based, where a line is to blame.
    value : str or None
        The value seen (`shown`).
    """

    file: str
    what: str
    mend: str
    line: int | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        seen = "" if self.value is None else f", got {self.value}"
        return f"{place}: {self.what}{seen}; {self.mend}"


class Refused(ValueError):
    """A submission was refused, for one or more reasons."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


def shown(value: Any) -> str:
    """Return a value as one short line of printable ASCII: it comes from a stranger and goes to a terminal."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def few(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first `MAX_PROBLEMS`, and that there are more if so; no problem beyond is looked for."""
    found = list(islice(problems, MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[-1] = Problem(found[-1].file, f"more problems than these {MAX_PROBLEMS}", "mend these first")
    return found
