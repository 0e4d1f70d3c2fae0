"""Rules as code: written from the logic, read back to the same parts, and everything else refused unexecuted."""

from __future__ import annotations

import ast
import re

import pyarrow as pa
import pytest
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.spec import VERSIONS
from ruleworld_data.text import code_of, parse_rule_code
from ruleworld_data.text.code import rule_code, step_code

EXAMPLES = {
    "Tiny_cat(A) => Has(Strong_horn, 14)": 'if a.kind == "tiny cat": a.count["strong horn"] = 14',
    "Lose_Strong_fin(A, 1) => Drop_Mineral_scale(A, 2)": (
        'if a.loses("strong fin", 1): a.drop("mineral scale", 2)'
    ),
    "Attack(A, B) => Enter(B, Bridge)": 'if a.attacks(b): b.place = "bridge"',
    "Attack(A, B) => Get_Stormy_bead(A, 1)": 'if a.attacks(b): a.get("stormy bead", 1)',
    "Attack(A, B) => Completely_numb(B)": 'if a.attacks(b): b.states.add("completely numb")',
    "Bridge(A) => Deeply_hungry(A)": 'if a.place == "bridge": a.states.add("deeply hungry")',
    "Deeply_hungry(A) => Lose_Strong_fin(A, 1)": 'if "deeply hungry" in a.states: a.lose("strong fin", 1)',
    "Bridge(A) & Deeply_hungry(A) & Briefly_numb(A) => Lose_Strong_fin(A, 1)": (
        'if a.place == "bridge" and "deeply hungry" in a.states and "briefly numb" in a.states: '
        'a.lose("strong fin", 1)'
    ),
    "More_Strong_horn(A, 12) => Deeply_hungry(A)": (
        'if a.count["strong horn"] > 12: a.states.add("deeply hungry")'
    ),
    "Fewer_Strong_horn(A, 13) => Deeply_hungry(A)": (
        'if a.count["strong horn"] < 13: a.states.add("deeply hungry")'
    ),
}


@pytest.mark.parametrize(("fol", "code"), EXAMPLES.items())
def test_the_published_examples(fol, code):
    assert rule_code(fol) == code
    assert parse_rule_code(code)


# The grammar once more, independently: what a rule's columns say.
TERM = '"([a-z]+(?: [a-z]+)*)"'
HALVES = {
    "entity2attr": (rf"a\.kind == {TERM}", rf"a\.count\[{TERM}\] = (\d+)", "entity attribute amount"),
    "attrchange2attr": (
        r"a\.\w+s\(" + TERM + r", 1\)",
        rf"a\.\w+\({TERM}, (\d)\)",
        "trigger_attribute attribute amount",
    ),
    "action2env": (r"a\.\w+\(b\)", f"b.place = {TERM}", "environment"),
    "action2attr": (r"a\.\w+\(b\)", rf"[ab]\.\w+\({TERM}, (\d)\)", "attribute amount"),
    "action2state": (r"a\.\w+\(b\)", rf"[ab]\.states\.add\({TERM}\)", "state"),
    "env2state": (f"a.place == {TERM}", rf"a\.states\.add\({TERM}\)", "environment state"),
    "state2attr": (rf"{TERM} in a\.states", rf"a\.\w+\({TERM}, (\d)\)", "state attribute amount"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_is_written_and_read_back(version):
    table = rule_table("train", "tiny", version=version)
    codes = code_of(table, version).to_pylist()
    assert len(set(codes)) == len(table)
    for row, code in zip(table.to_pylist(), codes, strict=True):
        premise, conclusion, columns = HALVES[row["type"]]
        found = re.fullmatch(f"if {premise}: {conclusion}", code)
        assert found, code
        assert [*found.groups()] == [str(row[name]) for name in columns.split()]
        parts = vars(parse_rule_code(code))
        assert {name: row.get(name) for name in parts} == parts
    # Without its columns of halves, in pieces, and empty.
    assert code_of(table.select(["fol"])).to_pylist() == codes
    assert code_of(pa.concat_tables([table[:3], table[3:5]])).to_pylist() == codes[:5]
    assert code_of(table[:0]).to_pylist() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("subtask", ["multi_rule_3", "multi_hop_4"])
def test_steps_are_lines_of_python_with_the_step_s_numbers(subtask, version):
    for encoded in (False, True):
        table = question_table(subtask, "test", "tiny", version=version, encoded=encoded)
        for steps, lines in zip(table["steps"].to_pylist(), code_of(table).to_pylist(), strict=True):
            assert len(steps) == len(lines)
            for step, line in zip(steps, lines, strict=True):
                for piece in line.split("; "):
                    ast.parse(piece)
                assert re.findall(r"\d+", line) == re.findall(r"\d+", step["fol"])
    assert len(code_of(table[3:5])) == 2 and code_of(table[:0]).to_pylist() == []


def test_a_step_says_what_follows_and_the_sum():
    fol = "Lose_Strong_fin(x, 2) => Drop_Ivory_toe(x, 4); Tiny_cat(x) => Has(x, Ivory_toe, 9); "
    fol += "Has(x, Ivory_toe, 9 - 4 = 5)"
    assert step_code(fol) == (
        'if x.loses("strong fin", 2): x.drop("ivory toe", 4); if x.kind == "tiny cat": x.count["ivory toe"] = 9; '
        'x.count["ivory toe"] == 9 - 4 == 5'
    )
    assert step_code("Chase(y, x) => Enter(x, Bridge)") == 'if y.chases(x): x.place = "bridge"'


GOOD = 'if a.place == "bridge": a.states.add("deeply hungry")'
HOSTILE = [
    "",
    "pass",
    "if a: pass",
    GOOD + "  # a comment",
    GOOD + "; a.lose('x', 1)",
    GOOD + "\nimport os",
    GOOD.replace('"', "'"),
    GOOD.replace(" == ", "=="),
    GOOD.replace('"bridge"', '("bridge")'),
    GOOD.replace('"bridge"', 'f"bridge"'),
    GOOD.replace('"bridge"', 'b"bridge"'),
    GOOD.replace('"bridge"', '"brid" "ge"'),
    GOOD.replace('"bridge"', "open"),
    GOOD.replace('"bridge"', "exec()"),
    GOOD.replace('"bridge"', '"Bridge"'),
    GOOD.replace('"bridge"', '" bridge"'),
    GOOD.replace("a.place", "c.place"),
    GOOD.replace("states.add", "states.pop"),
    GOOD.replace("a.states", "a.b.states"),
    GOOD.replace('a.states.add("deeply hungry")', "a.lose(*[])"),
    GOOD.replace("add(", "add(x="),
    'if a.attacks(b): a.place = "bridge"',
    'if b.attacks(a): a.place = "bridge"',
    'if a.attack(b): b.place = "bridge"',
    'if a.destroys(b): b.place = "bridge"',
    'if a.kind == "tiny cat": a.count["strong horn"] = -1',
    'if a.kind == "tiny cat": a.count["strong horn"] = 014',
    'if a.kind == "tiny cat": a.count["strong horn"] = 1_4',
    'if a.kind == "tiny cat": a.count["strong horn"] = 14.0',
    'if a.kind == "tiny cat": a.count["strong horn"] = 1 + 1',
    'if a.kind == "tiny cat": b.count["strong horn"] = 14',
    f'if a.kind == "tiny cat": a.count["strong horn"] = {"9" * 200}',
    'if a.loses("strong fin", 2): a.drop("ivory toe", 2)',
    'if a.loses("strong fin", True): a.drop("ivory toe", 2)',
    'if a.place == "bridge" and a.place == "desert": a.lose("strong fin", 1)',
    'if "deeply hungry" in a.states and a.place == "bridge": a.lose("strong fin", 1)',
    'if a.place == "bridge" or "deeply hungry" in a.states: a.lose("strong fin", 1)',
    'if a.count["strong horn"] >= 12: a.states.add("deeply hungry")',
    "if " + "(" * 250 + "a" + ")" * 20,
    "if " + "-" * 280 + "1: a",
    'if a.place == "bridge": ' + "a" * 100_000,
    '__import__("os").system("true")',
    'if __import__("os").system("true"): a.lose("strong fin", 1)',
    "if a.place == \x00: a",
    "if a.place == \\",
    None,
    7,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_anything_else_is_refused_in_a_line(text):
    with pytest.raises(ValueError, match="expected") as caught:
        parse_rule_code(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1_000
