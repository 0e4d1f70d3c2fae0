"""Does the English say what the facts say? Terms are looked for as whole words, counts next to what they count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from ..text import Fact, Query, parse_facts, parse_query
from ..world import Verb, load_vocabulary
from .report import Findings
from .subquestions import SubQuestion, SubQuestions

_REMEMBERED = 60_000
"""Sub-questions whose words are kept at one time."""
_NUMBER = re.compile(r"\d+")
_TO_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}

Thing = tuple[str, ...]
"""One thing that a text must mention: all its forms, of which one must be there, with a space at both ends."""


class TextChecker:
    """Checks question texts against the facts of their sub-questions."""

    def __init__(self, findings: Findings, asked: SubQuestions) -> None:
        self.check = findings["question_text"]
        self.asked = asked
        self._known: dict[int, tuple[list[Thing], list[str]] | None] = {}

    def rows(self, ids: Sequence[str], texts: Sequence[str], lists: Iterator[list[int]]) -> None:
        """Check some rows; ``lists`` yields the sub-question numbers of each."""
        self.check.checked += len(texts)
        for row_id, text, numbers in zip(ids, texts, lists, strict=False):
            words = plain_words(text)
            stated: list[str] = []
            for number in numbers:
                needed = self._needed(number)
                if needed is None:  # facts that cannot be read are reported once, as such
                    stated += _NUMBER.findall(words)
                    continue
                stated += needed[1]
                if missing := _missing(words, needed[0]):
                    self.check.fail(f"{row_id}: {missing} is not in {text!r}")
            for found in _NUMBER.findall(words):
                if found not in stated:
                    self.check.fail(f"{row_id}: the number {found} in {text!r} is in no fact")

    def _needed(self, number: int) -> tuple[list[Thing], list[str]] | None:
        """Return the things that a text must mention for a sub-question, and the numbers that it may."""
        if number not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[number] = _things_of(self.asked[number])
        return self._known[number]


def plain_words(text: str) -> str:
    """Lower-case words with single signs between them turned to spaces, a space at both ends."""
    return f" {text.lower().translate(_TO_WORDS)} "


def unmentioned(text: str, facts: Iterable[Fact]) -> str:
    """Return the first term or number of the facts that a text does not name, or nothing."""
    return _missing(plain_words(text), [thing for fact in facts for thing in _fact_things(fact)])


def _missing(words: str, things: list[Thing]) -> str:
    for forms in things:
        for form in forms:
            if form in words:
                break
        else:
            return repr(forms[0].strip())
    return ""


def _things_of(asked: SubQuestion) -> tuple[list[Thing], list[str]] | None:
    try:
        facts, query = parse_facts(asked.facts), parse_query(asked.query)
    except ValueError:
        return None
    things = [thing for fact in facts for thing in _fact_things(fact)] + _query_things(query)
    return things, [str(fact.number) for fact in facts if fact.number is not None]


def _fact_things(fact: Fact) -> list[Thing]:
    if fact.number is not None:
        plural = load_vocabulary().plural_of.get(fact.term, fact.term)
        counted = (f" {fact.number} {fact.term if fact.number == 1 else plural} ",)
        return [counted, _change_forms(fact.operator)] if fact.operator else [counted]
    return [_verb_forms(fact.term) if fact.kind == "act" else (f" {fact.term} ",)]


def _query_things(query: Query) -> list[Thing]:
    if query.kind == "has":
        return [(f" {load_vocabulary().plural_of.get(query.term, query.term)} ", f" {query.term} ")]
    return [_verb_forms(query.term)] if query.kind == "state" and query.term != "in" else []


@cache
def _verb_forms(base: str) -> Thing:
    return next((_forms(verb) for verb in load_vocabulary().actions if verb.base == base), (f" {base} ",))


@cache
def _change_forms(operator: str) -> Thing:
    return tuple(form for verb in load_vocabulary().change_verbs[operator] for form in _forms(verb))


def _forms(verb: Verb) -> Thing:
    return tuple(f" {form} " for form in vars(verb).values())
