"""The command line: what it prints, its exit codes, and that users' errors are messages, never tracebacks."""

import json
import re
import shutil

import pyarrow.parquet as pq
import pytest
from ruleworld_data import show
from ruleworld_data.cli import app
from ruleworld_data.spec import VERSION, Dials, splits_of
from typer.testing import CliRunner

from .cases import blocks, question_table


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_show_names_the_dials_that_are_turned():
    words = ("--scale", "tiny", "--data-version", "1.1", "--dials", "crowd=6")
    told = run("show", "multi_hop_6", *words).output
    dials = Dials(hops=6, crowd=6)
    assert told.startswith(f"RuleWorld 1.1, world rw-0-{dials.tag}, scale tiny, hops=6,crowd=6\n")
    row = question_table("multi_hop_6", "test", "tiny", version="1.1", dials=dials).slice(0, 1).to_pylist()[0]
    assert row["question"] in told and f"\\boxed{{{row['answers'][0]}}}" in told


def test_show_prints_question_rules_and_proof_or_json():
    words = ("show", "multi_hop_3", "--n", "3", "--scale", "tiny")
    rows = question_table("multi_hop_3", "test", "tiny").slice(0, 3).to_pylist()
    shown = json.loads(run(*words, "--json").output)["rows"]
    assert [{k: v for k, v in row.items() if k != "rules"} for row in shown] == rows
    text, logic, english = (run(*words, *form).output for form in ((), ("--form", "fol"), ("--form", "nl")))
    for row, with_rules in zip(rows, shown, strict=True):
        assert row["question"] in text and f"\\boxed{{{row['answers'][0]}}}" in text
        assert [rule["id"] for rule in with_rules["rules"]] == row["gold_rule_ids"]
        for rule in with_rules["rules"]:
            assert f"[{rule['id']}]" in text and rule["nl"] in english
            assert rule["fol"] in logic and rule["nl"] not in logic


def test_cells_of_tables_do_not_reach_the_terminal():
    """Skeleton names of `stats` come from a build's files, which may be anyone's."""
    assert show.table_text(["skeleton", "n"], [["a\x1b[2J", 1234], ["?", 5]]).splitlines() == [
        "| skeleton |     n |",
        "| -------- | ----: |",
        "| a\\x1b[2J | 1,234 |",
        "| ?        |     5 |",
    ]


def test_stats_count_what_the_shards_hold(built):
    stats = json.loads(run("stats", built, "--json").output)
    for row in stats["questions"][:-1]:
        for split in splits_of(VERSION):
            files = (built / row["questions"]).glob(f"{split}-*.parquet")
            assert row[split] == sum(pq.read_metadata(file).num_rows for file in files)
        assert sum(row[kind] for kind in ("counts", "environments", "states", "creatures")) == pytest.approx(
            1
        )
    assert {"rules": "action2state", "train": 32, "heldout": 32} in stats["rules"]
    assert sum(row["train"] for row in stats["skeletons"] if row["sub-task"] == "multi_hop_2") == 100
    text = run("stats", built).output
    assert "multi_rule_8" in text and "1,984" in text


def test_verify_passes_a_build_and_names_what_is_wrong(built, tmp_path):
    good = run("verify", built, "--jobs", "1", "--solver", "executor", "--json", "--leaks")
    assert good.exit_code == 0, good.output
    report = json.loads(good.stdout)
    assert report["ok"] and report["leaks"]["above_bar"] == {}
    assert "solvers must be" in run("verify", built, "--solver", "prolog").output
    copy = shutil.copytree(built, tmp_path / "copy")
    (copy / "multi_hop_4" / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    bad = run("verify", copy, "--jobs", "1", "--solver", "executor")
    assert bad.exit_code == 2
    assert re.search(r"multi_hop_4/test-00000-of-00001\.parquet was changed .* ruleworld build", bad.output)


@pytest.mark.parametrize(("words", "told"), blocks(__file__, "mistakes.txt")[0])
def test_user_errors_are_one_message_and_exit_code_2(words, told, tmp_path):
    places = {name: tmp_path / name for name in ("full", "new")}
    places["full"].mkdir()
    (places["full"] / "something").write_text("")
    result = run(*words.format(**places).split())
    assert result.exit_code == 2
    assert told in result.output
    assert "Traceback" not in result.output
    assert not places["new"].exists()
