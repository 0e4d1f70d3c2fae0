r"""A question's proof as the text a model is trained to write: steps, ``<search>`` in them, the boxed answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..scoring.answers import all_texts
from ..spec import FORMS, check_columns, check_name

SEARCH_TOKEN = "<search>"
_PREMISE = {
    "nl": re.compile(r"((?:^|\. )[^.]+?)(?=, so |(?<=[a-z]) has \d)"),
    "fol": re.compile(r"((?:^|; )[^;]+?)(?= => )"),
}
"""The part of a step's clause that is a rule's premise; what follows is its conclusion."""


def boxed(answers: Sequence[str]) -> str:
    r"""Return the final answer as scored: ``\boxed{12, desert}``; `ValueError` for what is no list of texts."""
    return f"\\boxed{{{', '.join(all_texts('answers', answers))}}}"


def training_text(
    row: Mapping[str, Any],
    representation: str = "nl",
    search_token: str | None = SEARCH_TOKEN,
    place: Literal["before", "behind", "premise"] = "behind",
    mark: str = "",
) -> str:
    r"""Render the target of one question row.

    The first step is retrieved from the question itself; in every later one the search token stands before the content
    (section "Stacked Step-Level Attention Training Objective" of the paper).

    Parameters
    ----------
    row : mapping
        A row of a question table.
    representation : {"nl", "fol"}
        Language of the steps.
    search_token : str or None
        Text that asks for the rules of a step; None for none.
    place : {"before", "behind", "premise"}
        Where it stands: before a step's header; behind it, where a model knows which step it is about to write; or
        (beyond the paper) behind the premise of each rule of a step, the first one too, where it has just said what the
        rule is about.
    mark : str
        What a base writes before each step, the first one too.

    Returns
    -------
    str
        ``[Step 1] ... [Step 2]<search> ... \boxed{...}``, one step a line; answers by the names that the steps use.

    Raises
    ------
    ValueError
        For another representation or place, or a row that has no steps or answers.
    """
    check_name("representation", representation, FORMS)
    check_name("place", place, ("before", "behind", "premise"))
    check_columns("a question", row, "steps", "answers")
    lines = []
    for number, step in enumerate(row["steps"], 1):
        search = search_token if number > 1 and search_token else ""
        before, behind = (search if place == at else "" for at in ("before", "behind"))
        text = step[representation]
        if place == "premise" and search_token:
            text = _PREMISE[representation].sub(lambda clause: f"{clause[1]}{search_token}", text)
        lines.append(f"{mark}{before}[Step {number}]{behind} {text}")
    answers = row["answers"]
    if representation == "nl":
        answers = [worded(answer, "\n".join(lines)) for answer in answers]
    return "\n".join([*lines, f"[Answer] {boxed(answers)}"])


def worded(answer: str, text: str) -> str:
    """Return an answer by the name that a text last calls it, as prompts ask for; as it is where it has none there.

    With the dial `words` the gold answer is a term's usual name, which the rules of a question need not use.
    """
    from ..world.names import other_names  # with numpy, which a scorer seldom needs

    plain = re.sub("[^a-z]", " ", text.lower())  # as other names are, but as long as the text
    names = (name.replace(" ", " +") for name in (answer, *other_names().get(answer, ())))
    places = [match.span() for name in names for match in re.finditer(rf"\b{name}\b", plain)]
    last = max(places, key=lambda span: (span[1], -span[0]), default=None)
    return text[slice(*last)] if last else answer
