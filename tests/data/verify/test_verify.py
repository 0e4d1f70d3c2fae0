"""Plant one defect at a time in a copy of a small build: the verifier must find it and name it by the right check."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruleworld_data.io import build
from ruleworld_data.spec import SCALES, SUBTASKS
from ruleworld_data.verify import CHECKS, render_text, verify
from ruleworld_data.verify.mentions import question_problems


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A build of the tiny world that asks few questions, verified here sixty times; the documentation verifies tiny."""
    few = replace(
        SCALES["tiny"],
        train=dict.fromkeys(SUBTASKS, 20),
        evaluation={"validation": 5, "test": 50, "mini": 50, "heldout": 5},
        unit_pool=20,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "few", few)
        folder = tmp_path_factory.mktemp("verify") / "few"
        build(folder, "few")
        yield folder


@pytest.fixture
def copy(built, tmp_path):
    return Tampered(Path(shutil.copytree(built, tmp_path / "copy")))


class Tampered:
    """A copy of a build whose rows can be changed as if it had been made that way."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, config, split):
        return next((self.folder / config).glob(f"{split}-*.parquet"))

    def rows(self, config, split):
        return pq.read_table(self.path(config, split)).to_pylist()

    def write(self, config, split, rows):
        path = self.path(config, split)
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
        self.sign(path, len(rows))

    def sign(self, path, rows):
        """Put the file's new hash into the manifest, so that only its content can give it away."""
        manifest = json.loads((self.folder / "build.json").read_text())
        name = path.relative_to(self.folder).as_posix()
        entry = next(entry for entry in manifest["shards"] if entry["path"] == name)
        entry |= {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
            "rows": rows,
        }
        (self.folder / "build.json").write_text(json.dumps(manifest))

    def change(self, config, split, edit, which=lambda row: True):
        """Edit the first row that fits; return it."""
        rows = self.rows(config, split)
        row = next(row for row in rows if which(row))
        edit(row)
        self.write(config, split, rows)
        return row

    def failed(self, solvers=("executor",)):
        report = verify(self.folder, solvers=solvers)
        assert not report.ok
        return {check.name: " | ".join(check.examples) for check in report.checks if check.failures}


def rule(rows, **parts):
    return next(row for row in rows if all(row[name] == value for name, value in parts.items()))


def rewrite(row, **parts):
    """Give a rule other parts, consistently in all its columns and texts."""
    from ruleworld_data.world import article, load_vocabulary, symbol

    words = load_vocabulary()
    plural = dict(zip(words.attributes, words.attribute_plurals, strict=True))
    row |= parts

    def things(number, name):
        return f"{number} {name if number == 1 else plural[name]}"

    who = {"actor": "A", "target": "B"}.get(row["role"], "A")
    verb = {"minus": "lose", "plus": "gain"}.get(row["operator"])
    if row["type"] == "entity2attr":
        row["premise_nl"] = f"A is {article(row['entity'])} {row['entity']}"
        row["premise_fol"] = f"{symbol(row['entity'])}(A)"
        row["conclusion_nl"] = f"it has {things(row['amount'], row['attribute'])}"
        row["conclusion_fol"] = f"Has({symbol(row['attribute'])}, {row['amount']})"
    elif row["type"].endswith("2attr"):
        row["conclusion_nl"] = f"{who} will {verb} {things(row['amount'], row['attribute'])}"
        row["conclusion_fol"] = f"{symbol(verb)}_{symbol(row['attribute'])}({who}, {row['amount']})"
        if row["type"] == "attrchange2attr":
            trigger = {"minus": ("loses", "Lose"), "plus": ("gains", "Gain")}[row["trigger_operator"]]
            row["premise_nl"] = f"A {trigger[0]} {things(1, row['trigger_attribute'])}"
            row["premise_fol"] = f"{trigger[1]}_{symbol(row['trigger_attribute'])}(A, 1)"
    elif row["type"].endswith("2state"):
        row["conclusion_nl"] = f"{who} will be {row['state']}"
        row["conclusion_fol"] = f"{symbol(row['state'])}({who})"
    row["nl"] = f"If {row['premise_nl']}, {row['conclusion_nl']}."
    row["fol"] = f"{row['premise_fol']} => {row['conclusion_fol']}"


def test_an_honest_build_passes_every_check(built):
    stages = []
    report = verify(built, progress=lambda stage, done, total: stages.append((stage, done == total)))
    assert report.ok, render_text(report)
    assert [check.status for check in report.checks] == ["pass"] * len(CHECKS)
    assert all(check.checked for check in report.checks)
    assert {stage for stage, last in stages if last} == {"files", "rules", "questions", "answers"}
    assert report.counts["questions"] == sum(
        entry["rows"] for entry in _shards(built) if entry["config"] != "rules"
    )
    shown = json.loads(json.dumps(report.to_dict()))
    assert shown["ok"]
    assert [check["name"] for check in shown["checks"]] == list(CHECKS)
    assert render_text(report).endswith(f"verified: {len(CHECKS)} passed, 0 failed, 0 skipped")


def _shards(folder):
    return json.loads((folder / "build.json").read_text())["shards"]


def test_one_solver_alone_skips_the_other(built):
    report = verify(built, solvers=("executor",))
    skipped = {check.name for check in report.checks if check.status == "skip"}
    assert skipped == {"C9_gold_clingo", "C9_pool_clingo", "C9_full_clingo"}
    assert "incomplete" in render_text(report)
    skipped = {check.name for check in verify(built, solvers=("clingo",)).checks if check.status == "skip"}
    assert "C9_full_executor" in skipped
    assert "C9_full_clingo" not in skipped


# Files


def test_a_folder_that_is_no_build(tmp_path):
    with pytest.raises(FileNotFoundError, match="ruleworld build"):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError, match="ruleworld build"):
        verify(tmp_path / "nowhere")
    for text in ("{not json", "[" * 100_000, "[]", '{"format": 1, "shards": {}}'):
        (tmp_path / "build.json").write_text(text)
        with pytest.raises(ValueError, match="damaged"):
            verify(tmp_path)
        with pytest.raises(ValueError, match=r"damaged|another build"):
            build(tmp_path, "tiny")


@pytest.mark.parametrize("options", [{"solvers": ()}, {"solvers": ("prolog",)}, {"jobs": 0}, {"jobs": True}])
def test_wrong_arguments(built, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        verify(built, **options)


def test_a_truncated_shard(copy):
    path = copy.path("multi_hop_2", "test")
    path.write_bytes(path.read_bytes()[:-100])
    failed = copy.failed()
    assert "multi_hop_2/test-00000-of-00001.parquet" in failed["shards"]
    assert "build the folder again" in failed["shards"]
    assert "multi_hop_2/test" in failed["counts"]
    assert set(failed) == {"shards", "counts"}


@pytest.mark.parametrize("config", ["multi_hop_2", "rules"])
def test_a_flipped_byte(copy, config):
    path = copy.path(config, "train")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    assert "SHA-256" in copy.failed()["shards"]


def test_a_missing_shard_of_rules_skips_what_needs_it(copy):
    copy.path("rules", "heldout").unlink()
    report = verify(copy.folder)
    assert not report.ok
    assert "missing" in report.check("shards").examples[0]
    assert report.check("C1").status == "pass"
    assert report.check("C9_full_clingo").status == "skip"
    assert "heldout" in report.check("C9_full_clingo").skipped


def test_a_stray_file(copy):
    shutil.copy(copy.path("single_rule", "test"), copy.folder / "single_rule" / "extra.parquet")
    assert "extra.parquet is in the folder but not in build.json" in copy.failed()["shards"]


def edited_manifest(copy, edit):
    manifest = json.loads((copy.folder / "build.json").read_text())
    edit(manifest)
    (copy.folder / "build.json").write_text(json.dumps(manifest))
    return copy.failed()


def test_a_tampered_manifest(copy):
    def edit(manifest):
        shards = manifest["shards"]
        shards.append(shards[0])
        shards += [3, {"path": ["rules"]}, {"path": "../secret.parquet"}, {"path": "/etc/passwd"}]
        shards[2] |= {"rows": "many", "bytes": None}
        shards[3]["sha256"] = 7

    failed = edited_manifest(copy, edit)
    assert failed["manifest"].count("is no shard of such a build") == 4
    assert "more than once" in failed["manifest"] and "['rules']" in failed["manifest"]
    for wrong in ("rows", "bytes", "SHA-256"):
        assert wrong in failed["shards"]


@pytest.mark.parametrize("name", ["rules/train", "multi_hop_2/test"])
def test_a_signed_shard_with_texts_that_are_no_utf8(copy, name):
    """Whoever writes the file can write the manifest as well."""
    path = copy.path(*name.split("/"))
    table = pq.read_table(path)
    place = table.schema.get_field_index("nl" if name.startswith("rules") else "question")
    texts = [b"\xff\xfe", *table.column(place).to_pylist()[1:]]
    raw = pa.array([t if isinstance(t, bytes) else t.encode() for t in texts], pa.binary())
    broken = pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])
    pq.write_table(table.set_column(place, table.schema.field(place), broken), path)
    copy.sign(path, len(table))
    assert "no readable parquet file" in copy.failed()["shards"]


def test_a_shard_that_is_not_listed(copy):
    failed = edited_manifest(copy, lambda manifest: manifest["shards"].pop(3))
    assert "is not listed" in failed["manifest"]


@pytest.mark.parametrize("head", [{"scale": "huge"}, {"scale": ["tiny"]}, {"seed": -1}, {"seed": "0"}])
def test_a_manifest_of_no_known_build(copy, head):
    failed = edited_manifest(copy, lambda manifest: manifest.update(head))
    assert set(failed) == {"manifest"}
    assert repr(next(iter(head.values()))) in failed["manifest"]


def test_a_shard_under_another_split(copy):
    failed = edited_manifest(copy, lambda manifest: manifest["shards"][0].update(split="validation"))
    assert "is listed as 'rules', split 'validation'" in failed["manifest"]
    assert "rules/train has 0 readable rows" in failed["counts"]


def test_a_wrong_schema(copy):
    path = copy.path("single_rule", "mini")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns("fold"), path)
    copy.sign(path, len(table))
    assert "single_rule/mini" in copy.failed()["schema"]


def test_a_missing_row(copy):
    copy.write("multi_rule_3", "train", copy.rows("multi_rule_3", "train")[:-1])
    assert "multi_rule_3/train has 19 readable rows, expected 20" in copy.failed()["counts"]


# Rules


def test_edited_rule_cells(copy):
    edits = [
        ("fol", "Nothing", "rule_fol"),
        ("nl", "If pigs fly, it rains.", "rule_nl"),
        ("amount", 77, "rule_columns"),
        ("attribute", "strong unicycle", "rule_columns"),
        ("premise_nl", "A is somebody", "rule_halves"),
    ]
    rows = copy.rows("rules", "train")
    for row, (column, value, _) in zip(rows, edits, strict=False):
        row[column] = value
    wrong = rows[len(edits)]  # its FOL, in all columns, says another number than its English
    for column in ("fol", "conclusion_fol"):
        wrong[column] = wrong[column].replace(f" {wrong['amount']})", f" {wrong['amount'] + 1})")
    copy.write("rules", "train", rows)
    failed = copy.failed()
    for row, (_, _, check) in zip(rows, edits, strict=False):
        assert f"rule {row['id']}" in failed[check]
    assert f"rule {wrong['id']}" in failed["rule_texts"]


def test_a_duplicate_rule_id_and_a_foreign_world(copy):
    rows = copy.rows("rules", "train")
    rows[5]["id"] = rows[4]["id"]
    rows[7]["world_id"] = "elsewhere"
    copy.write("rules", "train", rows)
    message = copy.failed()["rule_ids"]
    assert f"{rows[4]['id']} occurs twice" in message
    assert "elsewhere" in message


def test_a_duplicate_rule(copy):
    rows = copy.rows("rules", "train")
    first = rule(rows, type="state2attr")
    spare = next(row for row in reversed(rows) if row["type"] == "state2attr")
    spare |= {name: value for name, value in first.items() if name != "id"}
    copy.write("rules", "train", rows)
    failed = copy.failed()
    assert str(first["id"]) in failed["C7"]
    assert str(first["id"]) in failed["C1"]
    assert "C2" not in failed


def test_a_conflicting_rule(copy):
    rows = copy.rows("rules", "train")
    first = rule(rows, type="state2attr", operator="minus")
    spare = next(row for row in reversed(rows) if row["type"] == "state2attr")
    spare |= {name: value for name, value in first.items() if name != "id"}
    rewrite(spare, operator="plus")
    copy.write("rules", "train", rows)
    failed = copy.failed()
    assert str(first["id"]) in failed["C2"]
    assert "C1" in failed
    assert not {"rule_fol", "rule_nl", "rule_texts", "rule_halves", "rule_columns", "C7"} & failed.keys()


def test_a_cycle(copy):
    rows = copy.rows("rules", "train")
    first = rule(rows, type="attrchange2attr")
    spare = next(row for row in reversed(rows) if row["type"] == "attrchange2attr")
    rewrite(spare, trigger_attribute=first["attribute"], attribute=first["trigger_attribute"])
    copy.write("rules", "train", rows)
    report = verify(copy.folder)
    loop = report.check("C3").examples[0]
    assert first["attribute"] in loop
    assert first["trigger_attribute"] in loop
    assert report.check("C4").status == "fail"
    assert report.check("C9_full_clingo").status == "skip"


def test_a_second_causal_path(copy):
    rows = copy.rows("rules", "train")
    first = rule(rows, type="attrchange2attr")
    spare = next(
        row
        for row in reversed(rows)
        if row["type"] == "attrchange2attr" and row["trigger_attribute"] != first["trigger_attribute"]
    )
    rewrite(spare, attribute=first["attribute"])
    copy.write("rules", "train", rows)
    message = copy.failed()["C4"]
    assert f"{first['attribute']!r} has 2 drivers" in message
    assert spare["trigger_attribute"] in message


def test_a_response_that_a_state_changes(copy):
    rows = copy.rows("rules", "train")
    response = rule(rows, type="attrchange2attr")["attribute"]
    rewrite(rule(rows, type="state2attr"), attribute=response)
    copy.write("rules", "train", rows)
    assert f"{response!r} is a driver and a response" in copy.failed()["C4"]


def test_routes_that_meet(copy):
    """The state of the environment that an action leads to changes what the action changes itself."""
    rows = copy.rows("rules", "train")
    place = rule(rows, type="action2env")
    state = rule(rows, type="env2state", environment=place["environment"])["state"]
    own = rule(rows, type="action2attr", action=place["action"], role="target")
    effect = rule(rows, type="state2attr", state=state)
    rewrite(effect, attribute=own["attribute"])
    copy.write("rules", "train", rows)
    failed = copy.failed()
    assert place["action"] in failed["C5"]
    assert own["attribute"] in failed["C5"]


def test_counts_that_fall_below_zero(copy):
    """A kind with too few of what a question takes away."""
    question = next(row for row in copy.rows("multi_hop_3", "test") if " - " in row["steps"][-1]["fol"])
    rows = copy.rows("rules", "train")
    giver = rule(rows, id=question["gold_rule_ids"][-1])
    rewrite(giver, amount=0)
    copy.write("rules", "train", rows)
    message = copy.failed()["C6"]
    assert f"{giver['attribute']!r} could fall to -" in message
    assert giver["entity"].capitalize().replace(" ", "_") in message


def test_terms_that_contain_each_other(copy):
    rows = copy.rows("rules", "train")
    kinds = sorted({row["entity"] for row in rows if row["entity"]})
    states = sorted({row["state"] for row in rows if row["state"]})[:3]
    for old, new in zip(states, ("hungry", "deeply hungry", kinds[0]), strict=True):
        for row in rows:
            for column, text in row.items():
                if isinstance(text, str):
                    text = text.replace(
                        old.capitalize().replace(" ", "_"), new.capitalize().replace(" ", "_")
                    )
                    row[column] = text.replace(old, new)
    copy.write("rules", "train", rows)
    message = copy.failed()["C7"]
    assert "'hungry' is part of the term 'deeply hungry'" in message
    assert f"{kinds[0]!r} is used as entity and as state" in message


def test_a_commonsense_rule(copy):
    from ruleworld_data.world import load_vocabulary

    rows = copy.rows("rules", "train")
    denied = {(left, right) for kind, left, right in load_vocabulary().denied if kind == "action_state"}
    states = load_vocabulary().states
    victim, state = next(
        (row, state)
        for row in rows
        if row["type"] == "action2state"
        for state in states
        if (row["action"], state.split()[-1]) in denied
    )
    rewrite(victim, state=state)
    copy.write("rules", "train", rows)
    assert f"rule {victim['id']}" in copy.failed()["C8"]


def test_a_heldout_rule_that_is_not(copy):
    rows, first = copy.rows("rules", "heldout"), rule(copy.rows("rules", "train"), type="state2attr")
    spare = next(row for row in reversed(rows) if row["type"] == "state2attr")
    spare |= {name: value for name, value in first.items() if name not in ("id", "world_id")}
    copy.write("rules", "heldout", rows)
    assert str(spare["id"]) in copy.failed()["heldout"]


# Questions


def counted(row):
    return row["answer_types"][0] == "count"


def test_wrong_answers(copy):
    def edit(row):
        row["answers"][0] = str(int(row["answers"][0]) + 1)

    edited = [
        copy.change(name, "test", edit, counted)["id"]
        for name in ("single_rule", "multi_rule_4", "multi_hop_4")
    ]
    failed = copy.failed(solvers=("executor", "clingo"))
    for solver in ("executor", "clingo"):
        for pool in ("gold", "pool", "full"):
            assert all(row_id in failed[f"C9_{pool}_{solver}"] for row_id in edited)


def test_a_wrong_answer_with_steps_to_match(copy):
    """Only a solver can tell: text, steps and answer agree with each other."""

    def edit(row):
        right, wrong = row["answers"][0], str(int(row["answers"][0]) + 1)
        row["answers"] = [wrong]
        row["steps"][-1]["fol"] = row["steps"][-1]["fol"].replace(f"= {right})", f"= {wrong})")
        row["steps"][-1]["state"] = row["steps"][-1]["state"].replace(f", {right})", f", {wrong})")

    row = copy.change("multi_hop_4", "test", edit)
    assert row["id"] in copy.failed(solvers=("clingo",))["C9_gold_clingo"]


def test_wrong_step_ids(copy):
    def edit(row):
        wrong = next(other for other in range(10_000) if other not in row["gold_rule_ids"])
        row["steps"][0]["rule_ids"][0] = row["gold_rule_ids"][0] = wrong

    edited = [copy.change(name, "test", edit)["id"] for name in ("multi_hop_2", "multi_rule_2")]
    failed = copy.failed(solvers=("executor", "clingo"))
    for check in ("C9_gold_executor", "C9_gold_clingo"):
        assert all(row_id in failed[check] for row_id in edited)


def test_gold_ids_that_are_not_those_of_the_steps(copy):
    row = copy.change("multi_rule_5", "test", lambda row: row["gold_rule_ids"].reverse())
    assert row["id"] in copy.failed()["question_shape"]


def test_gold_rules_that_do_not_exist(copy):
    def edit(row):
        row["steps"][0]["rule_ids"][0] = row["gold_rule_ids"][0] = 999_999

    row = copy.change("multi_hop_2", "train", edit)
    message = copy.failed()["gold_rules"]
    assert row["id"] in message
    assert "999999" in message


def test_an_evaluation_question_outside_the_papers_subset(copy):
    used = copy.rows("multi_hop_4", "test")[0]["gold_rule_ids"][0]
    copy.change("rules", "train", lambda row: row.update(in_paper=False), lambda row: row["id"] == used)
    assert str(used) in copy.failed()["gold_rules"]


def test_an_idle_gold_rule(copy):
    """A rule that has nothing to do with the answer is listed as gold."""
    idle = copy.rows("rules", "train")[0]["id"]

    def edit(row):
        row["steps"][-1]["rule_ids"].append(idle)
        row["gold_rule_ids"].append(idle)

    row = copy.change("multi_hop_3", "train", edit, lambda row: idle not in row["gold_rule_ids"])
    failed = copy.failed()
    assert f"without the gold rule {idle}" in failed["needed"]
    assert row["id"] in failed["steps"]
    assert row["id"] in failed["C9_full_executor"]


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
    (lambda row: row.update(facts=[]), "question_shape"),
    (lambda row: row.update(facts=None), "question_shape"),
    (lambda row: row.update(steps=row["steps"][:-1]), "question_shape"),
    (lambda row: row.update(facts=["Tiny_cat(z)"]), "scopes"),
    (lambda row: row.update(queries=["Who(x, ?)"]), "scopes"),
    (lambda row: row.update(answer_types=["state"]), "scopes"),
    (lambda row: row.update(skeleton="state2attr"), "question_labels"),
    (lambda row: row.update(n_hops=9), "question_labels"),
    (lambda row: row.update(n_rules=None), "question_labels"),
    (lambda row: row.update(subtask="multi_hop_2"), "question_labels"),
    (lambda row: row.update(world_id="rw-7"), "question_labels"),
]


@pytest.mark.parametrize("labels", [True, False])
def test_edited_question_cells(copy, labels):
    rows = copy.rows("multi_hop_4", "train")
    edits = [edit for edit in CELL_EDITS if (edit[1] == "question_labels") == labels]
    for row, (edit, _) in zip(rows, edits, strict=False):
        edit(row)
    copy.write("multi_hop_4", "train", rows)
    failed = copy.failed()
    for row, (_, check) in zip(rows, edits, strict=False):
        assert row["id"] in failed[check], (row["id"], check)


def test_holes_are_failures_and_not_tracebacks(copy):
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
    failed = copy.failed(solvers=("executor", "clingo"))
    ids = [row["id"] for row in rows]
    assert ids[0] in failed["question_shape"]
    assert ids[1] in failed["steps"]
    assert ids[2] in failed["gold_rules"]
    assert ids[3] in failed["scopes"]
    assert ids[4] in failed["scopes"]
    assert ids[5] in failed["C9_full_clingo"]
    assert ids[6] in failed["steps"]
    assert ids[6] in failed["step_texts"]


def test_a_world_of_unreadable_rules(copy):
    rows = copy.rows("rules", "heldout")
    for row in rows:
        row["fol"] = "?"
    copy.write("rules", "heldout", rows)
    failed = copy.failed(solvers=("executor", "clingo"))
    assert f"rule {rows[0]['id']}" in failed["rule_fol"]
    assert "heldout" in failed["gold_rules"]


def test_an_id_that_is_null(copy):
    path = copy.path("rules", "train")
    table = pq.read_table(path)
    ids = pa.array([None, *table.column("id").to_pylist()[1:]], pa.int32())
    pq.write_table(table.set_column(0, "id", ids), path)
    copy.sign(path, len(table))
    assert "column id holds 1 nulls" in copy.failed()["schema"]


def test_a_duplicate_question_and_a_duplicate_id(copy):
    rows = copy.rows("multi_rule_2", "train")
    rows[1]["question"] = rows[0]["question"]
    rows[3]["id"] = rows[2]["id"]
    copy.write("multi_rule_2", "train", rows)
    failed = copy.failed()
    assert (
        "row 1 repeats the question of multi_rule_2/train-00000-of-00001.parquet, row 0"
        in failed["duplicates"]
    )
    assert "row 3 repeats the id" in failed["question_labels"]


def test_mini_is_a_part_of_test(copy):
    row = copy.change("single_rule", "mini", lambda row: row.update(question="What is 1?", id="new"))
    failed = copy.failed()
    assert "its question is not in test" in failed["duplicates"]
    assert "its id is not in test" in failed["question_labels"]
    assert row["id"] == "new"


def test_what_a_file_says_does_not_reach_the_terminal(copy):
    copy.change("single_rule", "test", lambda row: row.update(question="?", id="\x1b[2J\r[red]\u202e"))
    shown = render_text(verify(copy.folder, solvers=("executor",)))
    assert "\\x1b[2J\\r[red]\\u202e" in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_folds_of_ten(copy):
    copy.change("single_rule", "mini", lambda row: row.update(fold=(row["fold"] + 1) % 5))
    assert "folds have" in copy.failed()["question_labels"]


def test_a_test_question_in_train(copy):
    rows, test = copy.rows("multi_hop_2", "train"), copy.rows("multi_hop_2", "test")
    rows[0] |= {name: value for name, value in test[0].items() if name != "id"}
    copy.write("multi_hop_2", "train", rows)
    failed = copy.failed()
    assert test[0]["id"] in failed["overlap"] or rows[0]["id"] in failed["overlap"]
    assert "repeats the question" in failed["duplicates"]


def first_number(text):
    return next(word for word in text.split() if word.isdigit())


TEXT_EDITS = [
    lambda text: text.replace(f" {first_number(text)} ", " 77 ", 1),
    lambda text: text.replace(f" {first_number(text)} ", " some ", 1),
    lambda text: text + " There are 99 others.",
    lambda text: "How many are there?",
    lambda text: " ".join(text.split()[::-1]),
]


def test_edited_question_texts(copy):
    rows = copy.rows("single_rule", "train")
    stated = [row for row in rows if any(word.isdigit() for word in row["question"].split())]
    for number, edit in enumerate(TEXT_EDITS):
        stated[number]["question"] = edit(stated[number]["question"])
        copy.write("single_rule", "train", rows)
    report = verify(copy.folder, solvers=("executor",))
    failures = report.check("question_text").failures
    named = " | ".join(report.check("question_text").examples)
    assert stated[0]["id"] in named
    assert failures >= len(TEXT_EDITS)
    assert report.check("C9_gold_executor").status == "pass"


@pytest.mark.parametrize("edit", TEXT_EDITS)
def test_an_edited_text_is_found_whatever_the_edit(built, edit):
    """The same edits one by one, on the text checker alone."""
    row = next(
        row
        for row in pq.read_table(next((built / "single_rule").glob("train-*"))).to_pylist()
        if any(word.isdigit() for word in row["question"].split())
    )
    scopes = [(row["facts"][0], row["queries"][0])]
    assert question_problems(row["question"], scopes) == []
    assert question_problems(edit(row["question"]), scopes)
