"""Read first-order logic: clauses of rules, facts and queries, all made of atoms ``Symbol(argument, ...)``."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from ..spec import OPERATORS
from ..world.vocabulary import load_vocabulary, term

AND = " & "
COMPARED = "Fewer", "More"
"""How a threshold begins, by operator."""
INSTEAD = "Instead_"
"""How the conclusion of an exception begins."""
_ATOM = re.compile(r"([A-Z][A-Za-z_]*)\(([^()]*)\)")
_SYMBOL = re.compile(r"[A-Z][a-z]*(?:_[a-z]+)*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
OPERATIONS = ("Sum", "Difference", "Highest", "Most")
"""What may be asked of several counts: their total, the highest less the lowest, the highest, and whose that is."""
_OPERATION = re.compile(rf"({'|'.join(OPERATIONS)})\((.*)\)")
_INDIVIDUAL = re.compile(r"\((?:[^()]*, )?[xy]([1-8]?)[,)]")


class Fact(NamedTuple):
    """One atom: a fact of a scope, or one half of a rule.

    Its kind is ``is`` (a kind or a state: FOL writes both alike; English says ``entity`` or ``state``), ``has``,
    ``change``, ``act`` or ``in`` (a place). In premises also ``both`` (a place and a state), ``count`` (a number of
    things, more or fewer than so many) and ``but`` (a state, and who or where is excepted); in conclusions also
    ``instead`` (the change that an exception makes of another). What a comparison comes to is ``sum``, ``difference``
    or ``highest`` with a number, or ``most`` with the kind as its term, each about nobody.
    """

    kind: str
    who: str  # x or y, x1 or y1 and so on in the parts of a comparison, in rules A or B; for `act` the actor
    term: str  # plain name of the entity, state, place, action or attribute
    other: str | None = None  # the target of an action
    operator: str | None = None  # plus or minus of a change; of `count` for more and fewer
    number: int | None = None  # units of a change, the count of `has`, or the threshold of `count`
    state: str | None = None  # that of `both`
    entity: str | None = None  # whom `but` excepts: this kind, or this kind in this place
    place: str | None = None  # where it does


class Query(NamedTuple):
    """What a scope asks: ``has`` (final count of attribute ``term``), ``in`` or ``state``.

    For ``state``, ``term`` names the cause: an action, or ``in`` for the environment. ``state_of_count`` is the state
    that the count of attribute ``term`` gives. ``sum``, ``difference``, ``highest`` and ``most`` compare the counts
    that their ``parts`` ask for, each of another individual; ``most`` asks for the kind of whoever has the highest.
    With ``changed`` the count must have changed, else there is no answer.
    """

    kind: str
    who: str
    term: str = ""
    parts: tuple[Query, ...] = ()
    changed: bool = False

    @property
    def counts(self) -> tuple[Query, ...]:
        """What is asked for one by one: the parts of a comparison, else the query itself."""
        return self.parts or (self,)


def parse_premise_fol(text: str) -> Fact:
    """Parse what stands before the arrow, for example ``"Desert(A)"`` or ``"Desert(A) & Deeply_hungry(A)"``."""
    clauses = [_fact(atom, ("A", "B"), "FOL clause") for atom in text.split(AND)]
    first, *others = clauses
    if text.startswith("Enter(") or (first.kind == "act" and first.who != "A"):
        raise unreadable("FOL clause", text, "a premise such as Desert(A), or an action of A on B")
    if not others:
        return first
    # A kind and a state are written alike.
    sorts = [("entity" if c.term in _words().kinds else c.kind) if c.who == "A" else "" for c in clauses]
    if sorts == ["in", "is"]:
        return Fact("both", "A", first.term, state=others[0].term)
    if sorts not in (["is", "entity"], ["is", "in"], ["is", "entity", "in"]):
        raise unreadable(
            "FOL clause", text, "a place and a state of A, or a state and its kind, its place or both"
        )
    guards = dict(zip(sorts[1:], (clause.term for clause in others), strict=True))
    return Fact("but", "A", first.term, entity=guards.get("entity"), place=guards.get("in"))


def parse_conclusion_fol(text: str) -> Fact:
    """Parse what stands after the arrow, for example ``"Lose_Strong_fin(A, 1)"``."""
    clause = _fact(text.removeprefix(INSTEAD), ("A", "B"), "FOL clause")
    if text.startswith(INSTEAD):
        if clause.kind != "change":
            raise unreadable("FOL clause", text, f"a change after {INSTEAD}")
        return clause._replace(kind="instead")
    if clause.kind == "in" and not text.startswith("Enter("):
        raise unreadable("FOL clause", text, f"Enter({clause.who}, Place)")
    return clause


@lru_cache(maxsize=8192)
def parse_facts(text: str) -> tuple[Fact, ...]:
    """Parse the facts of one scope: atoms about ``x`` and ``y``, for example ``"Chase(y, x) & Tiny_cat(x)"``.

    The parts of a comparison are about ``x1`` and ``y1``, ``x2`` and ``y2``, and so on.

    Raises
    ------
    ValueError
        If an atom does not parse.
    """
    numbers = [part[1] if (part := _INDIVIDUAL.search(atom)) else "" for atom in text.split(AND)]
    atoms = zip(text.split(AND), numbers, strict=True)
    return tuple(_fact(atom, (f"x{number}", f"y{number}"), "fact") for atom, number in atoms)


def parse_state(text: str) -> Fact:
    """Parse what a step concludes: one fact, or what a comparison comes to, ``"Sum(27)"`` or ``"Most(Tiny_cat)"``.

    Raises
    ------
    ValueError
        If the text is neither.
    """
    if match := _OPERATION.fullmatch(text):
        if match[1] == "Most":
            return Fact("most", "", _plain(match[2], "state", text))
        return Fact(match[1].lower(), "", "", number=whole_number(match[2], "state", text))
    facts = parse_facts(text)
    if len(facts) != 1:
        raise unreadable("state", text, "one fact")
    return facts[0]


@lru_cache(maxsize=8192)
def parse_query(text: str) -> Query:
    """Parse a query: ``Has(x, Mineral_fur, ?)``, ``In(x, ?)``, ``State(x, ?, Chase)`` or ``State(x, ?, In)``.

    ``State(x, ?, Has, Mineral_fur)`` asks for the state that a count gives, ``Changed(x, Mineral_fur, ?)`` for a count
    that changes, and ``Sum(Has(x1, Mineral_fur, ?), Has(x2, Neat_fin, ?))`` compares counts, as do ``Difference``,
    ``Highest``, ``Most``.

    Raises
    ------
    ValueError
        If the text is none of these.
    """
    if operation := _OPERATION.fullmatch(text):
        parts = tuple(parse_query(part) for part in re.split(r"(?<=\)), ", operation[2]))
        if (
            len(parts) < 2
            or {part.kind for part in parts} != {"has"}
            or len({p.who for p in parts}) < len(parts)
        ):
            raise unreadable("query", text, "counts of two individuals or more, as Has(x1, Attribute, ?)")
        return Query(operation[1].lower(), "", "", parts)
    name, args = _atom(text, "query")
    who = args[0] if re.fullmatch("[xy][1-8]?", args[0]) else None
    if name in ("Has", "Changed") and len(args) == 3 and args[2] == "?" and who:
        return Query("has", who, _plain(args[1], "query", text), changed=name == "Changed")
    if name == "In" and args[1:] == ["?"] and who:
        return Query("in", who)
    if name == "State" and len(args) == 3 and args[1] == "?" and who:
        return Query("state", who, _plain(args[2], "query", text))
    if name == "State" and len(args) == 4 and args[1:3] == ["?", "Has"] and who:
        return Query("state_of_count", who, _plain(args[3], "query", text))
    expected = (
        "Has(x, Attribute, ?), Changed(x, Attribute, ?), In(x, ?), State(x, ?, Action), State(x, ?, In), "
        "State(x, ?, Has, Attribute) or counts to compare, as in Sum(Has(x1, Attribute, ?), Has(x2, Attribute, ?))"
    )
    raise unreadable("query", text, expected)


class _Words:
    """The words that decide what an atom means: change verbs, places, kinds."""

    def __init__(self) -> None:
        words = load_vocabulary()
        self.operators = {
            verb.base: operator for operator, verbs in words.change_verbs.items() for verb in verbs
        }
        self.places = {place.name for place in words.environments}
        self.kinds = set(words.entities)


_words = cache(_Words)


def _fact(text: str, individuals: tuple[str, str], what: str) -> Fact:
    a, b = individuals
    name, args = _atom(text, what)
    if name == "Has" and a == "A" and len(args) == 2:  # rules of data 1.1 do not say whose
        args = [a, *args]
    who, rest = (args[0], args[1:]) if args else ("", [])
    if who in (a, b):
        if name == "Has" and len(rest) == 2 and rest[0] not in (a, b):
            number = whole_number(rest[1], what, text)
            return Fact("has", who, _plain(rest[0], what, text), number=number)
        if name == "Enter" and len(rest) == 1 and rest[0] not in (a, b):
            return Fact("in", who, _plain(rest[0], what, text))
        if name not in ("Has", "In", "Enter", "State"):
            if not rest:
                thing = _plain(name, what, text)
                return Fact("in" if thing in _words().places else "is", who, thing)
            if rest in ([a], [b]):
                if rest == [who]:
                    raise unreadable(what, text, "an action between two different individuals")
                return Fact("act", who, _plain(name, what, text), rest[0])
            verb, _, attribute = name.partition("_")
            operator = _words().operators.get(verb.lower())
            kind = "change"
            if operator is None and a == "A" and verb in COMPARED:
                kind, operator = "count", OPERATORS[COMPARED.index(verb)]
            if len(rest) == 1 and operator is not None:
                number = whole_number(rest[0], what, text)
                return Fact(kind, who, _plain(attribute, what, text), None, operator, number)
    place, has = f"Place({a})", f"Has({a}, Attribute, 3)"
    if a == "A":
        place = f"{place}, Enter({b}, Place)"
    raise unreadable(what, text, f"Kind({a}), Verb({a}, {b}), {place}, {has} or Lose_Attribute({a}, 3)")


def _atom(text: str, what: str) -> tuple[str, list[str]]:
    match = _ATOM.fullmatch(text)
    if match is None:
        raise unreadable(what, text, "Symbol(argument, ...)")
    return match[1], match[2].split(", ")


def _plain(symbol: str, what: str, text: str) -> str:
    """Turn ``Strong_horn`` into ``strong horn``."""
    if not _SYMBOL.fullmatch(symbol):
        raise unreadable(what, text, f"a symbol like Strong_horn, not {symbol!r}")
    return term(symbol)


def whole_number(digits: str, what: str, text: str) -> int:
    """Read a number without sign, leading zeros or decimals."""
    if not _NUMBER.fullmatch(digits):
        raise unreadable(what, text, f"a plain whole number below 1,000,000,000, not {digits!r}")
    return int(digits)


def unreadable(what: str, text: object, expected: str) -> ValueError:
    """Return the error for a text that does not fit the grammar."""
    return ValueError(f"cannot read the {what} {text!r}: expected {expected}")
