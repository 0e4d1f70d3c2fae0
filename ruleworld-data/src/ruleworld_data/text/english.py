"""Read the English halves of rules: the clauses of `fol`, with articles, plurals, verb forms and prepositions."""

from __future__ import annotations

import re
from functools import lru_cache

from ..world.vocabulary import article, load_vocabulary
from .fol import Clause, unreadable, whole_number

_NAME = re.compile(r"[a-z]+(?: [a-z]+)*")
_SMALL = frozenset({"a", "an", "the", "in", "on", "at"})


def parse_premise_nl(text: str) -> Clause:
    """Parse what follows ``If``, for example ``"A is a tiny cat"``."""
    words = _lexicon()
    who, _, rest = text.partition(" ")
    verb, _, object_ = rest.partition(" ")
    if who == "A" and object_:
        if verb == "is":
            return _being(object_, text)
        if verb in words.operator_of_third:
            name, _, amount = _things(object_, text)
            return Clause("change", "A", name, words.operator_of_third[verb], amount)
        if rest.endswith(" B") and rest[:-2] in words.action_of_third:
            return Clause("act", "A", words.action_of_third[rest[:-2]])
    raise unreadable(
        "premise", text, "'A is ...', 'A loses 1 ...' or 'A <verb>s B' with a verb of the vocabulary"
    )


def parse_conclusion_nl(text: str) -> Clause:
    """Parse what follows the comma, for example ``"it has 14 strong horns"``, without the full stop."""
    who, _, rest = text.partition(" ")
    verb, _, object_ = rest.partition(" ")
    if who == "it" and verb == "has":
        return Clause("has", "A", *_things(object_, text))
    if who in ("A", "B") and verb == "will":
        return _future(who, object_, text)
    raise unreadable("conclusion", text, "'it has ...', 'A will ...' or 'B will ...'")


def _being(rest: str, text: str) -> Clause:
    if rest in _lexicon().place:
        return Clause("in", "A", _lexicon().place[rest])
    word, _, name = rest.partition(" ")
    if word in ("a", "an") and name:
        if word != article(name):
            raise unreadable("clause", text, f"the article {article(name)!r} before {name!r}")
        return Clause("entity", "A", name)
    return Clause("state", "A", _plain(rest, text))


def _future(who: str, rest: str, text: str) -> Clause:
    words = _lexicon()
    verb, _, object_ = rest.partition(" ")
    if verb == "be":
        return Clause("state", who, _plain(object_, text))
    if verb == "enter":
        if object_ not in words.goal:
            raise unreadable("clause", text, "'enter' and a place of the vocabulary with its article")
        return Clause("in", who, words.goal[object_])
    if verb not in words.operator_of_base:
        raise unreadable("clause", text, f"'will' and one of be, enter, {', '.join(words.operator_of_base)}")
    name, _, amount = _things(object_, text)
    return Clause("change", who, name, words.operator_of_base[verb], amount)


def _plain(name: str, text: str) -> str:
    if not _NAME.fullmatch(name) or name.split()[0] in _SMALL:
        raise unreadable("clause", text, "a lower-case term such as 'deeply hungry'")
    return name


def _things(phrase: str, text: str) -> tuple[str, None, int]:
    """Split ``"2 mineral furs"`` into the attribute, no operator, and the number."""
    number, _, name = phrase.partition(" ")
    amount = whole_number(number, "clause", text)
    attribute = name if amount == 1 else _lexicon().singular.get(name)
    if attribute is None or attribute not in _lexicon().attributes:
        form = "singular" if amount == 1 else "plural"
        raise unreadable("clause", text, f"the {form} of a known attribute after {number}")
    return attribute, None, amount


class _Lexicon:
    """The word forms needed to read English back."""

    def __init__(self) -> None:
        words = load_vocabulary()
        self.singular = dict(zip(words.attribute_plurals, words.attributes, strict=True))
        self.attributes = frozenset(words.attributes)
        self.action_of_third = {verb.third: verb.base for verb in words.actions}
        self.place = {f"{p.preposition} {p.article} {p.name}": p.name for p in words.environments}
        self.goal = {f"{p.article} {p.name}": p.name for p in words.environments}
        verbs = {"minus": words.minus, "plus": words.plus}
        self.operator_of_base = {verb.base: sign for sign, forms in verbs.items() for verb in forms}
        self.operator_of_third = {verb.third: sign for sign, forms in verbs.items() for verb in forms}


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    return _Lexicon()
