"""Expressions for the usual wording answer every question of ``words`` 0, and few of 1.

Facts and queries are read in logic, so what is left open is the wording of the rules alone.
"""

import re

import pytest
from ruleworld_data.spec import SUBTASKS, Dials

from ..brute_force import PLURALS, VERBS, BruteForce
from ..cases import question_table, rule_table

LOGIC = {
    r"it has (?P<n>\d+) (?P<things>.+)": "Has(A, {things}, {n})",
    r"(?P<who>[AB]) (?:will )?(?P<what>lose|drop|gain|get|receive)s? (?P<n>\d+) (?P<things>.+)": (
        "{what}_{things}({who}, {n})"
    ),
    r"A is (?:(?:[io]n |at )?(?:an?|the) )?(?P<what>(?!more ).+)": "{what}(A)",
    r"A (?P<does>\w+) B": "{does}(A, B)",
    r"(?P<who>[AB]) will be (?P<what>.+)": "{what}({who})",
    r"(?P<who>[AB]) will .+ the (?P<what>.+)": "Enter({who}, {what})",
}
USUAL = {many: one for one, many in PLURALS.items()} | {verb[1]: base for base, verb in VERBS.items()}


def in_logic(clause):
    """Return a clause of the usual wording in logic, None for another wording."""
    for form, logic in LOGIC.items():
        if match := re.fullmatch(form, clause):
            parts = match.groupdict()
            for name in parts.keys() - {"who", "n"}:
                *first, last = re.findall(r"\w+", parts[name])
                last = last if name == "what" else USUAL.get(last, last)
                parts[name] = "_".join([*first, last]).capitalize()
            return logic.format_map(parts)
    return None


@pytest.mark.parametrize(("words", "least", "most"), [(0.0, 1.0, 1.0), (0.1, 0.05, 0.5), (1.0, 0.0, 0.3)])
def test_one_wording_reads_all_questions_or_few(words, least, most):
    dials, right, asked = Dials(words=words), 0, 0
    texts = {rule["id"]: rule["nl"] for rule in rule_table(scale="tiny", dials=dials).to_pylist()}
    for row in (
        row for name in SUBTASKS for row in question_table(name, "test", "tiny", dials=dials).to_pylist()
    ):
        steps = [[step] for step in row["steps"]] if len(row["facts"]) > 1 else [row["steps"]]
        found = []
        for facts, query, part in zip(row["facts"], row["queries"], steps, strict=True):
            clauses = [re.fullmatch(r"If (.+?), (.+)\.", texts[i]) for step in part for i in step["rule_ids"]]
            rules = [[*map(in_logic, clause.groups())] for clause in clauses if clause]
            solver = BruteForce([" => ".join(rule) for rule in rules if all(rule)])
            found += solver.answers(facts, query)
        asked += 1
        right += found == row["answers"]
    assert asked == 550 and least <= right / asked <= most
