"""Does the English say what the facts say? Terms are looked for as whole words, counts next to what they count."""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from ..text import Fact, parse_facts, parse_query
from ..world import load_vocabulary
from ..world.names import other_names

_NUMBER = re.compile(r"\d+")
_TO_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}

Thing = tuple[str, ...]
"""One thing that a text must mention: all its forms, of which one must be there."""


def question_problems(text: str, scopes: Sequence[tuple[str, str]]) -> list[str]:
    """Say what a question does not mention of its facts and queries, and which of its numbers are in no fact."""
    words, problems = plain_words(text), []
    numbers = _NUMBER.findall(words)
    stated: list[str] = []
    for facts, query in scopes:
        try:
            things, known = _needed(facts, query)
        except ValueError:  # facts that cannot be read are reported once, as such
            stated += numbers
            continue
        stated += known
        if missing := _missing(words, things):
            problems.append(f"{missing} is not in {text!r}")
    return problems + [f"the number {n} in {text!r} is in no fact" for n in numbers if n not in stated]


def unmentioned(text: str, facts: Iterable[Fact]) -> str:
    """Return the first term or number of the facts that a text does not name, or nothing."""
    return _missing(plain_words(text), [thing for fact in facts for thing in _fact_things(fact)])


def plain_words(text: str) -> str:
    """Lower-case words with single signs between them, "s' " too, turned to spaces, a space at both ends."""
    return " " + text.lower().replace("' ", " ").translate(_TO_WORDS) + " "


def _missing(words: str, things: list[Thing]) -> str:
    for forms in things:
        if not any(f" {form} " in words for form in (*forms, *_others(forms))):
            return repr(forms[0])
    return ""


@lru_cache(maxsize=60_000)
def _others(forms: Thing) -> Thing:
    """Return what else a thing is called in worlds with other words."""
    number, _, name = forms[0].partition(" ")
    if not number.isdigit() and number != "no":
        return tuple(other for form in forms for other in other_names().get(form, ()))
    return tuple(f"{number} {other}" for other in other_names().get(name, ()))


@lru_cache(maxsize=60_000)
def _needed(facts: str, query: str) -> tuple[list[Thing], list[str]]:
    """Return the things that a text must mention, and the numbers that it may."""
    scope = parse_facts(facts)
    things = [thing for fact in scope for thing in _fact_things(fact)]
    for asked in parse_query(query).counts:
        if asked.kind in ("has", "state_of_count"):
            things.append((load_vocabulary().plural_of.get(asked.term, asked.term), asked.term))
        elif asked.kind == "state" and asked.term != "in":
            things.append(_verb_forms(asked.term))
    return things, [str(fact.number) for fact in scope if fact.number is not None]


def _fact_things(fact: Fact) -> list[Thing]:
    if fact.number is None:
        return [_verb_forms(fact.term) if fact.kind == "act" else (fact.term,)]
    amount = "no" if fact.number == 0 and fact.operator else fact.number
    counted = (
        f"{amount} {fact.term if fact.number == 1 else load_vocabulary().plural_of.get(fact.term, fact.term)}"
    )
    counted = counted.strip()  # a number of nothing, what a comparison comes to
    return [(counted,), _change_forms(fact.operator)] if fact.operator else [(counted,)]


@cache
def _verb_forms(base: str) -> Thing:
    forms = (tuple(vars(verb).values()) for verb in load_vocabulary().actions if verb.base == base)
    return next(forms, (base,))


@cache
def _change_forms(operator: str) -> Thing:
    return tuple(form for verb in load_vocabulary().change_verbs[operator] for form in vars(verb).values())
