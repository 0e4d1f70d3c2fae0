"""Read rule texts back into typed parts: the inverse of the renderer, written without it.

A rule is a premise and a conclusion, each one clause; `fol` and `english` read the clauses of the two languages, this
module joins them. Every function returns parts or raises `ValueError` naming the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from ..spec import ROLES
from .english import parse_conclusion_nl, parse_premise_nl
from .fol import Fact, parse_conclusion_fol, parse_premise_fol, unreadable

FOL_ARROW = " => "
NL_COMMA = ", "
SENTENCES = (
    ("If ", NL_COMMA, "."),
    ("Whenever ", NL_COMMA, "."),
    ("Suppose that ", "; then ", "."),
    ("", " once ", "."),
)
"""How premise and conclusion are joined in English; in the last one the conclusion comes first."""


class RuleShape(NamedTuple):
    """What a rule type says: kinds of clauses, columns of their terms, and whom the conclusion may be about."""

    premise: tuple[str, ...]
    conclusion: tuple[str, ...]
    premise_column: str
    conclusion_column: str
    subject: str = "A"

    @property
    def with_role(self) -> bool:
        """Whether the rule says whose change or state it is; only a target ever enters a place."""
        return self.subject == "AB"


RULE_SHAPES = {
    "entity2attr": RuleShape(("entity", "is"), ("has",), "entity", "attribute"),
    "attrchange2attr": RuleShape(("change",), ("change",), "trigger_attribute", "attribute"),
    "action2env": RuleShape(("act",), ("in",), "action", "environment", "B"),
    "action2attr": RuleShape(("act",), ("change",), "action", "attribute", "AB"),
    "action2state": RuleShape(("act",), ("state", "is"), "action", "state", "AB"),
    "env2state": RuleShape(("in",), ("state", "is"), "environment", "state"),
    "state2attr": RuleShape(("state", "is"), ("change",), "state", "attribute"),
    "place_state2attr": RuleShape(("both",), ("change",), "environment", "attribute"),
    "count2state": RuleShape(("count",), ("state", "is"), "trigger_attribute", "state"),
    "exception": RuleShape(("but",), ("instead",), "state", "attribute"),
}


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
    threshold: int | None = None


def parse_rule_fol(text: str) -> ParsedRule:
    """Parse a rule in first-order logic, such as ``"Tiny_cat(A) => Has(Strong_horn, 14)"``.

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar.
    """
    premise, conclusion = halves_fol(text)
    return join_halves(parse_premise_fol(premise), parse_conclusion_fol(conclusion), text)


def parse_rule_nl(text: str) -> ParsedRule:
    """Parse a rule in English, such as ``"If A is a tiny cat, it has 14 strong horns."``.

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar, wrong articles, plurals and prepositions included.
    """
    premise, conclusion = halves_nl(text)
    return join_halves(parse_premise_nl(premise), parse_conclusion_nl(conclusion), text)


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
    for start, middle, end in SENTENCES:
        halves = text.removeprefix(start).removesuffix(end).split(middle)
        if text.startswith(start) and text.endswith(end) and len(halves) == 2:
            return (halves[0], halves[1]) if start else (halves[1], _uncapitalised(halves[0]))
    raise unreadable("rule", text, "'If <premise>, <conclusion>.' with one comma")


def _uncapitalised(clause: str) -> str:
    """Take the capital from a clause that began a sentence; letters that stand for creatures keep theirs."""
    return clause if re.match("[ABXY] (?!creature|being)", clause) else clause[:1].lower() + clause[1:]


def type_of_rule(premise: Fact, conclusion: Fact, text: str) -> str:
    """Return the type of the rule that two clauses make.

    Raises
    ------
    ValueError
        If they make none; ``text`` is named.
    """
    fitting = [
        (name, shape)
        for name, shape in RULE_SHAPES.items()
        if premise.kind in shape.premise and conclusion.kind in shape.conclusion
    ]
    if not fitting:
        kinds = f"{premise.kind} => {conclusion.kind}"
        raise unreadable("rule", text, f"one of the ten rule types, not {kinds}")
    ((name, shape),) = fitting
    if premise.who != "A":
        raise unreadable("rule", text, "a premise about A")
    if conclusion.who not in shape.subject:
        raise unreadable("rule", text, f"a conclusion about {shape.subject}")
    if premise.kind == "change" and premise.number != 1:
        raise unreadable("rule", text, "a premise of 1 unit (effects are per unit)")
    return name


def join_halves(premise: Fact, conclusion: Fact, text: str) -> ParsedRule:
    """Return the typed parts of the rule that two clauses make; `ValueError` if they make none."""
    rule_type = type_of_rule(premise, conclusion, text)
    shape = RULE_SHAPES[rule_type]
    parts: dict[str, str | int | None] = {
        shape.premise_column: premise.term,
        "trigger_operator": premise.operator,
        shape.conclusion_column: conclusion.term,
        "operator": conclusion.operator,
        "amount": conclusion.number,
    }
    if premise.state is not None:
        parts["state"] = premise.state
    if premise.kind == "but":
        parts |= {"entity": premise.entity, "environment": premise.place}
    if premise.kind == "count":
        parts["threshold"] = premise.number
    if shape.with_role:
        parts["role"] = ROLES["AB".index(conclusion.who)]
    return ParsedRule(rule_type, **parts)  # type: ignore[arg-type]
