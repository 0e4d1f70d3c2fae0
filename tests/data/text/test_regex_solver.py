"""Expressions for the usual wording answer every question of ``words`` 0, and few of 1.

Facts and queries are read in logic, so what is left open is the wording of the rules alone.
"""

import re

import pytest
from ruleworld_data.spec import SUBTASKS, Dials

from ..cases import question_table, rule_table

SIGN = {"lose": -1, "drop": -1, "gain": 1, "get": 1, "receive": 1}
CHANGE = rf"([AB]) (?:will )?({'|'.join(SIGN)})s? (\d+) (.+)"
PREMISES = {"change": CHANGE, "is": r"(A) is (?:[io]n |at )?(?:an? |the )?(.+)", "act": r"(A) (\w+) B"}
CONCLUSIONS = {"has": r"(it) has (\d+) (.+)", "change": CHANGE, "is": r"([AB]) will (?:be |.+ the )(.+)"}


def stem(name):
    """One spelling for symbols, plurals and forms of verbs."""
    name = name.lower().replace("_", " ").replace("teeth", "tooth")
    return re.sub(r"(?<=\w\w)(?:ies|ae|es|s|y|v|f|e|a)+$", "", name)


def read(forms, clause):
    """Return the kind of a clause and its parts, whom it is about first; None for another wording."""
    found = ((kind, re.fullmatch(form, clause)) for kind, form in forms.items())
    return next(((kind, match.groups()) for kind, match in found if match), None)


def answer(rules, facts, query):
    """Fire each rule once, for whom its premise holds; return what the query asks for, stemmed."""
    true, counts, left = set(), {}, list(rules)
    for fact in facts.split(" & "):
        if stated := re.fullmatch(r"Has\(x, (\w+), (\d+)\)", fact):
            counts[stem(stated[1])] = int(stated[2])
        elif change := re.fullmatch(r"([A-Z][a-z]+)_(\w+)\(x, (\d+)\)", fact):
            true.add(("x", SIGN[change[1].lower()], stem(change[2]), int(change[3])))
        else:
            name, *who = re.findall(r"\w+", fact)
            true.add((*who, stem(name)))
    wanted, last, fired = stem(re.sub(r"Has\(x, (\w+), \?\)", r"\1", query)), {}, True
    while fired:
        fired = False
        for rule in list(left):
            (kind, premise), (then, (about, *parts)) = rule
            for who, *known in list(true):
                times, other = 1, "y" if who == "x" else "x"
                if kind == "change":
                    fits = known[:2] == [SIGN[premise[1]], stem(premise[3])]
                    times = known[-1] if fits else 1
                elif kind == "is":
                    fits = known == [stem(premise[1])]
                else:
                    fits = known == [other, stem(premise[1])]
                if not fits:
                    continue
                who, fired = other if about == "B" else who, True
                left = [r for r in left if r is not rule]
                if then == "is":
                    true.add((who, stem(parts[0])))
                    last[who] = stem(parts[0])
                elif who == "x" and then == "has":
                    counts[stem(parts[1])] = counts.get(stem(parts[1]), 0) + int(parts[0])
                elif who == "x":
                    sign, amount, name = SIGN[parts[0]], int(parts[1]) * times, stem(parts[2])
                    true.add((who, sign, name, amount))
                    counts[name] = counts.get(name, 0) + sign * amount
                break
    return str(counts.get(wanted)) if "Has" in query else last.get("x")


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
            rules = [(read(PREMISES, c[1]), read(CONCLUSIONS, c[2])) for c in clauses if c]
            found.append(answer([rule for rule in rules if all(rule)], facts, query))
        asked += 1
        right += found == [a if a.isdigit() else stem(a) for a in row["answers"]]
    assert asked == 550 and least <= right / asked <= most
