r"""The scorer: pure functions from the text of an answer to numbers.

The definition is the paper's ("Answer evaluation"); what the paper leaves open is decided here, in the docstrings,
and pinned by tests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..spec import UNKNOWN

T = TypeVar("T")
SCORER_VERSION = "1"
"""Raised whenever an output of a published result would score differently; stored beside every result."""

_BOX_OPENS = re.compile(r"\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)

# Signs that chat models write for their ASCII twins: full-width forms, ideographic space and comma, zero
# widths.
_PLAIN: dict[int, int | str | None] = {0xFF01 + i: 0x21 + i for i in range(94)}
_PLAIN |= {0x3000: " ", 0x3001: ",", 0x200B: None, 0x200C: None, 0x200D: None, 0x2060: None, 0xFEFF: None}
# 1{,}000 and 1\,000: only before a group of three digits may a separator vanish, elsewhere it is a space.
_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,!]|\{,\})+(?=\d{3}(?!\d))")
_COMMANDS = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc|sl|up|md|normal)?|math(?:rm|bf|it|sf|tt|bb|cal|normal)?|operatorname|boldsymbol"
    r"|boxed|fbox|mbox|hbox|bm|emph|underline|displaystyle|textstyle|left|right|qquad|quad|enspace|thinspace|space"
    r"|rm|bf|it)(?![a-z])\*?"
)
# Escaped spacing, brackets, quotes and marks (\_ \, \( ...), a dangling backslash, the marks of LaTeX, Markdown and
# FOL symbols, and ~ as a space. What an escape keeps apart (\% \16), and ~ before a number, say something else.
_MARKS = re.compile(
    r"""\\(?:[\s,;:!/()\[\]{}_*`'".«»“”‘’\\-]|$)|(\\[^a-z])|[${}*`_]|~(?![\s${}]{0,8}[-+]?\d)""", re.DOTALL
)
_ARTICLE = re.compile(r"^(?:the|an?) (?=.)")
_OPENING = " \"'“”‘’«(["
_CLOSING = " \"'“”‘’»)]."


@dataclass(frozen=True)
class Score:
    r"""The score of one output.

    Attributes
    ----------
    exact_match : float
        The paper's metric: the fraction of positions that match, 0.0 if the lists differ in length.
    strict_match : float
        1.0 if every position matches, else 0.0.
    parsed : tuple of str
        The normalised answers found in the box; empty without a box.
    missing_box : bool
        No complete ``\boxed{...}`` was found.
    length_mismatch : bool
        A box was found but holds another number of answers than the gold list.
    """

    exact_match: float
    strict_match: float
    parsed: tuple[str, ...]
    missing_box: bool
    length_mismatch: bool


def parse_boxed(text: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{...}``, or None if there is none.

    White space may stand before the brace; braces nest; ``\{`` and ``\}`` are text. Of two boxes the one that
    starts later wins, so the inner of two nested ones, and a box that is never closed is passed over. Only
    ``\boxed{`` counts, which is what the prompt asks for; ``\fbox`` and a bare ``\boxed 5`` do not. Linear in
    the length of the text.

    Examples
    --------
    >>> parse_boxed(r"First \boxed{3}, no: \boxed{\text{12}, bridge} and \boxed{4")
    '\\text{12}, bridge'
    """
    end = len(text)
    start = text.rfind(r"\boxed", 0, end)
    while start >= 0:
        opening = _BOX_OPENS.match(text, start + len(r"\boxed"))
        if opening is not None:
            close = _closing_brace(text, opening.end(), end)
            if close is not None:
                return text[opening.end() : close]
            # This box never closes, so one around it cannot close behind it: what follows is done with.
            end = start
        start = text.rfind(r"\boxed", 0, start)
    return None


def _closing_brace(text: str, start: int, end: int) -> int | None:
    depth = 1
    for token in _BRACE.finditer(text, start, end):
        sign = token.group()
        if sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                return token.start()
    return None


def _clean(text: str) -> str:
    """Lower-case and remove artefacts; every artefact becomes a space, so that no new one can form."""
    text = text.translate(_PLAIN).lower()
    text = _THOUSANDS.sub("", text)
    text = _COMMANDS.sub(" ", text)
    return _MARKS.sub(lambda mark: mark[1] or " ", text)


def _trim(text: str) -> str:
    text = " ".join(text.split()).lstrip(_OPENING).rstrip(_CLOSING)
    # Angle brackets only as a pair: alone they compare.
    pair = text[:1] == "<" and re.fullmatch("<([^<>]*)>", text)
    return _trim(pair[1]) if pair else text


def normalise(text: str) -> str:
    r"""Normalise one answer as the paper does: lower case, no LaTeX or string artefacts, single spaces.

    Removed: formatting and spacing commands (``\text{..}``, ``\mathrm``, ``\,``, ``\!``, ``\left`` ...),
    ``$``, braces, Markdown marks, quotes and brackets around the answer, a final period. Underscores become
    spaces, so that the FOL symbol ``Celestial_garden`` equals ``celestial garden``. What has a meaning stays, and so
    does not match: ``\frac``, ``<6``, ``~6``, ``6\%``, ``\16``, a hyphen, a number in words.

    Examples
    --------
    >>> normalise(r"$\text{Celestial\_Garden}$.")
    'celestial garden'
    """
    return _trim(_clean(text))


def split_answers(text: str) -> list[str]:
    r"""Split a comma-separated list and normalise its parts.

    An empty part in the middle keeps its place (it is an answer left out); one after a final comma is
    dropped. An empty text has no answers.

    Examples
    --------
    >>> split_answers(r"[12, \mathrm{Stony\ Bridge}, 1{,}000]")
    ['12', 'stony bridge', '1000']
    """
    parts = [_trim(part) for part in _clean(text).split(",")]
    if not parts[-1]:
        parts.pop()
    return parts


def read_answers(output: str) -> list[str] | None:
    r"""Return the normalised answers of an output, those of its last box; None without one.

    Who writes nothing but "unknown" needs no box.
    """
    content = parse_boxed(output)
    if content is None and normalise(output) == UNKNOWN:
        content = output
    return None if content is None else split_answers(content)


def exact_match(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Return the paper's score: the fraction of positions that match, 0.0 if the lists differ in length.

    Both lists are normalised first.

    Raises
    ------
    ValueError
        If the gold list is empty, or either argument is no list of texts.
    """
    prediction, gold = all_texts("prediction", prediction), all_texts("gold", gold)
    if len(gold) == 0:
        raise ValueError("gold has no answers; every question has at least one")
    if odd := [one for one in gold if len(split_answers(one)) != 1]:
        raise ValueError(f"each gold answer must be one answer, got {odd[0]!r:.60}; use split_answers on it")
    if len(prediction) != len(gold):
        return 0.0
    return sum(same_answer(ours, theirs) for ours, theirs in zip(prediction, gold, strict=True)) / len(gold)


def strict_match(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Return 1.0 if the lists have the same length and every position matches, else 0.0.

    Raises
    ------
    ValueError
        As `exact_match`.
    """
    return float(exact_match(prediction, gold) == 1.0)


def in_order(name: str, values: Sequence[T]) -> list[T]:
    """Return values as a list.

    Raises
    ------
    ValueError
        If they are none, or have no first to be compared with the first: one text, a set, a mapping.
    """
    listed = hasattr(values, "__getitem__") and hasattr(values, "__len__")
    if not listed or isinstance(values, str | bytes | Mapping):
        raise ValueError(
            f"{name} must be a list of texts, got {values!r:.60}; split_answers makes one of a text"
        )
    return list(values)


def all_texts(name: str, values: Sequence[str]) -> list[str]:
    """Return texts as a list; a ValueError if they are none, see `in_order`, or one is no text."""
    texts = in_order(name, values)
    if not all(isinstance(one, str) for one in texts):
        raise ValueError(f"{name} must be a list of texts, got {values!r:.60}")
    return texts


def same_answer(answer: str, gold: str) -> bool:
    """Whether an answer says what the gold answer says.

    Both are normalised. A place, a state or a kind of creature may have an article before it and any of its names, a
    number what it counts behind it, in any name of RuleWorld or its last words: "the tundra", "out of breath" for
    ``breathless``, "16 muddy paws" and "16 paws" for ``16``.

    Examples
    --------
    >>> same_answer("The Tundra", "tundra"), same_answer("16 muddy paws", "16"), same_answer("16 or 17", "16")
    (True, True, False)
    """
    ours, theirs = normalise(answer), normalise(gold)
    if ours == theirs or not ours:
        return ours == theirs
    from ..world.names import names_of  # with numpy, which a scorer seldom needs

    number, _, things = ours.partition(" ")
    if theirs.isdigit():
        names = (name for kind in ("attribute", "plural") for name in names_of(kind))
        return number == theirs and any(f" {name}".endswith(f" {things}") for name in names)
    ours = _ARTICLE.sub("", ours)
    return ours == theirs or any(names_of(kind).get(ours) == theirs for kind in ("state", "place", "entity"))


def score_output(output: str, gold: Sequence[str] | str) -> Score:
    r"""Score one model output against its gold answers.

    Parameters
    ----------
    output : str
        The whole text that the model wrote. Any text is allowed: one without a box scores 0, but for the one word
        "unknown".
    gold : sequence of str or str
        The ``answers`` of the question, or the same as one comma-separated string.

    Raises
    ------
    ValueError
        If the output is not a string or there are no gold answers.
    """
    if not isinstance(output, str):
        raise ValueError(f"output must be a string, got {type(output).__name__}; pass '' for no answer")
    answers = split_answers(gold) if isinstance(gold, str) else gold
    read = read_answers(output)
    parsed = read or []
    share = exact_match(parsed, answers)
    return Score(
        exact_match=share,
        strict_match=float(share == 1.0),
        parsed=tuple(parsed),
        missing_box=read is None,
        length_mismatch=read is not None and len(parsed) != len(answers),
    )
