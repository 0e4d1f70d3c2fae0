r"""The reward: a pure function from the text of an answer and a metadata record to numbers, safe in any thread.

Any text is scored and none raises. Time is linear in its length.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from ..scoring import Score, score_output
from ..spec import VERSION, VERSIONS, check_count, read_fields
from ..world import load_vocabulary
from ..world.names import other_names
from .config import RewardWeights
from .instances import SCHEMA

_STEP = re.compile(r"^[ \t]*\[Step (\d{1,2})\](.*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z]+|\d+")
_BOX_AT_THE_END = re.compile(r"\}[\s.$*]*\Z")
_LONGEST_STEP, _LONGEST_ANSWER = 500, 64
_VARIABLES = {"a", "b", "x", "y"}
_FIELDS = {"config", "index", "answers", "conclusions", "gold_rule_ids"}
_WHOLE: dict[str, Callable[[Any], bool]] = {
    "config": lambda value: isinstance(value, Mapping) and _are_weights(value.get("reward")),
    "gold_rule_ids": lambda value: isinstance(value, list),
    "conclusions": lambda value: isinstance(value, list) and value != [] and all(map(_is_conclusion, value)),
}
"""What `score` reads of a record, and whether it can."""


class Reward(NamedTuple):
    """A reward and its parts, each from 0 to 1.

    Attributes
    ----------
    reward : float
        The weighted mean of the parts, less the cost of searches.
    exact, strict, steps, proved, format : float
        As `RewardWeights` describes them.
    cost : float
        What searches take off.
    """

    reward: float
    exact: float
    strict: float
    steps: float
    proved: float
    format: float
    cost: float


def score(answer: object, metadata: Mapping[str, Any] | str, searches: int = 0) -> Reward:
    r"""Score an answer.

    Parameters
    ----------
    answer : str or bytes
        All that the model wrote; with a search tool, what it wrote last. Anything else is an empty answer.
    metadata : mapping or str
        The metadata of the instance, or the same as JSON.
    searches : int
        Searches that were made.

    Raises
    ------
    ValueError
        If the metadata was not made by this version of the environment, or ``searches`` is no count.
    """
    record = read_metadata(metadata)
    if isinstance(answer, bytes | bytearray):
        answer = answer.decode("utf-8", "replace")
    text = answer if isinstance(answer, str) else ""
    check_count("searches", searches)
    weights = {**vars(RewardWeights(**record["config"]["reward"]))}
    right = score_output(text, record["answers"])
    steps = _steps(text, record["conclusions"]) if weights["steps"] or weights["proved"] else 0.0
    parts = {
        "exact": right.exact_match,
        "strict": right.strict_match,
        "steps": steps,
        "proved": right.strict_match * (steps == 1.0),
        "format": float(_in_form(text, right)),
    }
    total = sum(weights[name] for name in parts)
    cost = weights["search_cost"] * max(0, searches - len(record["gold_rule_ids"]))
    earned = sum(weights[name] * part for name, part in parts.items()) / total
    return Reward(min(1.0, max(0.0, earned - cost)), **parts, cost=cost)


def _are_weights(value: object) -> bool:
    try:
        return bool(read_fields(RewardWeights, value, "reward part"))
    except ValueError:
        return False


def _is_conclusion(value: object) -> bool:
    return isinstance(value, list) and len(value) > 2 and all(isinstance(part, str) for part in value)


def read_metadata(metadata: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return a metadata record; a ValueError if it is none of this version, and of which, with what to do."""
    record: Any = metadata
    if isinstance(metadata, str | bytes):
        try:
            record = json.loads(metadata)
        except (ValueError, RecursionError):
            raise ValueError(f"metadata must be the JSON of an instance's, got {metadata!r:.80}") from None
    schema = record.get("schema") if isinstance(record, Mapping) else record
    if not isinstance(record, Mapping) or schema != SCHEMA:
        problem = f"was written by {schema!r:.80}, this version reads {SCHEMA!r}"
    elif missing := sorted(_FIELDS - record.keys()):
        problem = f"lacks {', '.join(missing)}"
    elif broken := [name for name, whole in _WHOLE.items() if not whole(record[name])]:
        problem = f"is damaged: {broken[0]} is {record[broken[0]]!r:.80}"
    elif (version := record["config"].get("version", VERSION)) not in VERSIONS:
        problem = f"is of data {version!r:.80}, this version makes {' and '.join(VERSIONS)}"
    else:
        return record
    raise ValueError(f"metadata {problem}; make the instances anew with ruleworld_data.environments.instance")


def _in_form(text: str, score: Score) -> bool:
    """One box, at the end, with a short answer for each that is asked for."""
    return (
        not score.missing_box
        and not score.length_mismatch
        and text.count(r"\boxed") == 1
        and _BOX_AT_THE_END.search(text, max(0, len(text) - 16)) is not None
        and all(0 < len(part) <= _LONGEST_ANSWER for part in score.parsed)
    )


def _steps(text: str, conclusions: Sequence[Sequence[str]]) -> float:
    """Return the share of steps that are right; of two lines with one number the first counts."""
    lines: dict[int, str] = {}
    for match in _STEP.finditer(text):
        lines.setdefault(int(match[1]), match[2])
    right = [_concludes(lines.get(i, ""), conclusion) for i, conclusion in enumerate(conclusions, 1)]
    return sum(right) / len(right)


def _concludes(line: str, conclusion: Sequence[str]) -> bool:
    """Say whether a line ends in a conclusion, in any of the forms that rules have.

    A place, a state or a creature must be the last words; of a count or a change the number must be the last number,
    the attribute named, and the last verb of change of the right sign. What a comparison comes to needs its number
    alone. So a line that lists candidates has one of them only.
    """
    if not line or len(line) > _LONGEST_STEP:
        return False
    kind, operator, number, *term = conclusion
    words = _WORD.findall(line.lower())
    name = " ".join(term)
    if not number:
        while words and words[-1] in _VARIABLES:
            words.pop()
        return f" {' '.join(words)} ".endswith(_names(name))
    if next((word for word in reversed(words) if word.isdigit()), "") != number:
        return False
    if not name:
        return True
    text = f" {' '.join(words)} "
    if not any(known in text for known in _names(name, load_vocabulary().plural_of[name])):
        return False
    if kind == "has":
        return True
    last = _last_change().match(text)
    return last is not None and _signs()[last[1]] == operator


@cache
def _names(*usual: str) -> tuple[str, ...]:
    """Return all names of what a term's forms name, the usual ones first, with a space at both ends."""
    others = other_names()
    return tuple(f" {name} " for name in (*usual, *chain(*(others.get(form, ()) for form in usual))))


@cache
def _signs() -> dict[str, str]:
    """Return the sign of each verb of change, with a space at both ends."""
    return {
        name: sign
        for sign, verbs in load_vocabulary().change_verbs.items()
        for verb in verbs
        for name in _names(verb.base, verb.third)
    }


@cache
def _last_change() -> re.Pattern[str]:
    """Return what finds the last verb of change; no verb begins within another."""
    return re.compile(f".*({'|'.join(_signs())})")
