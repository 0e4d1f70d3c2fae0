"""Plant one defect at a time in a copy of a small build: the verifier must find it and name it by the right check."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruleworld_data.io import build, build_stats
from ruleworld_data.spec import SCALES, Dials
from ruleworld_data.verify import CHECKS, parse_rule_table, render_text, verify
from ruleworld_data.verify.mentions import question_problems
from ruleworld_data.verify.report import Report
from ruleworld_data.verify.rules import check_constraints
from ruleworld_data.world import load_vocabulary, symbol

from ..cases import asking_few, blocks

BROKEN, RULE_CELLS, CELLS, COMPARED = blocks(__file__, "broken_rules.txt")
WORDS = load_vocabulary()
BOTH = ("executor", "clingo")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A build of the tiny world that asks few questions, verified here sixty times; the documentation verifies tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "few", asking_few("tiny", 5))
        folder = tmp_path_factory.mktemp("verify") / "few"
        build(folder, "few")
        yield folder


@pytest.fixture
def copy(built, tampered):
    return tampered(built)


def rule(rows, **parts):
    return next(row for row in rows if all(row[name] == value for name, value in parts.items()))


def last(rows, rule_type):
    return rule(reversed(rows), type=rule_type)


def test_an_honest_build_passes_every_check(built):
    stages = []
    report = verify(built, progress=lambda stage, done, total: stages.append((stage, done == total)))
    assert report.ok, render_text(report)
    assert [check.status for check in report.checks] == ["pass"] * len(CHECKS)
    assert all(check.checked for check in report.checks)
    assert {stage for stage, at_end in stages if at_end} == {"files", "rules", "questions", "answers"}
    shards = json.loads((built / "build.json").read_text())["shards"]
    assert report.counts["questions"] == sum(s["rows"] for s in shards if s["config"] != "rules")
    shown = json.loads(json.dumps(report.to_dict()))
    assert shown["ok"] and [check["name"] for check in shown["checks"]] == list(CHECKS)
    assert render_text(report).endswith(f"verified: {len(CHECKS)} passed, 0 failed, 0 skipped")


def test_both_solvers_read_data_1_2(built, tmp_path):
    build(tmp_path, "few", version="1.2")
    report = verify(tmp_path)
    assert report.ok and "skip" not in {check.status for check in report.checks}, render_text(report)


@pytest.mark.parametrize("options", [{"solvers": ()}, {"solvers": ("prolog",)}, {"jobs": 0}, {"jobs": True}])
def test_wrong_arguments(built, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        verify(built, **options)


# Files


@pytest.mark.parametrize("name", ["rules/train", "multi_hop_2/test"])
def test_a_signed_shard_with_texts_that_are_no_utf8(copy, name):
    """Whoever writes the file can write the manifest as well."""
    table = pq.read_table(copy.path(*name.split("/")))
    place = table.schema.get_field_index("nl" if name.startswith("rules") else "question")
    texts = [b"\xff\xfe", *(text.encode() for text in table.column(place).to_pylist()[1:])]
    raw = pa.array(texts, pa.binary())
    broken = pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])
    copy.write(*name.split("/"), table.set_column(place, table.schema.field(place), broken))
    assert f"{name}-00000-of-00001.parquet: no readable parquet file" in copy.failed()["files"]


def test_signed_shards_of_another_shape(copy):
    table = pq.read_table(copy.path("single_rule", "mini"))
    copy.write("single_rule", "mini", table.drop_columns("fold"))
    table = pq.read_table(copy.path("rules", "train"))
    ids = pa.array([None, *table.column("id").to_pylist()[1:]], pa.int32())
    copy.write("rules", "train", table.set_column(0, "id", ids))
    copy.write("multi_rule_3", "train", copy.rows("multi_rule_3", "train")[:-1])
    with pytest.raises(ValueError, match="is of another build"):
        build_stats(copy.folder)
    report = verify(copy.folder)
    said = " ".join(report["files"].examples)
    assert re.search(r"single_rule/mini.*: columns id .*template_id string, .*; expected .* fold int8", said)
    assert "column id holds 1 nulls" in said and re.search(
        r"multi_rule_3/train-.*: 19 rows, expected 20", said
    )
    assert {check.status for check in report.checks[1:]} == {"skip"}


# Rules


def test_edited_rule_cells(copy):
    rows = copy.rows("rules", "train")
    for row, (column, value, _) in zip(rows, RULE_CELLS, strict=False):
        row[column] = json.loads(value)
    wrong = rows[len(RULE_CELLS)]  # its FOL, in all columns, says another number than its English
    for column in ("fol", "conclusion_fol"):
        wrong[column] = wrong[column].replace(f" {wrong['amount']})", f" {wrong['amount'] + 1})")
    rows[15]["id"], rows[17]["world_id"] = rows[14]["id"], "elsewhere"
    copy.write("rules", "train", rows)
    failed = copy.failed()
    for row, (_, _, check) in zip(rows, RULE_CELLS, strict=False):
        assert f"rule {row['id']}" in failed[check]
    assert f"rule {wrong['id']}" in failed["rule_texts"]
    assert f"{rows[14]['id']} occurs twice" in failed["rule_ids"] and "elsewhere" in failed["rule_ids"]


@pytest.mark.parametrize(("check", "texts", "said"), BROKEN)
def test_rules_that_break_a_constraint(check, texts, said):
    fol = re.sub(r"\bS\b", "Deeply_sad(A)", texts).split("; ")
    base = parse_rule_table(pa.table({"id": pa.array(range(len(fol)), pa.int32()), "fol": fol}))
    report = Report()
    check_constraints(base, report)
    assert said in " | ".join(report[check].examples), report[check]


def test_circular_rules_end_before_the_solvers(copy):
    rows = copy.rows("rules", "train")
    first, spare = rule(rows, type="attrchange2attr"), last(rows, "attrchange2attr")
    new = {spare["trigger_attribute"]: first["attribute"], spare["attribute"]: first["trigger_attribute"]}
    new |= {WORDS.plural_of[old]: WORDS.plural_of[other] for old, other in new.items()}
    new |= {symbol(old): symbol(other) for old, other in new.items()}
    named = re.compile(rf"\b(?:{'|'.join(sorted(new, key=len, reverse=True))})\b")
    spare |= {k: named.sub(lambda m: new[m[0]], v) for k, v in spare.items() if isinstance(v, str)}
    for column in ("fol", "premise_fol", "conclusion_fol"):  # "Lose_Red_fin": no word ends before the name
        for old, other in new.items():
            spare[column] = spare[column].replace(f"_{old}(", f"_<{other}(")
        spare[column] = spare[column].replace("<", "")
    copy.write("rules", "train", rows)
    report = verify(copy.folder)
    assert first["attribute"] in report["C3"].examples[0]
    assert report["C9_full_clingo"].status == "skip"


def test_a_heldout_rule_that_is_not(copy):
    rows, first = copy.rows("rules", "heldout"), rule(copy.rows("rules", "train"), type="state2attr")
    spare = last(rows, "state2attr")
    spare |= {name: value for name, value in first.items() if name not in ("id", "world_id")}
    copy.write("rules", "heldout", rows)
    assert str(spare["id"]) in copy.failed()["heldout"]


def test_a_world_of_unreadable_rules(copy):
    rows = copy.rows("rules", "heldout")
    for row in rows:
        row["fol"] = "?"
    copy.write("rules", "heldout", rows)
    failed = copy.failed()
    assert f"rule {rows[0]['id']}" in failed["rule_fol"] and "heldout" in failed["gold_rules"]


# Questions: what is wrong in each, all in one copy; pairs of a check and what it says.


def wrong_answers(copy):
    def edit(row):
        row["answers"][0] = str(int(row["answers"][0]) + 1)

    for name in ("single_rule", "multi_rule_4", "multi_hop_3"):
        row = copy.change(name, "test", edit, lambda row: row["answer_types"][0] == "count")
        yield from ((f"C9_{pool}_{solver}", row["id"]) for solver in BOTH for pool in ("gold", "full"))


def a_wrong_answer_with_steps_to_match(copy):
    """Only a solver can tell: text, steps and answer agree with each other."""

    def edit(row):
        right, wrong = row["answers"][0], str(int(row["answers"][0]) + 1)
        row["answers"] = [wrong]
        row["steps"][-1]["fol"] = row["steps"][-1]["fol"].replace(f"= {right})", f"= {wrong})")
        row["steps"][-1]["state"] = row["steps"][-1]["state"].replace(f", {right})", f", {wrong})")

    yield "C9_gold_clingo", copy.change("multi_hop_4", "test", edit)["id"]


def wrong_gold_rules(copy):
    def another(row):
        wrong = next(other for other in range(10_000) if other not in row["gold_rule_ids"])
        row["steps"][0]["rule_ids"][0] = row["gold_rule_ids"][0] = wrong

    def none(row):
        row["steps"][0]["rule_ids"][0] = row["gold_rule_ids"][0] = 999_999

    for name in ("multi_hop_2", "multi_rule_2"):
        number = copy.change(name, "test", another)["id"]
        yield from (("C9_gold_executor", number), ("C9_gold_clingo", number))
    yield "gold_rules", copy.change("multi_rule_6", "train", none)["id"] + ": the gold rule 999999"
    yield (
        "question_shape",
        copy.change("multi_rule_5", "test", lambda row: row["gold_rule_ids"].reverse())["id"],
    )
    used = copy.rows("multi_hop_4", "test")[0]["gold_rule_ids"][0]
    copy.change("rules", "train", lambda row: row.update(in_paper=False), lambda row: row["id"] == used)
    yield "gold_rules", f"{used} is not in the paper's subset"


def an_idle_gold_rule(copy):
    """A rule that has nothing to do with the answer is listed as gold."""
    idle = copy.rows("rules", "train")[0]["id"]

    def edit(row):
        row["steps"][-1]["rule_ids"].append(idle)
        row["gold_rule_ids"].append(idle)

    row = copy.change("multi_hop_3", "train", edit, lambda row: idle not in row["gold_rule_ids"])
    yield from (
        ("needed", f"without the gold rule {idle}"),
        ("steps", row["id"]),
        ("C9_full_executor", row["id"]),
    )


CELL_EDITS = [
    (lambda row: row["steps"][0].update(state="Deeply_unlikely(x)"), "steps"),
    (lambda row: row["steps"][1].update(fol=row["steps"][0]["fol"]), "steps"),
    (lambda row: row["steps"][-1].update(fol=row["steps"][-1]["fol"] + "; "), "steps"),
    (
        lambda row: row["steps"][2].update(fol="Tiny_cat(x) => " + row["steps"][2]["fol"].split(" => ")[1]),
        "steps",
    ),
    (lambda row: row["steps"][1].update(nl="So it goes."), "step_texts"),
    (lambda row: row["steps"].reverse(), "question_shape"),
    (lambda row: row.update(answers=row["answers"] * 2), "question_shape"),
    (lambda row: row.update(steps=row["steps"][:-1]), "question_shape"),
]


def edited_cells(copy):
    rows = copy.rows("multi_hop_4", "train")
    for row, (edit, check) in zip(rows, CELL_EDITS, strict=False):
        edit(row)
        yield check, row["id"]
    for row, (column, value, check) in zip(rows[len(CELL_EDITS) :], CELLS, strict=False):
        row[column] = json.loads(value)
        yield check, row["id"]
    copy.write("multi_hop_4", "train", rows)


def holes(copy):
    rows = copy.rows("multi_hop_2", "train")
    rows[0]["steps"][0] = None
    rows[1]["steps"][0]["rule_ids"] = []
    rows[1]["gold_rule_ids"] = rows[1]["steps"][1]["rule_ids"]
    rows[2]["steps"][0]["rule_ids"][0] = rows[2]["gold_rule_ids"][0] = None
    rows[3]["facts"], rows[4]["queries"], rows[5]["answers"] = [None], [None], [None]
    rows[6]["steps"][0] |= {"nl": None, "fol": None, "state": None}
    for row in rows[7:9]:
        row["question"] = row["skeleton"] = row["answers"] = None
    copy.write("multi_hop_2", "train", rows)
    checks = ["question_shape", "steps", "gold_rules", "scopes", "scopes", "C9_full_clingo", "steps"]
    yield from ((check, row["id"]) for row, check in zip(rows, checks, strict=False))
    yield "step_texts", rows[6]["id"]


def what_is_there_twice(copy):
    rows = copy.rows("multi_rule_2", "train")
    rows[1]["question"], rows[3]["id"] = rows[0]["question"], rows[2]["id"]
    copy.write("multi_rule_2", "train", rows)
    rows, test = copy.rows("multi_hop_2", "train"), copy.rows("multi_hop_2", "test")
    rows[12] |= {name: value for name, value in test[5].items() if name != "id"}
    copy.write("multi_hop_2", "train", rows)
    path = "multi_rule_2/train-00000-of-00001.parquet"
    yield "duplicates", f"row 1 repeats the question of {path}, row 0"
    yield "question_labels", "row 3 repeats the id"
    yield "overlap", rows[12]["id"]
    yield "duplicates", "multi_hop_2/test-00000-of-00001.parquet, row 5 repeats the question"


def a_mini_that_is_no_part_of_test(copy):
    copy.change("single_rule", "mini", lambda row: row.update(question="What is 1?", id="new"))
    copy.change("multi_hop_2", "mini", lambda row: row.update(fold=(row["fold"] + 1) % 5))
    rows = copy.rows("multi_rule_3", "mini")
    rows[1]["question"] = rows[0]["question"]
    copy.write("multi_rule_3", "mini", rows)
    yield from (("duplicates", "row 1 repeats the question"), ("duplicates", "its question is not in test"))
    yield from (("question_labels", "its id is not in test"), ("question_labels", "folds have"))


def first_number(text):
    return next(word for word in text.split() if word.isdigit())


TEXT_EDITS = [
    lambda text: text.replace(f" {first_number(text)} ", " 77 ", 1),
    lambda text: text.replace(f" {first_number(text)} ", " some ", 1),
    lambda text: text + " There are 99 others.",
    lambda text: "How many are there?",
    lambda text: " ".join(text.split()[::-1]),
]


def edited_texts(copy):
    rows = copy.rows("single_rule", "train")
    stated = [row for row in rows if any(word.isdigit() for word in row["question"].split())]
    scopes = [(stated[0]["facts"][0], stated[0]["queries"][0])]
    assert question_problems(stated[0]["question"], scopes) == []
    assert all(question_problems(edit(stated[0]["question"]), scopes) for edit in TEXT_EDITS)
    for row, edit in zip(stated, TEXT_EDITS, strict=False):
        row["question"] = edit(row["question"])
        yield "question_text", row["id"]
    copy.write("single_rule", "train", rows)


def test_each_defect_of_a_question_is_named_and_nothing_reaches_the_terminal(copy, monkeypatch):
    monkeypatch.setattr("ruleworld_data.verify.report.MAX_EXAMPLES", 1_000)
    copy.change("multi_rule_7", "test", lambda row: row.update(question="?", id="\x1b[2J\r[red]\u202e"))
    plants = [
        wrong_answers,
        a_wrong_answer_with_steps_to_match,
        wrong_gold_rules,
        an_idle_gold_rule,
        edited_cells,
    ]
    plants += [holes, what_is_there_twice, a_mini_that_is_no_part_of_test, edited_texts]
    planted = [found for plant in plants for found in plant(copy)]
    report = verify(copy.folder)
    said = {check.name: " | ".join(check.examples) for check in report.checks}
    assert [(check, text) for check, text in planted if text not in said[check]] == []
    shown = render_text(report)
    assert "\\x1b[2J\\r[red]\\u202e" in shown and all(line.isprintable() for line in shown.split("\n"))


def test_two_worlds_may_be_asked_the_same(copy):
    """One tiny world in fourteen failed for a question that its held-out world has, with other rules and answer."""
    rows = copy.rows("multi_hop_2", "heldout")
    rows[0]["question"] = copy.rows("multi_hop_2", "test")[0]["question"]
    copy.write("multi_hop_2", "heldout", rows)
    failed = copy.failed()
    assert "duplicates" not in failed and rows[0]["id"] in failed["question_text"]


def test_what_is_wrong_in_a_comparison(built, tmp_path, tampered):
    build(tmp_path / "build", "few", dials=Dials(hops=1, parts=2, compare=True))
    copy = tampered(tmp_path / "build")
    rows = copy.rows("compare_2", "test")
    sums = [row for row in rows if row["queries"][0].startswith("Sum")]
    for row, (column, old, new, _) in zip(sums, COMPARED, strict=False):
        place, key = (row[column], 0) if column in row else (row["steps"][-1], column)
        place[key] = re.sub(old, new or "", place[key], count=1)
    copy.write("compare_2", "test", rows)
    failed = copy.failed(BOTH)
    assert [
        edit for row, edit in zip(sums, COMPARED, strict=False) if row["id"] not in failed[edit[-1]]
    ] == []
