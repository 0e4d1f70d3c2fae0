"""Read the English halves of rules: the clauses of `fol`, with articles, plurals, verb forms and prepositions."""

from __future__ import annotations

import re
from functools import cache

from ..spec import OPERATORS
from ..world.vocabulary import article, load_vocabulary
from .fol import Fact, unreadable, whole_number

_NAME = re.compile(r"[a-z]+(?: [a-z]+)*")
COMPARED = {"has fewer than ": OPERATORS[0], "has more than ": OPERATORS[1]}
"""How a threshold begins, and its operator."""
_SMALL = frozenset({"a", "an", "the", "in", "on", "at", "and"})


def parse_premise_nl(text: str) -> Fact:
    """Parse what follows ``If``, for example ``"A is a tiny cat"``."""
    words = _lexicon()
    who, _, rest = text.partition(" ")
    verb, _, object_ = rest.partition(" ")
    if who == "A" and object_:
        if verb == "is":
            return _being(object_, text, words)
        if verb in words.operator_of_third:
            return _change("A", words.operator_of_third[verb], object_, text, words)
        for compared, operator in COMPARED.items():
            if rest.startswith(compared):
                things = rest.removeprefix(compared)
                return _change("A", operator, things, text, words)._replace(kind="count")
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
        return _change("A", None, rest, text, words)._replace(kind="has")
    if who not in ("A", "B") or auxiliary != "will":
        raise unreadable("conclusion", text, "'it has ...', 'A will ...' or 'B will ...'")
    verb, _, object_ = rest.partition(" ")
    if verb == "be":
        return Fact("state", who, _plain(object_, text))
    if rest in words.goal:
        return Fact("in", who, words.goal[rest])
    if verb not in words.operator_of_base:
        known = f"'will' and one of be, {', '.join(words.operator_of_base)}, or how one enters a known place"
        raise unreadable("clause", text, f"{known}: 'enter the desert'")
    things = f"0 {object_[3:]}" if object_.startswith("no ") else object_.removesuffix(" instead")
    fact = _change(who, words.operator_of_base[verb], things, text, words)
    return fact if things == object_ else fact._replace(kind="instead")


def is_known(fact: Fact) -> bool:
    """Whether the vocabulary has the kind or the state that a clause names; it may be any lower-case words."""
    names = _lexicon().names
    kind_or_state = fact.term if fact.kind in ("entity", "state", "but") else None
    return all(name in names for name in (kind_or_state, fact.state, fact.entity) if name)


def _being(rest: str, text: str, words: _Lexicon) -> Fact:
    general, but, guard = rest.partition(" but is ")
    if but:
        state, _, kind = general.partition(" and is ")
        parts = [_being(part, text, words) for part in (state, kind, guard) if part]
        named = {part.kind: part.term for part in parts}
        if [*named] not in (["state", "entity"], ["state", "in"], ["state", "entity", "in"]):
            raise unreadable(
                "clause", text, "a state, and a kind, a place, or a kind and then a place after 'but'"
            )
        return Fact("but", "A", named["state"], entity=named.get("entity"), place=named.get("in"))
    where, both, state = rest.partition(" and is ")
    if where in words.place and both:
        return Fact("both", "A", words.place[where], state=_plain(state, text))
    if rest in words.place:
        return Fact("in", "A", words.place[rest])
    word, _, name = rest.partition(" ")
    if word in ("a", "an") and name:
        if word != article(name):
            raise unreadable("clause", text, f"the article {article(name)!r} before {name!r}")
        return Fact("entity", "A", name)
    return Fact("state", "A", _plain(rest, text))


def _plain(name: str, text: str) -> str:
    if not _NAME.fullmatch(name) or not _SMALL.isdisjoint(name.split()):
        raise unreadable("clause", text, "a lower-case term such as 'deeply hungry'")
    return name


def _change(who: str, operator: str | None, things: str, text: str, words: _Lexicon) -> Fact:
    """Read ``"2 mineral furs"`` as a change by so many."""
    digits, _, name = things.partition(" ")
    number = whole_number(digits, "clause", text)
    attribute = name if number == 1 else words.singular.get(name)
    if attribute is None or attribute not in words.attributes:
        form = "singular" if number == 1 else "plural"
        raise unreadable("clause", text, f"the {form} of a known attribute after {digits}")
    return Fact("change", who, attribute, None, operator, number)


class _Lexicon:
    """The word forms needed to read English back."""

    def __init__(self) -> None:
        words = load_vocabulary()
        self.names = {*words.entities, *words.states}
        self.attributes = words.plural_of
        self.singular = {plural: name for name, plural in self.attributes.items()}
        self.action_of_third = {verb.third: verb.base for verb in words.actions}
        self.place = {
            f"{place.preposition} {place.article} {place.name}": place.name for place in words.environments
        }
        self.goal = {words.entering(place).base: place.name for place in words.environments}
        changes = [(verb, operator) for operator, verbs in words.change_verbs.items() for verb in verbs]
        self.operator_of_base = {verb.base: operator for verb, operator in changes}
        self.operator_of_third = {verb.third: operator for verb, operator in changes}


@cache
def _lexicon() -> _Lexicon:
    return _Lexicon()
