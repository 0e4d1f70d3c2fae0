"""Our own methods on a kit: what they see and answer there is what they see and answer in a run."""

import json
import shutil
from dataclasses import replace

import pytest
from rwbench.backends.local import Local
from rwbench.leaderboard.kit import POOLS, QUESTIONS, RULES, answer_kit, kit_spec, read_kit, write_kit
from rwbench.methods.memory import DynaRule

ASKED = 4


@pytest.fixture(scope="module")
def kit(judge, tmp_path_factory):
    """The kit of fifty two-hop questions, cut to the first few."""
    folder = tmp_path_factory.mktemp("kit")
    write_kit(folder, judge, kit_spec(100, "tiny", "mini", ["multi_hop_2"]))
    lines = (folder / QUESTIONS).read_text().splitlines(keepends=True)
    (folder / QUESTIONS).write_text("".join(lines[:ASKED]))
    return folder


def test_rules_of_a_kit_have_the_conclusions_of_the_rule_table(kit, workspace):
    rules, known = read_kit(kit, "nl")[0].rules, workspace.rules("mini")
    assert len(rules.ids) > 1_000
    for column in ("nl", "fol", "conclusion_nl", "conclusion_fol"):
        assert rules.texts(rules.ids, column) == known.texts(rules.ids, column)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (QUESTIONS, b"{}\n"),
        (QUESTIONS, b'{"id": 1, "subtask": "multi_hop_2", "question": "?", "pool": 0}\n'),
        (QUESTIONS, b'{"id": "a", "subtask": "multi_hop_2", "question": null, "pool": {}}\n'),
        (QUESTIONS, b"\xff\n"),
        (POOLS, b'{"pool": 0, "rules": 5}\n'),
        (POOLS, b'{"pool": 0, "rules": ["a"]}\n'),
        (POOLS, b'{"pool": 0, "rules": [99999999999]}\n'),
        (POOLS, b"[" * 100_000 + b"\n"),
        (RULES, b"PAR1 and no more"),
        (RULES, None),
    ],
)
def test_a_damaged_kit_is_told_in_a_line(name, body, kit, tmp_path):
    """None: bytes in the middle of the parquet file, whose texts are then no UTF-8 or do not unpack."""
    copy = shutil.copytree(kit, tmp_path / "kit")
    whole = (copy / name).read_bytes()
    half = len(whole) // 2
    (copy / name).write_bytes(whole[:half] + b"\xff" * 99 + whole[half + 99 :] if body is None else body)
    with pytest.raises(ValueError, match="is no kit as `rwbench kit` writes it") as told:
        read_kit(copy, "nl")
    assert str(told.value).isprintable()


def test_a_rule_memory_answers_a_kit_as_it_answers_a_run(kit, workspace, small_spec, tmp_path):
    """The shipped model: it reads conclusions, which a kit does not spell out."""
    method = DynaRule.of(Local.of("tiny"), "nl", max_new_tokens=40)
    spec = replace(small_spec(method), top_k=10)
    assert answer_kit(kit, spec, tmp_path / "out.jsonl") == ASKED
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    asked = {row["id"] for row in rows}
    work = [(pool, pool.questions) for pool in workspace.pools(spec) if pool.questions[0].id in asked]
    ours = {output.id: output for output in method.run(work, spec.top_k)}
    assert {row["id"]: (row["output"], row["retrieved"]) for row in rows} == {
        name: (output.text, output.retrieved) for name, output in ours.items()
    }
    assert all(row["retrieved"] for row in rows)
