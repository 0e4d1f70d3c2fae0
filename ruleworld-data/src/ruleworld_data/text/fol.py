"""Read first-order logic: clauses of rules, facts and queries, all made of atoms ``Symbol(argument, ...)``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ..world.vocabulary import load_vocabulary, term

_ATOM = re.compile(r"([A-Z][A-Za-z_]*)\(([^()]*)\)")
_SYMBOL = re.compile(r"[A-Z][a-z]*(?:_[a-z]+)*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class Fact(NamedTuple):
    """One atom: a fact of a scope, or one half of a rule.

    Attributes
    ----------
    kind : str
        ``is`` (a kind or a state: FOL writes both alike; English says ``entity`` or ``state``), ``has``, ``change``,
        ``act`` or ``in`` (a place).
    who : str
        The individual it is about, ``x`` or ``y``, in rules ``A`` or ``B``; for ``act`` the actor.
    term : str
        Plain name of the entity, state, place, action or attribute.
    other : str or None
        The target of an action.
    operator : str or None
        ``plus`` or ``minus`` of a change.
    number : int or None
        Units of a change, or the count of ``has``.
    """

    kind: str
    who: str
    term: str
    other: str | None = None
    operator: str | None = None
    number: int | None = None


class Query(NamedTuple):
    """What a scope asks: ``has`` (final count of attribute ``term``), ``in`` or ``state``.

    For ``state``, ``term`` names the cause: an action, or ``in`` for the environment.
    """

    kind: str
    who: str
    term: str = ""


def parse_clause_fol(text: str) -> Fact:
    """Parse one half of a FOL rule, for example ``"Lose_Strong_fin(A, 1)"``."""
    clause = _fact(text, "AB", "FOL clause")
    if clause.kind == "act" and clause.who != "A":
        raise unreadable("FOL clause", text, "an action of A on B")
    return clause


@lru_cache(maxsize=8192)
def parse_facts(text: str) -> tuple[Fact, ...]:
    """Parse the facts of one scope: atoms about ``x`` and ``y``, for example ``"Chase(y, x) & Tiny_cat(x)"``.

    Raises
    ------
    ValueError
        If an atom does not parse.
    """
    return tuple(_fact(atom, "xy", "fact") for atom in text.split(" & "))


@lru_cache(maxsize=8192)
def parse_query(text: str) -> Query:
    """Parse a query: ``Has(x, Mineral_fur, ?)``, ``In(x, ?)``, ``State(x, ?, Chase)`` or ``State(x, ?, In)``.

    Raises
    ------
    ValueError
        If the text is none of these.
    """
    name, args = _atom(text, "query")
    who = args[0] if args[0] in ("x", "y") else None
    if name == "Has" and len(args) == 3 and args[2] == "?" and who:
        return Query("has", who, _plain(args[1], "query", text))
    if name == "In" and args[1:] == ["?"] and who:
        return Query("in", who)
    if name == "State" and len(args) == 3 and args[1] == "?" and who:
        return Query("state", who, _plain(args[2], "query", text))
    raise unreadable("query", text, "Has(x, Attribute, ?), In(x, ?), State(x, ?, Action) or State(x, ?, In)")


@lru_cache(maxsize=1)
def _operators() -> dict[str, str]:
    """Operator of each change verb, by base form."""
    verbs = load_vocabulary().change_verbs.items()
    return {verb.base: operator for operator, forms in verbs for verb in forms}


def _fact(text: str, individuals: str, what: str) -> Fact:
    a, b = tuple(individuals)
    name, args = _atom(text, what)
    who, rest = args[0], args[1:]
    if who in (a, b):
        if name == "Has" and len(rest) == 2 and rest[0] not in (a, b):
            number = whole_number(rest[1], what, text)
            return Fact("has", who, _plain(rest[0], what, text), number=number)
        if name == "In" and len(rest) == 1 and rest[0] not in (a, b):
            return Fact("in", who, _plain(rest[0], what, text))
        if name not in ("Has", "In", "State"):
            if not rest:
                return Fact("is", who, _plain(name, what, text))
            if rest in ([a], [b]):
                if rest == [who]:
                    raise unreadable(what, text, "an action between two different individuals")
                return Fact("act", who, _plain(name, what, text), rest[0])
            verb, _, attribute = name.partition("_")
            operator = _operators().get(verb.lower())
            if len(rest) == 1 and operator is not None:
                number = whole_number(rest[0], what, text)
                return Fact("change", who, _plain(attribute, what, text), None, operator, number)
    shapes = f"Kind({a}), Verb({a}, {b}), In({a}, Place), Has({a}, Attribute, 3) or Lose_Attribute({a}, 3)"
    raise unreadable(what, text, shapes)


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
