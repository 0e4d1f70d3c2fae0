"""Tables: counts, slices, splits that share nothing, and hashes that must not change unnoticed."""

import json
import os
import re
from collections import Counter, defaultdict
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruleworld_data.spec import (
    HELDOUT_IDS,
    RULE_SPLITS,
    SUBTASKS,
    VERSION,
    Dials,
    WorldSpec,
    splits_of,
    subtasks_of,
)
from ruleworld_data.verify.probes import parts_of

from .cases import question_table, rule_table

GOLDEN = Path(__file__).parent / "golden"

# Typed from the paper's table of question counts: all, and those of the training set.
FULL = [50_000, 154_167, 381_116, 839_755, 886_455, 618_577, 289_761, 80_169, 37_737, 30_000, 10_000]
TRAIN = [25_000, 6_702, 8_696, 12_384, 10_924, 6_824, 2_863, 807, 19_500, 12_500, 5_000]


def num_rows(config, split, scale="paper", **made):
    return WorldSpec(scale, split, **made).num_rows(config)


def test_counts_are_the_papers():
    assert [num_rows(s, "train", "full") for s in SUBTASKS] == FULL and sum(FULL) == 3_377_737
    assert [num_rows(s, "train", "paper") for s in SUBTASKS] == TRAIN and sum(TRAIN) == 111_200
    assert [num_rows("rules", "train", scale) for scale in ("full", "paper")] == [4_936_113, 100_235]
    assert [num_rows("rules", "heldout", scale) for scale in ("full", "paper")] == [100_235, 100_235]
    for scale in ("paper", "full"):
        for subtask in SUBTASKS:
            sizes = [num_rows(subtask, split, scale) for split in ("validation", "test", "mini", "heldout")]
            assert sizes == [500, 500, 50, 500]


def test_unseen_is_as_large_as_test_but_for_exceptions_in_one_hop_or_two():
    for text in ("", "compare=true", "unknown=true", "exceptions=2,words=0.8", "hops=8,conjunction=2"):
        made = {"version": "1.2", "dials": Dials.parse(text)}
        rows = {name: num_rows(name, "unseen", **made) for name in subtasks_of(made["dials"])}
        few = dict.fromkeys(["exceptions_1", "exceptions_2"], 20) if "exceptions" in text else {}
        assert rows == dict.fromkeys(rows, 500) | few
    made["dials"] = Dials(unknown=True)
    answers = question_table("unknown_4", "unseen", **made)["answers"].to_pylist()
    assert len(answers) == 500 and answers.count(["unknown"]) == 250


SLICED = [
    ("single_rule", "train", "tiny"),
    ("multi_rule_5", "train", "tiny"),
    ("multi_hop_3", "mini", "tiny"),
]
SLICED += [("rules", split, "tiny") for split in RULE_SPLITS]


@settings(max_examples=25)
@given(st.sampled_from(SLICED), st.data())
def test_any_slice_is_the_same_rows(which, data):
    rows = num_rows(*which)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, min(rows, start + 70)))
    make = partial(rule_table, *which[1:]) if which[0] == "rules" else partial(question_table, *which)
    part = make(start=start, stop=stop)
    assert part.schema == make().schema
    assert part.to_pylist() == make().slice(start, stop - start).to_pylist()


def test_mini_is_five_folds_of_ten_test_questions():
    for subtask in SUBTASKS[::4]:
        test = {row["id"]: row for row in question_table(subtask, "test", "paper").to_pylist()}
        mini = question_table(subtask, "mini", "paper").to_pylist()
        assert Counter(row["fold"] for row in mini) == dict.fromkeys(range(5), 10)
        assert len({row["id"] for row in mini}) == 50
        assert all(row | {"fold": 0} == test[row["id"]] for row in mini)


def test_evaluation_questions_are_the_same_at_paper_and_full():
    for split in splits_of(VERSION)[1:]:
        for subtask in SUBTASKS[::10]:
            assert question_table(subtask, split, "paper").equals(question_table(subtask, split, "full"))
    assert rule_table("heldout", "paper").equals(rule_table("heldout", "full"))


def test_seeds_share_no_question():
    one, other = (
        {q for s in SUBTASKS for q in question_table(s, "test", "tiny", seed)["question"].to_pylist()}
        for seed in (0, 1)
    )
    assert len(one & other) <= 2


def taught(table):
    """What no two splits share: of a chain its rules, of a sub-question its rules, its numbers and its answer."""
    hops = table["n_hops"][0].as_py()
    if hops > 1:
        return {tuple(rules[:hops]) for rules in table["gold_rule_ids"].to_pylist()}
    steps, facts, answers = (table[name].combine_chunks().flatten() for name in ("steps", "facts", "answers"))
    # What happens to whom is in the rules; the numbers of a question are all that is left, and the answer.
    numbers = [tuple(re.findall(r"\b\d+\b", text)) for text in facts.to_pylist()]
    return set(
        zip(map(tuple, steps.field("rule_ids").to_pylist()), numbers, answers.to_pylist(), strict=True)
    )


@pytest.mark.parametrize(
    ("scale", "subtasks"), [("tiny", SUBTASKS), pytest.param("paper", SUBTASKS, marks=pytest.mark.slow)]
)
def test_splits_share_no_sub_question_and_no_chain_and_no_text_comes_twice(scale, subtasks):
    lessons, texts = {}, Counter()
    for split in ("train", "validation", "test"):
        tables = [question_table(subtask, split, scale) for subtask in subtasks]
        lessons[split] = set().union(*map(taught, tables))
        texts.update(text for table in tables for text in table["question"].to_pylist())
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not lessons[one] & lessons[other]
    assert all(len(part) > 50 for part in lessons.values()) and max(texts.values()) == 1


UNSEEN = [
    ("tiny", Dials()),
    ("tiny", Dials(hops=7, crowd=4)),
    ("tiny", Dials(parts=6, conjunction=2, thresholds=True)),
    ("tiny", Dials(parts=8, compare=True, exceptions=2)),
    ("tiny", Dials(hops=8, unknown=True)),
    pytest.param("paper", Dials(), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("scale", "dials"), UNSEEN, ids=str)
def test_no_rule_that_answers_unseen_is_gold_in_train(scale, dials):
    subtasks, made = subtasks_of(dials), {"scale": scale, "version": "1.2", "dials": dials}

    def gold(split):
        tables = [question_table(name, split, **made) for name in subtasks]
        return {rule for table in tables for rules in table["gold_rule_ids"].to_pylist() for rule in rules}

    rules = rule_table(**made)
    counts = set(rules.filter(pc.equal(rules["type"], "entity2attr"))["id"].to_pylist())
    known, answering = gold("train") | gold("validation"), set()
    for name in subtasks:
        table = question_table(name, "unseen", **made)
        assert len(table) == num_rows(name, "unseen", **made) >= (500 if scale == "paper" else 5)
        assert {*table["answer_types"].combine_chunks().flatten().to_pylist()} <= {"count", "creature"}
        for row in table.to_pylist():
            last = row["steps"][-1:] if row["n_hops"] > 1 else row["steps"]
            answering |= {rule for step in last for rule in step["rule_ids"]}
            answering |= counts & set(row["gold_rule_ids"])
    assert answering and not answering & known
    assert len(known) > (0.2 if scale == "tiny" else 0.5) * len(rules)
    if not dials.to_dict():  # held-out rules have numbers of their own, and are as they were
        old, new = (question_table("multi_hop_3", "heldout", scale, version=v) for v in ("1.1", "1.2"))
        numbers = (np.array(table["gold_rule_ids"].to_pylist()) for table in (old, new))
        assert (np.subtract(*numbers) == -HELDOUT_IDS).all()
        assert num_rows("rules", "train", "full") < HELDOUT_IDS


def test_no_number_is_a_good_guess_in_unseen():
    """Of one rule, kinds have each count equally often, and stated counts each change, whatever the question says."""
    told = defaultdict(Counter)
    for row in question_table("single_rule", "unseen", version="1.2").to_pylist():
        (part,) = parts_of(row)
        told[None if part.stated is None else (row["skeleton"], part.numbers)][part.change] += 1
    for which, times in told.items():
        assert len(times) == (6 if which else 12) and max(times.values()) - min(times.values()) <= 1
    assert told[None].total() == 442 and len(told) == 6


@pytest.mark.slow
def test_full_train_questions_share_nothing_with_test_and_repeat_nothing():
    tested = set().union(*(taught(question_table(subtask, "test", "paper")) for subtask in SUBTASKS))
    for subtask, rows in zip(SUBTASKS, FULL, strict=True):
        hashes: set[int] = set()
        for start in range(0, rows, 50_000):
            part = question_table(subtask, "train", "full", start=start, stop=min(rows, start + 50_000))
            hashes.update(map(hash, part["question"].to_pylist()))
            assert not taught(part) & tested
        assert len(hashes) == rows


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: question_table("multi_hop_5", "test"), "multi_hop_5 needs hops=5 or more, got hops=4"),
        (lambda: question_table("single_rule", "dev"), "'dev'.*Known: train, validation, test, .*, unseen"),
        (lambda: rule_table(dials="hops=6"), "dials must be given as in Dials.* got 'hops=6'"),
        (lambda: question_table("single_rule", "unseen"), "1.1 has no split 'unseen'.*or version '1.2'"),
        (lambda: question_table("single_rule", "test", "papr"), "unknown scale 'papr'; did you mean 'paper'"),
        (lambda: question_table("single_rule", "test", "tiny", True), "seed must be .* got True"),
        (lambda: question_table("single_rule", "test", "tiny", 0, 10, 51), r"rows \[10, 51\) .* table of 50"),
        (lambda: rule_table("test", "tiny"), "unknown split of rules 'test'"),
    ],
)
def test_user_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def lines_hash(*tables):
    """Hash rows as canonical JSON, so that no version of Arrow or parquet matters."""
    digest = sha256()
    for table in tables:
        for row in table.to_pylist():
            digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def tiny_hashes():
    hashes = {f"rules/{split}": lines_hash(rule_table(split, "tiny")) for split in RULE_SPLITS}
    return hashes | {
        f"{subtask}/{split}": lines_hash(question_table(subtask, split, "tiny"))
        for subtask in SUBTASKS
        for split in splits_of(VERSION)
    }


def paper_hashes():
    """Hash the test questions, and slices of the rules that meet every type."""
    slices = (rule_table(start=a, stop=b) for a, b in ((0, 1_000), (73_000, 81_000)))
    hashes = {"rules/train": lines_hash(*slices)}
    return hashes | {f"{subtask}/test": lines_hash(question_table(subtask, "test")) for subtask in SUBTASKS}


def dial_hashes():
    """Hash a tiny world with every dial turned."""
    dials = Dials(hops=6, parts=5, crowd=8, conjunction=2, thresholds=True)
    hashes = {"rules/train": lines_hash(rule_table("train", "tiny", dials=dials))}
    tables = {name: question_table(name, "test", "tiny", dials=dials) for name in subtasks_of(dials)}
    return hashes | {f"{name}/test": lines_hash(table) for name, table in tables.items()}


def kind_hashes():
    """Hash tiny worlds of data 1.2 whole: questions of every kind, in usual and in other words."""
    few, hashes = "hops=2,parts=2,", {}
    for text in ("", few + "compare=true,exceptions=2,words=0.5", few + "unknown=true,words=1.0"):
        dials = Dials.parse(text)
        made = {"scale": "tiny", "version": "1.2", "dials": dials}
        names = subtasks_of(dials)[:: 4 if dials == Dials() else 1]
        asked = [question_table(name, split, **made) for split in ("test", "unseen") for name in names]
        hashes[str(dials)] = lines_hash(rule_table(**made), *asked)
    return hashes


@pytest.mark.parametrize(
    ("scale", "version", "hashes"),
    [
        ("tiny", VERSION, tiny_hashes),
        ("paper", VERSION, paper_hashes),
        ("dials", VERSION, dial_hashes),
        ("kinds", "1.2", kind_hashes),
    ],
)
def test_tables_are_those_of_this_generator_version(scale, version, hashes):
    """Compare with tests/data/golden. If the data is meant to change, add a version and run

    RULEWORLD_UPDATE_GOLDEN=1 pytest tests/data/test_generate.py -k generator_version
    """
    path = GOLDEN / f"{scale}-{version}.json"
    found = {"generator_version": f"{version}.0", "tables": hashes()}
    if os.environ.get("RULEWORLD_UPDATE_GOLDEN") == "1":
        path.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(path.read_text())
    changed = [name for name, value in found["tables"].items() if golden["tables"].get(name) != value]
    assert not changed, f"generated tables changed: {changed}; see the docstring of this test"
    assert found == golden
