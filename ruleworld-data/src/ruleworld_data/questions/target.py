r"""A question's proof as the text a model is trained to write: steps, ``<search>`` between them, the boxed answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

SEARCH_TOKEN = "<search>"


def boxed(answers: Sequence[str]) -> str:
    r"""Return the final answer as scored: ``\boxed{12, desert}``."""
    return f"\\boxed{{{', '.join(answers)}}}"


def training_text(
    row: Mapping[str, Any],
    representation: Literal["nl", "fol"] = "nl",
    search_token: str | None = SEARCH_TOKEN,
    opening: bool = False,
) -> str:
    r"""Render the target of one question row.

    The first step is retrieved from the question itself; every later step is preceded by the search token (section
    "Stacked Step-Level Attention Training Objective" of the paper).

    Parameters
    ----------
    row : mapping
        A row of a question table.
    representation : {"nl", "fol"}
        Language of the steps.
    search_token : str or None
        Text between steps; None for none.
    opening : bool
        Put it before the first step as well, which is then looked for with one token's state and not with the mean of
        the question's.

    Returns
    -------
    str
        ``[Step 1] ... <search>[Step 2] ... \boxed{...}``, one step a line.

    Raises
    ------
    ValueError
        For another representation.
    """
    if representation not in ("nl", "fol"):
        raise ValueError(f"representation must be 'nl' or 'fol', got {representation!r}")
    steps = [f"[Step {i}] {step[representation]}" for i, step in enumerate(row["steps"], 1)]
    between = search_token or ""
    return (between if opening else "") + f"\n{between}".join(steps) + f"\n[Answer] {boxed(row['answers'])}"
