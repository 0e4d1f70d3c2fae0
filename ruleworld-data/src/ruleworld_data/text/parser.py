"""Read rule texts, facts and queries back into typed parts: the inverse of the renderer, written without it.

A rule is a premise and a conclusion, each one clause; `fol` and `english` read the clauses of the two languages, this
module joins them. Every function returns parts or raises `ValueError` naming the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from .english import parse_conclusion_nl, parse_premise_nl
from .fol import Clause, Fact, Query, parse_clause_fol, parse_facts, parse_query, unreadable

__all__ = [
    "Fact",
    "ParsedRule",
    "Query",
    "halves_fol",
    "halves_nl",
    "parse_facts",
    "parse_query",
    "parse_rule_fol",
    "parse_rule_nl",
]

FOL_ARROW = " => "
NL_COMMA = ", "


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
    return join(parse_clause_fol(premise), parse_clause_fol(conclusion), text)


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
    return join(parse_premise_nl(premise), parse_conclusion_nl(conclusion), text)


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


def join(premise: Clause, conclusion: Clause, text: str) -> ParsedRule:
    """Combine two clauses into a rule; ``text`` is named if they do not fit."""
    shape = (premise.kind, conclusion.kind)
    rule_type = RULE_SHAPES.get(shape)
    if rule_type is None:
        raise unreadable("rule", text, f"one of the seven rule types, not {shape[0]} => {shape[1]}")
    if premise.who != "A":
        raise unreadable("rule", text, "a premise about A")
    if conclusion.who not in CONCLUSION_ABOUT.get(rule_type, "A"):
        raise unreadable("rule", text, f"a conclusion about {CONCLUSION_ABOUT.get(rule_type, 'A')}")
    parts: dict[str, str | int | None] = {}
    if premise.kind == "change":
        if premise.amount != 1:
            raise unreadable("rule", text, "a premise of 1 unit (effects are per unit)")
        parts |= {"trigger_attribute": premise.term, "trigger_operator": premise.operator}
    else:
        parts[PREMISE_COLUMN[rule_type]] = premise.term
    if premise.kind == "act" and rule_type != "action2env":  # only a target ever enters a place
        parts["role"] = ROLE_OF[conclusion.who]
    if conclusion.kind in ("change", "has"):
        parts |= {"attribute": conclusion.term, "operator": conclusion.operator, "amount": conclusion.amount}
    else:
        parts["environment" if conclusion.kind == "in" else "state"] = conclusion.term
    return ParsedRule(rule_type, **parts)  # type: ignore[arg-type]


RULE_SHAPES = {
    ("entity", "has"): "entity2attr",
    ("unary", "has"): "entity2attr",
    ("change", "change"): "attrchange2attr",
    ("act", "in"): "action2env",
    ("act", "change"): "action2attr",
    ("act", "state"): "action2state",
    ("act", "unary"): "action2state",
    ("in", "state"): "env2state",
    ("in", "unary"): "env2state",
    ("state", "change"): "state2attr",
    ("unary", "change"): "state2attr",
}
"""Rule type by the kinds of its two clauses."""
CONCLUSION_ABOUT = {"action2env": "B", "action2attr": "AB", "action2state": "AB"}
"""Who a conclusion may be about; A where the type is not listed."""
PREMISE_COLUMN = {
    "entity2attr": "entity",
    "action2env": "action",
    "action2attr": "action",
    "action2state": "action",
    "env2state": "environment",
    "state2attr": "state",
}
ROLE_OF = {"A": "actor", "B": "target"}
