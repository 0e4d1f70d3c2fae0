"""Read first-order logic: clauses of rules, facts and queries, all made of atoms ``Symbol(argument, ...)``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ..world.vocabulary import load_vocabulary

_ATOM = re.compile(r"([A-Z][A-Za-z_]*)\(([^()]*)\)")
_SYMBOL = re.compile(r"[A-Z][a-z]*(?:_[a-z]+)*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_RESERVED = ("Has", "In", "State")


class Clause(NamedTuple):
    """One half of a rule.

    Attributes
    ----------
    kind : str
        ``entity`` (is a ...), ``state`` (is ...), ``unary`` (either: FOL writes both alike), ``in`` (a
        place), ``act`` (A acts on B), ``change`` or ``has``.
    who : str
        The individual the clause is about, ``A`` or ``B``; for ``act`` the actor.
    term : str
        Plain name of the entity, state, place, action or attribute.
    operator : str or None
        ``plus`` or ``minus`` of a change.
    amount : int or None
        Units of a change, or the count of ``has``.
    """

    kind: str
    who: str
    term: str
    operator: str | None = None
    amount: int | None = None


class Fact(NamedTuple):
    """One atom of a scope.

    ``kind`` is ``is`` (a kind or a state: the rules tell which), ``has``, ``change``, ``act`` or ``in``;
    ``who`` the individual, ``other`` the target of an action, ``term`` a plain name.
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


def parse_clause_fol(text: str) -> Clause:
    """Parse one half of a FOL rule, for example ``"Lose_Strong_fin(A, 1)"``."""
    fact = _fact(text, "AB", "FOL clause")
    if fact.kind == "act":
        if (fact.who, fact.other) != ("A", "B"):
            raise unreadable("FOL clause", text, "an action of A on B")
        return Clause("act", "A", fact.term)
    return Clause(
        "unary" if fact.kind == "is" else fact.kind, fact.who, fact.term, fact.operator, fact.number
    )


@lru_cache(maxsize=8192)
def parse_facts(text: str) -> tuple[Fact, ...]:
    """Parse the facts of one scope.

    Parameters
    ----------
    text : str
        Atoms about ``x`` and ``y`` joined by ``" & "``, for example ``"Chase(y, x) & Tiny_cat(x)"``.

    Returns
    -------
    tuple of Fact

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
        return Query("has", who, _term(args[1], "query", text))
    if name == "In" and args[1:] == ["?"] and who:
        return Query("in", who)
    if name == "State" and len(args) == 3 and args[1] == "?" and who:
        return Query("state", who, _term(args[2], "query", text))
    raise unreadable("query", text, "Has(x, Attribute, ?), In(x, ?), State(x, ?, Action) or State(x, ?, In)")


@lru_cache(maxsize=1)
def _operators() -> dict[str, str]:
    """Operator of each change verb, by base form."""
    words = load_vocabulary()
    return {
        verb.base: sign for sign, forms in (("minus", words.minus), ("plus", words.plus)) for verb in forms
    }


def _fact(text: str, individuals: str, what: str) -> Fact:
    name, args = _atom(text, what)
    people = [arg for arg in args if arg in individuals and len(arg) == 1]
    if name in _RESERVED:
        if name == "Has" and len(args) == 3 and args[:1] == people:
            number = whole_number(args[2], what, text)
            return Fact("has", args[0], _term(args[1], what, text), None, None, number)
        if name == "In" and len(args) == 2 and args[:1] == people:
            return Fact("in", args[0], _term(args[1], what, text))
    elif len(args) == 1 and people:
        return Fact("is", args[0], _term(name, what, text))
    elif len(args) == 2 and people == args:
        if args[0] == args[1]:
            raise unreadable(what, text, "an action between two different individuals")
        return Fact("act", args[0], _term(name, what, text), args[1])
    elif len(args) == 2 and args[:1] == people:
        verb, _, attribute = name.partition("_")
        operator = _operators().get(verb.lower())
        if operator is not None:
            amount = whole_number(args[1], what, text)
            return Fact("change", args[0], _term(attribute, what, text), None, operator, amount)
    a, b = individuals[0], individuals[1]
    shapes = f"Kind({a}), Verb({a}, {b}), In({a}, Place), Has({a}, Attribute, 3) or Lose_Attribute({a}, 3)"
    raise unreadable(what, text, shapes)


def _atom(text: str, what: str) -> tuple[str, list[str]]:
    match = _ATOM.fullmatch(text)
    if match is None:
        raise unreadable(what, text, "Symbol(argument, ...)")
    return match[1], match[2].split(", ")


def _term(symbol: str, what: str, text: str) -> str:
    """Turn ``Strong_horn`` into ``strong horn``."""
    if not _SYMBOL.fullmatch(symbol):
        raise unreadable(what, text, f"a symbol like Strong_horn, not {symbol!r}")
    return symbol[0].lower() + symbol[1:].replace("_", " ")


def whole_number(digits: str, what: str, text: str) -> int:
    """Read a number without sign, leading zeros or decimals."""
    if not _NUMBER.fullmatch(digits):
        raise unreadable(what, text, f"a plain whole number below 1,000,000,000, not {digits!r}")
    return int(digits)


def unreadable(what: str, text: object, expected: str) -> ValueError:
    """Return the error for a text that does not fit the grammar."""
    return ValueError(f"cannot read the {what} {text!r}: expected {expected}")
