"""Does the English say what the facts say? Terms are looked for as whole words, counts next to what they count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from ..text.parser import Fact, Query, parse_facts, parse_query
from ..world.vocabulary import Verb, load_vocabulary
from .report import Findings
from .unit import Unit, UnitList

_REMEMBERED = 60_000
"""Sub-questions whose words are kept at one time."""
_NUMBER = re.compile(r"\d+")
_TO_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}


class _Needles(NamedTuple):
    """What a text must mention for a sub-question.

    ``words`` must all be there, one of each group in ``forms``, and no number except ``numbers``.
    """

    words: tuple[str, ...]
    forms: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]


class TextChecker:
    """Checks question texts against the facts of their sub-questions."""

    def __init__(self, findings: Findings, units: UnitList) -> None:
        self.check = findings["question_text"]
        self.units = units
        self._needles: dict[int, _Needles | None] = {}

    def rows(self, ids: Sequence[str], texts: Sequence[str], lists: Iterator[list[int]]) -> None:
        """Check some rows; ``lists`` yields the sub-question numbers of each."""
        self.check.checked += len(texts)
        known = self._needles
        for row_id, text, numbers in zip(ids, texts, lists, strict=False):
            words = plain_words(text)
            allowed: list[str] = []
            for number in numbers:
                if number not in known:
                    if len(known) >= _REMEMBERED:
                        known.clear()
                    known[number] = _needles(self.units[number])
                needles = known[number]
                if needles is None:  # facts that cannot be read are reported once, as such
                    allowed += _NUMBER.findall(words)
                    continue
                allowed += needles.numbers
                for word in needles.words:
                    if word not in words:
                        self.check.fail(f"{row_id}: {word.strip()!r} is not in {text!r}")
                for forms in needles.forms:
                    for form in forms:
                        if form in words:
                            break
                    else:
                        self.check.fail(f"{row_id}: no form of {forms[0].strip()!r} is in {text!r}")
            for found in _NUMBER.findall(words):
                if found not in allowed:
                    self.check.fail(f"{row_id}: the number {found} in {text!r} is in no fact")


def plain_words(text: str) -> str:
    """Lower-case words with single signs between them turned to spaces, a space at both ends."""
    return f" {text.lower().translate(_TO_WORDS)} "


def names_things(text: str, facts: Iterable[Fact]) -> str:
    """Return the first term or number of the facts that a text does not name, or nothing."""
    words = plain_words(text)
    for fact in facts:
        for forms in _fact_forms(fact):
            if not any(form in words for form in forms):
                return repr(forms[0].strip())
    return ""


def _needles(unit: Unit) -> _Needles | None:
    try:
        facts, query = parse_facts(unit.facts), parse_query(unit.query)
    except ValueError:
        return None
    groups = [forms for fact in facts for forms in _fact_forms(fact)] + _query_forms(query)
    numbers = tuple(str(fact.number) for fact in facts if fact.number is not None)
    words = tuple(forms[0] for forms in groups if len(forms) == 1)
    return _Needles(words, tuple(forms for forms in groups if len(forms) > 1), numbers)


def _fact_forms(fact: Fact) -> list[tuple[str, ...]]:
    """List what a text must mention to state a fact: each entry is one thing in all its forms."""
    if fact.number is not None:
        name = fact.term if fact.number == 1 else _plurals().get(fact.term, fact.term)
        forms = [(f" {fact.number} {name} ",)]
        return forms + ([_change_forms(fact.operator)] if fact.operator else [])
    if fact.kind == "act":
        return [_verb_forms(fact.term)]
    return [(f" {fact.term} ",)]


def _query_forms(query: Query) -> list[tuple[str, ...]]:
    if query.kind == "has":
        return [(f" {_plurals().get(query.term, query.term)} ", f" {query.term} ")]
    if query.kind == "state" and query.term != "in":
        return [_verb_forms(query.term)]
    return []


@cache
def _plurals() -> dict[str, str]:
    words = load_vocabulary()
    return dict(zip(words.attributes, words.attribute_plurals, strict=True))


@cache
def _verb_forms(base: str) -> tuple[str, ...]:
    return next((_forms(verb) for verb in load_vocabulary().actions if verb.base == base), (f" {base} ",))


@cache
def _change_forms(operator: str) -> tuple[str, ...]:
    verbs = load_vocabulary().minus if operator == "minus" else load_vocabulary().plus
    return tuple(form for verb in verbs for form in _forms(verb))


def _forms(verb: Verb) -> tuple[str, ...]:
    return tuple(f" {form} " for form in vars(verb).values())
