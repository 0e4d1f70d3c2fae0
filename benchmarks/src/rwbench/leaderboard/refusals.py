"""How a submission is refused: file, line, what is wrong, the value seen, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SHOWN = 80
MAX_PROBLEMS = 20
"""Problems of one kind that are told; the rest is counted."""


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


def few(problems: list[Problem]) -> list[Problem]:
    """Return the first `MAX_PROBLEMS`, and how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    more = len(problems) - MAX_PROBLEMS
    last = problems[MAX_PROBLEMS - 1]
    return [*problems[:MAX_PROBLEMS], Problem(last.file, f"{more:,} more problems", "mend the first ones")]
