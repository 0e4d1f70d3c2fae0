"""Read rule texts back into typed parts: the inverse of the renderer, written without it.

A rule is a premise and a conclusion, each one clause; `fol` and `english` read the clauses of the two languages, this
module joins them. Every function returns parts or raises `ValueError` naming the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..spec import ROLES
from .english import parse_conclusion_nl, parse_premise_nl
from .fol import Fact, parse_clause_fol, unreadable

FOL_ARROW = " => "
NL_COMMA = ", "
RULE_KINDS = {
    "entity2attr": (("entity", "is"), ("has",)),
    "attrchange2attr": (("change",), ("change",)),
    "action2env": (("act",), ("in",)),
    "action2attr": (("act",), ("change",)),
    "action2state": (("act",), ("state", "is")),
    "env2state": (("in",), ("state", "is")),
    "state2attr": (("state", "is"), ("change",)),
}
"""Kinds of premise and conclusion by rule type."""
PREMISE_COLUMN = {
    "entity2attr": "entity",
    "attrchange2attr": "trigger_attribute",
    "action2env": "action",
    "action2attr": "action",
    "action2state": "action",
    "env2state": "environment",
    "state2attr": "state",
}
"""Column of the premise's term by rule type."""
CONCLUSION_COLUMN = dict.fromkeys(RULE_KINDS, "attribute") | {
    "action2env": "environment",
    "action2state": "state",
    "env2state": "state",
}
"""Column of the conclusion's term by rule type."""
CONCLUSION_ABOUT = {"action2env": "B", "action2attr": "AB", "action2state": "AB"}
"""Who a conclusion may be about; A where the type is not listed."""
WITH_ROLE = ("action2attr", "action2state")
"""Rule types that say whose change or state it is; only a target ever enters a place."""


@dataclass(frozen=True)
class ParsedRule:
    """The typed parts of a rule, named as the columns of the rule table."""

    type: str
    entity: str | None = None
    action: str | None = None
    role: str | None = None
    environment: str | None = None
    state: str | None = None
    trigger_attribute: str | None = None
    trigger_operator: str | None = None
    attribute: str | None = None
    operator: str | None = None
    amount: int | None = None


def parse_rule_fol(text: str) -> ParsedRule:
    """Parse a rule in first-order logic.

    Parameters
    ----------
    text : str
        For example ``"Tiny_cat(A) => Has(A, Strong_horn, 14)"``.

    Returns
    -------
    ParsedRule

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar.
    """
    premise, conclusion = halves_fol(text)
    return _join(parse_clause_fol(premise), parse_clause_fol(conclusion), text)


def parse_rule_nl(text: str) -> ParsedRule:
    """Parse a rule in English.

    Parameters
    ----------
    text : str
        For example ``"If A is a tiny cat, it has 14 strong horns."``.

    Returns
    -------
    ParsedRule

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar, wrong articles, plurals and prepositions included.
    """
    premise, conclusion = halves_nl(text)
    return _join(parse_premise_nl(premise), parse_conclusion_nl(conclusion), text)


def halves_fol(text: str) -> tuple[str, str]:
    """Return premise and conclusion of a rule in first-order logic, as the rule table's columns write them.

    Raises
    ------
    ValueError
        If they are not joined by one arrow; the clauses themselves are not read.
    """
    halves = text.split(FOL_ARROW)
    if len(halves) != 2:
        raise unreadable("FOL rule", text, "premise and conclusion joined by one ' => '")
    return halves[0], halves[1]


def halves_nl(text: str) -> tuple[str, str]:
    """Return premise and conclusion of a rule in English, as the rule table's columns write them.

    Raises
    ------
    ValueError
        If it is not ``If <premise>, <conclusion>.``; the clauses themselves are not read.
    """
    halves = text.split(NL_COMMA)
    if len(halves) != 2 or not text.startswith("If ") or not text.endswith("."):
        raise unreadable("rule", text, "'If <premise>, <conclusion>.' with one comma")
    return halves[0][3:], halves[1][:-1]


def type_of_rule(premise: Fact, conclusion: Fact, text: str) -> str:
    """Return the type of the rule that two clauses make.

    Raises
    ------
    ValueError
        If they make none; ``text`` is named.
    """
    fitting = [n for n, k in RULE_KINDS.items() if premise.kind in k[0] and conclusion.kind in k[1]]
    if not fitting:
        shape = f"{premise.kind} => {conclusion.kind}"
        raise unreadable("rule", text, f"one of the seven rule types, not {shape}")
    (name,) = fitting
    about = CONCLUSION_ABOUT.get(name, "A")
    if premise.who != "A":
        raise unreadable("rule", text, "a premise about A")
    if conclusion.who not in about:
        raise unreadable("rule", text, f"a conclusion about {about}")
    if premise.kind == "change" and premise.number != 1:
        raise unreadable("rule", text, "a premise of 1 unit (effects are per unit)")
    return name


def _join(premise: Fact, conclusion: Fact, text: str) -> ParsedRule:
    rule_type = type_of_rule(premise, conclusion, text)
    parts: dict[str, str | int | None] = {
        PREMISE_COLUMN[rule_type]: premise.term,
        "trigger_operator": premise.operator,
        CONCLUSION_COLUMN[rule_type]: conclusion.term,
        "operator": conclusion.operator,
        "amount": conclusion.number,
    }
    if rule_type in WITH_ROLE:
        parts["role"] = ROLES["AB".index(conclusion.who)]
    return ParsedRule(rule_type, **parts)  # type: ignore[arg-type]
