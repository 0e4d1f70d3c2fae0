"""Read rule texts back into typed parts: the inverse of the renderer, written without it.

A rule is a premise and a conclusion, each one clause; `fol` and `english` read the clauses of the two languages, this
module joins them. Every function returns parts or raises `ValueError` naming the text.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .english import parse_half_nl
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
    """What a rule type says: kinds of its clauses, whom the conclusion may be about, and the columns of its parts.

    ``columns`` has, for each column of the rule table that only some types have, the column of a `RuleBase`.
    """

    premise: tuple[str, ...]
    conclusion: tuple[str, ...]
    columns: dict[str, str]
    subject: str = "A"


_ACT, _STATE = {"action": "premise"}, {"state": "conclusion"}
_ATTRIBUTE, _ROLE = {"attribute": "conclusion"}, {"role": "mark"}
_TRIGGER = {"trigger_attribute": "premise", "trigger_operator": "mark"}
RULE_SHAPES = {
    "entity2attr": RuleShape(("entity", "is"), ("has",), {"entity": "premise"} | _ATTRIBUTE),
    "attrchange2attr": RuleShape(("change",), ("change",), _TRIGGER | _ATTRIBUTE),
    "action2env": RuleShape(("act",), ("in",), _ACT | {"environment": "conclusion"}, "B"),
    "action2attr": RuleShape(("act",), ("change",), _ACT | _ROLE | _ATTRIBUTE, "AB"),
    "action2state": RuleShape(("act",), ("state", "is"), _ACT | _ROLE | _STATE, "AB"),
    "env2state": RuleShape(("in",), ("state", "is"), {"environment": "premise"} | _STATE),
    "state2attr": RuleShape(("state", "is"), ("change",), {"state": "premise"} | _ATTRIBUTE),
    "place_state2attr": RuleShape(
        ("both",), ("change",), {"environment": "premise", "state": "state"} | _ATTRIBUTE
    ),
    "count2state": RuleShape(("count",), ("state", "is"), _TRIGGER | _STATE),
    "exception": RuleShape(
        ("but",), ("instead",), {"state": "premise", "entity": "entity", "environment": "place"} | _ATTRIBUTE
    ),
}


def halves_fol(text: str) -> tuple[str, str]:
    """Return premise and conclusion of a rule in logic, as the rule table's columns write them; neither is read.

    A ValueError if they are not joined by one arrow.
    """
    halves = text.split(FOL_ARROW)
    if len(halves) != 2:
        raise unreadable("FOL rule", text, "premise and conclusion joined by one ' => '")
    return halves[0], halves[1]


def halves_nl(text: str) -> tuple[str, str]:
    """Return the same of a rule in English; a ValueError if it is not as in ``If <premise>, <conclusion>.``."""
    for start, middle, end in SENTENCES:
        halves = text.removeprefix(start).removesuffix(end).split(middle)
        if text.startswith(start) and text.endswith(end) and len(halves) == 2:
            if start:
                return halves[0], halves[1]
            # The clause that began the sentence loses its capital; letters that stand for creatures keep theirs.
            letter = re.match("[ABXY] (?!creature|being)", halves[0])
            return halves[1], halves[0] if letter else halves[0][:1].lower() + halves[0][1:]
    raise unreadable("rule", text, "'If <premise>, <conclusion>.' with one comma")


def type_of_rule(premise: Fact, conclusion: Fact, text: str) -> str:
    """Return the type of the rule that two clauses make; a ValueError that names ``text`` if they make none."""
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


Reader = Callable[[str], Fact]
READERS: dict[str, tuple[Callable[[str], tuple[str, str]], Reader, Reader]] = {
    "fol": (halves_fol, parse_premise_fol, parse_conclusion_fol),
    "nl": (halves_nl, partial(parse_half_nl, "premise"), partial(parse_half_nl, "conclusion")),
}
"""What cuts a rule in two, and what reads the halves."""


def parse_rule(form: str, text: str) -> tuple[str, Fact, Fact]:
    """Return the type, the premise and the conclusion of a rule, ``"If A is a tiny cat, it has 14 strong horns."``.

    Parameters
    ----------
    form : {"fol", "nl"}
    text : str

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar, wrong articles, plurals and prepositions included.
    """
    cut, read_premise, read_conclusion = READERS[form]
    halves = cut(text)
    premise, conclusion = read_premise(halves[0]), read_conclusion(halves[1])
    return type_of_rule(premise, conclusion, text), premise, conclusion
