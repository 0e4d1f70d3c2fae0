"""Read the English halves of rules: the clauses of `fol`, with articles, plurals, verb forms and prepositions."""

from __future__ import annotations

import re
from functools import lru_cache

from ..world.vocabulary import article, load_vocabulary
from .fol import Fact, unreadable, whole_number

_NAME = re.compile(r"[a-z]+(?: [a-z]+)*")
_SMALL = frozenset({"a", "an", "the", "in", "on", "at"})


def parse_premise_nl(text: str) -> Fact:
    """Parse what follows ``If``, for example ``"A is a tiny cat"``."""
    words = _lexicon()
    who, _, rest = text.partition(" ")
    verb, _, object_ = rest.partition(" ")
    if who == "A" and object_:
        if verb == "is":
            return _being(object_, text)
        if verb in words.operator_of_third:
            return _change("A", words.operator_of_third[verb], object_, text)
        if rest.endswith(" B") and rest[:-2] in words.action_of_third:
            return Fact("act", "A", words.action_of_third[rest[:-2]], "B")
    raise unreadable(
        "premise", text, "'A is ...', 'A loses 1 ...' or 'A <verb>s B' with a verb of the vocabulary"
    )


def parse_conclusion_nl(text: str) -> Fact:
    """Parse what follows the comma, for example ``"it has 14 strong horns"``, without the full stop."""
    words = _lexicon()
    who, _, rest = text.partition(" ")
    auxiliary, _, rest = rest.partition(" ")
    if who == "it" and auxiliary == "has":
        return _change("A", None, rest, text)._replace(kind="has")
    if who not in ("A", "B") or auxiliary != "will":
        raise unreadable("conclusion", text, "'it has ...', 'A will ...' or 'B will ...'")
    verb, _, object_ = rest.partition(" ")
    if verb == "be":
        return Fact("state", who, _plain(object_, text))
    if verb == "enter":
        if object_ not in words.goal:
            raise unreadable("clause", text, "'enter' and a place of the vocabulary with its article")
        return Fact("in", who, words.goal[object_])
    if verb not in words.operator_of_base:
        raise unreadable("clause", text, f"'will' and one of be, enter, {', '.join(words.operator_of_base)}")
    return _change(who, words.operator_of_base[verb], object_, text)


def _being(rest: str, text: str) -> Fact:
    if rest in _lexicon().place:
        return Fact("in", "A", _lexicon().place[rest])
    word, _, name = rest.partition(" ")
    if word in ("a", "an") and name:
        if word != article(name):
            raise unreadable("clause", text, f"the article {article(name)!r} before {name!r}")
        return Fact("entity", "A", name)
    return Fact("state", "A", _plain(rest, text))


def _plain(name: str, text: str) -> str:
    if not _NAME.fullmatch(name) or name.split()[0] in _SMALL:
        raise unreadable("clause", text, "a lower-case term such as 'deeply hungry'")
    return name


def _change(who: str, operator: str | None, things: str, text: str) -> Fact:
    """Read ``"2 mineral furs"`` as a change by so many."""
    digits, _, name = things.partition(" ")
    number = whole_number(digits, "clause", text)
    attribute = name if number == 1 else _lexicon().singular.get(name)
    if attribute is None or attribute not in _lexicon().attributes:
        form = "singular" if number == 1 else "plural"
        raise unreadable("clause", text, f"the {form} of a known attribute after {digits}")
    return Fact("change", who, attribute, None, operator, number)


class _Lexicon:
    """The word forms needed to read English back."""

    def __init__(self) -> None:
        words = load_vocabulary()
        self.attributes = words.plural_of
        self.singular = {plural: name for name, plural in words.plural_of.items()}
        self.action_of_third = {verb.third: verb.base for verb in words.actions}
        self.place = {f"{p.preposition} {p.article} {p.name}": p.name for p in words.environments}
        self.goal = {f"{p.article} {p.name}": p.name for p in words.environments}
        verbs = [(verb, operator) for operator, forms in words.change_verbs.items() for verb in forms]
        self.operator_of_base = {verb.base: operator for verb, operator in verbs}
        self.operator_of_third = {verb.third: operator for verb, operator in verbs}


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    return _Lexicon()
