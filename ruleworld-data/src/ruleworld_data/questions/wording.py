"""Question templates: frames, events and asks from ``templates.toml``, composed once per start and query.

A version after 1.1 has a file with what it words otherwise.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from .._lazy import read_toml
from ..spec import VERSION, VERSIONS


@dataclass(frozen=True)
class QuestionTemplate:
    """One way to word a question: its name, e.g. ``conditional.passive``, and its text with slots."""

    id: str
    text: str


@cache
def load_templates(version: str = VERSION) -> dict[str, Any]:
    """Read the template file, with what a version words otherwise."""
    texts = read_toml(__package__, "templates.toml")
    return (
        texts if version == VERSIONS[0] else _with(texts, read_toml(__package__, f"templates-{version}.toml"))
    )


def _with(texts: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return texts in their order, some of them changed."""
    return texts | {
        name: _with(texts[name], other) if isinstance(other, dict) else other
        for name, other in others.items()
    }


@cache
def merge_templates(version: str = VERSION) -> tuple[QuestionTemplate, ...]:
    """Return the frames of merged questions, with the slot ``{parts}``."""
    return tuple(QuestionTemplate(name, text) for name, text in load_templates(version)["merges"].items())


@cache
def comparison_templates(operation: str) -> tuple[QuestionTemplate, ...]:
    """Return the frames of comparisons, with ``{parts}``, ``{creatures}``, ``{highest}`` and ``{lowest}``."""
    frames = load_templates()["comparisons"][operation.lower()]
    return tuple(QuestionTemplate(f"{operation.lower()}.{name}", text) for name, text in frames.items())


@cache
def templates(frames: str, start: str, query: str, version: str = VERSION) -> tuple[QuestionTemplate, ...]:
    """Return all wordings for a start (kind, change, actor, target, environment, state) and a query.

    ``frames`` are those of questions of their own, ``"frames"``, or those of parts of merged ones, ``"clauses"``.
    """
    data = load_templates(version)
    if start == "kind":
        section = f"{'kind' if query == 'count' else query}_{frames}"
        return tuple(QuestionTemplate(name, text) for name, text in data[section].items())
    if query == "changed":
        frames = "changed_frames"
    ask = data["asks"].get(query, {})
    return tuple(
        QuestionTemplate(f"{name}.{voice}", _fill(frame, {"event": event, "ask": ask}))
        for name, frame in data[frames].items()
        for voice, event in data["events"][start].items()
        if all(form in event for form in re.findall(r"\{[Ee]vent\.(\w+)\}", frame))
    )


def _fill(frame: str, parts: dict[str, dict[str, str]]) -> str:
    def replace(match: re.Match[str]) -> str:
        part, form = match.group(1), match.group(2)
        text = parts[part.lower()][form]
        if not part[0].isupper():
            return text
        # A sentence begins: ``{X} is ...`` takes the slot that holds ``A tiny cat``.
        if text[0] == "{":
            return re.sub(r"^\{(\w+)\}", r"{\1_capital}", text)
        return text[0].upper() + text[1:]

    return re.sub(r"\{([A-Za-z]+)\.(\w+)\}", replace, frame)
