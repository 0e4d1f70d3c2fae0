"""Which submissions a pull request adds, from its list of changed files; what else it may not touch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .files import LIMITS
from .refusals import Problem, Refused, few, shown

PLACE = "benchmarks/leaderboard/submissions"


def added_submissions(changed: Sequence[str], head: Path, base: Path | None = None) -> list[Path]:
    """Return the folders of the submissions that changed files belong to.

    Parameters
    ----------
    changed : sequence of str
        Paths in the repository, as ``git diff --name-only -z`` gives them.
    head : Path
        Checkout of the pull request; only looked at.
    base : Path, optional
        Checkout of the main branch, to tell new folders from old ones.

    Raises
    ------
    Refused
        If submissions come together with other changes, a path leads out of its place, or a submission that is on the
        board is changed.
    """
    problems = []
    names: dict[str, None] = {}
    place = head / PLACE
    for path in changed:
        parts = path.split("/")
        inside = path.startswith(f"{PLACE}/") and len(parts) == len(PLACE.split("/")) + 2
        if not inside or ".." in parts or parts[-1] not in LIMITS:
            mend = f"a pull request with a submission adds folders to {PLACE} and nothing else"
            problems.append(Problem(shown(path), "is not a file of a submission", mend))
        else:
            names[parts[-2]] = None
    if place.resolve() != head.resolve() / PLACE:
        problems.append(Problem(PLACE, "is a link", "hand in real folders"))
    for name in names:
        if base is not None and (base / PLACE / name).exists():
            mend = "add a new folder: what is on the board stays as it is"
            problems.append(Problem(shown(name), "is on the board already", mend))
    if problems:
        raise Refused(*few(problems))
    return [place / name for name in names]
