"""Question templates: frames, events and asks from ``templates.toml``, composed once per start and query."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class QuestionTemplate:
    """One way to word a question: its name, e.g. ``conditional.passive``, and its text with slots."""

    id: str
    text: str


@cache
def load_templates() -> dict[str, Any]:
    """Read the template file."""
    return tomllib.loads(resources.files(__package__).joinpath("templates.toml").read_text(encoding="utf-8"))


@cache
def question_templates(start: str, query: str) -> tuple[QuestionTemplate, ...]:
    """Return all direct wordings for a start (kind, change, actor, target, environment, state) and a query."""
    return _compose("frames", start, query)


@cache
def clause_templates(start: str, query: str) -> tuple[QuestionTemplate, ...]:
    """Return all wordings as one part of a merged question."""
    return _compose("clauses", start, query)


@cache
def merge_templates() -> tuple[QuestionTemplate, ...]:
    """Return the frames of merged questions, with the slot ``{parts}``."""
    return tuple(QuestionTemplate(name, text) for name, text in load_templates()["merges"].items())


@cache
def comparison_templates(operation: str) -> tuple[QuestionTemplate, ...]:
    """Return the frames of comparisons, with ``{parts}``, ``{creatures}``, ``{highest}`` and ``{lowest}``."""
    frames = load_templates()["comparisons"][operation.lower()]
    return tuple(QuestionTemplate(f"{operation.lower()}.{name}", text) for name, text in frames.items())


def _compose(frames: str, start: str, query: str) -> tuple[QuestionTemplate, ...]:
    data = load_templates()
    if start == "kind":
        section = f"{'kind' if query == 'count' else query}_{frames}"
        return tuple(QuestionTemplate(name, text) for name, text in data[section].items())
    ask = data["asks"][query]
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
        return _capitalise(text) if part[0].isupper() else text

    return re.sub(r"\{([A-Za-z]+)\.(\w+)\}", replace, frame)


def _capitalise(text: str) -> str:
    """Begin a sentence: ``{X} is ...`` takes the slot that holds ``A tiny cat``."""
    if text[0] != "{":
        return text[0].upper() + text[1:]
    return re.sub(r"^\{(\w+)\}", r"{\1_capital}", text)
