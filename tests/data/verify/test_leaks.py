"""The leak report against plain counts, and that planted shortcuts show."""

import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from ruleworld_data.io import build
from ruleworld_data.spec import Dials, subtasks_of
from ruleworld_data.verify import leak_report, render_leaks
from ruleworld_data.verify.leaks import SHORTCUT_BAR, memory, shortcuts
from ruleworld_data.verify.probes import MEMORY, SHORTCUTS


def rows(folder, config, split):
    return pq.read_table(next((folder / config).glob(f"{split}-*.parquet"))).to_pylist()


def test_no_shortcut_reaches_its_bar(tmp_path):
    dials = Dials(hops=5, conjunction=2, thresholds=True, parts=3)
    build(tmp_path, "tiny", dials=dials)
    found, limits = shortcuts(tmp_path)
    assert set(found) == set(SHORTCUTS) and set(limits) == set(subtasks_of(dials))
    assert limits == pytest.approx(dict.fromkeys(limits, 0.1 + 3 * (0.1 * 0.9 / 50) ** 0.5))
    for scores in found.values():
        assert scores.keys() - {"all"} == set(limits) and 0 < scores["all"] < 0.12
        assert all(scores[subtask] <= limit for subtask, limit in limits.items()), scores


@pytest.mark.slow
@pytest.mark.parametrize(
    "dials",
    [
        Dials(),
        Dials(hops=6),
        Dials(crowd=16, conjunction=2),
        Dials(crowd=2),
        Dials(thresholds=True),
        Dials(exceptions=2),
    ],
    ids=str,
)
def test_no_shortcut_reaches_its_bar_at_scale_paper(tmp_path, dials):
    build(tmp_path, "paper", dials=dials, jobs=2)
    found, limits = shortcuts(tmp_path)
    for name, scores in found.items():
        assert scores["all"] <= SHORTCUT_BAR, (name, scores)
        assert all(scores[subtask] <= limit for subtask, limit in limits.items()), (name, scores)
    if not dials.to_dict():
        build(tmp_path / "1.2", "paper", version="1.2", jobs=2)
        columns = [scores for splits in memory(tmp_path / "1.2").values() for scores in splits.values()]
        assert all(scores["all"] < 0.1 for scores in columns[:2] + columns[3:5])


def test_shortcuts_against_plain_counts(built):
    found, _ = shortcuts(built)
    train, test = rows(built, "multi_hop_4", "train"), rows(built, "multi_hop_4", "test")
    counts = Counter(row["answers"][0] for row in train)
    best = [answer for answer, n in counts.items() if n == max(counts.values())]
    shares = [sum(row["answers"] == [answer] for row in test) / len(test) for answer in best]
    assert any(found["answer prior"]["multi_hop_4"] == pytest.approx(share) for share in shares)
    prior = [score for name, score in found["answer prior"].items() if name != "all"]
    assert found["answer prior"]["all"] == pytest.approx(sum(prior) / 11)


def test_clauses_that_train_has_with_other_numbers_are_remembered(built, tampered):
    copy = tampered(built)
    planted = [row for row in copy.rows("single_rule", "test") if "Has(" in row["facts"][0]]
    for row in planted:
        row["facts"] = [re.sub(r"(, )(\d+)\)", lambda m: f"{m[1]}{int(m[2]) + 5})", row["facts"][0], count=1)]
        row["answers"] = [str(int(row["answers"][0]) + 5)]
    copy.write("single_rule", "train", planted * 9)
    known = memory(copy.folder)
    asked = len(planted) / 50
    assert known.keys() == MEMORY.keys()
    assert (
        memory(built)["train by heart"]["heldout"]["all"]
        < 0.15
        < memory(built)["train by heart"]["test"]["all"]
    )
    for scores in known.values():
        assert scores["test"]["single_rule"] > 0.9 * asked > 0.4
        assert scores["heldout"]["all"] < 0.15


def test_planted_shortcuts_show(built, tampered):
    copy = tampered(built)
    test, train = copy.rows("multi_hop_4", "test"), copy.rows("multi_hop_4", "train")
    for row in [*test, *train]:
        row["question"] += f" Code {chr(ord('a') + int(row['answers'][0]) % 26) * 3}." * 20
    copy.write("multi_hop_4", "test", test)
    copy.write("multi_hop_4", "train", train)
    known = {row["answers"][0] for row in train}
    possible = sum(row["answers"][0] in known for row in test) / len(test)
    for split in ("train", "test"):
        single = copy.rows("single_rule", split)
        for row in single:
            if row["answer_types"] == ["count"] and "Has(" in row["facts"][0]:
                row["answers"] = [str(int(re.search(r"Has\(.*?(\d+)\)", row["facts"][0])[1]) + 2)]
        copy.write("single_rule", split, single)
    report = leak_report(copy.folder)
    assert report["above_bar"]["question only"]["multi_hop_4"] > possible - 0.1 > 0.6
    assert report["above_bar"]["number in the question"]["single_rule"] > 0.5
    assert re.search(r"question only .*multi_hop_4", render_leaks(report))
