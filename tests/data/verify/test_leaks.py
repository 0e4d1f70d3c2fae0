"""The leak report against plain counts, and that planted shortcuts show."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ruleworld_data.io import build
from ruleworld_data.spec import Dials, subtasks_of
from ruleworld_data.verify import leak_report, render_leaks
from ruleworld_data.verify.leaks import SHORTCUT_BAR, memory, shortcuts
from ruleworld_data.verify.probes import MEMORY, SHORTCUTS


def rows(folder, config, split):
    return pq.read_table(next((folder / config).glob(f"{split}-*.parquet"))).to_pylist()


DOCS, NUMBER = Path(__file__).parents[3] / "ruleworld-data/docs", "number in the question"


def top(scores):
    """The sub-task that a shortcut scores best on, as the pages have it."""
    name = max(scores.keys() - {"all"}, key=scores.get)
    return f"{scores[name]:.3f} (`{name}`)"


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
    "dials", ["", "hops=6", "crowd=16,conjunction=2", "crowd=2", "thresholds=true", "exceptions=2"]
)
def test_no_shortcut_reaches_its_bar_at_scale_paper(tmp_path, dials):
    build(tmp_path, "paper", dials=Dials.parse(dials), jobs=2)
    found, limits = shortcuts(tmp_path)
    for name, scores in found.items():
        assert scores["all"] <= SHORTCUT_BAR, (name, scores)
        assert all(scores[subtask] <= limit for subtask, limit in limits.items()), (name, scores)
    # And the pages print what is measured, to the last digit.
    mean, highest = re.search(
        rf"^\| `?{dials or 'none'}`? \| ([\d.]+) \| (.*) \|$", (DOCS / "dials.md").read_text(), flags=re.M
    ).groups()
    assert (mean, highest) == (f"{found[NUMBER]['all']:.3f}", top(found[NUMBER]))
    if not dials:
        _, shortcut, known = re.split("## Shortcuts|## Memory", (DOCS / "data-card.md").read_text())
        rows = re.findall(r"^\| .* \| (0[\d.]+) \| (.*) \|$", shortcut, flags=re.M)
        assert rows == [(f"{found[name]['all']:.3f}", top(found[name])) for name in SHORTCUTS]
        old = memory(tmp_path)["train by heart"]
        assert (
            f"{old['heldout']['all']:.3f} of its `heldout` and {old['test']['all']:.3f} of its `test`"
            in known
        )
        build(tmp_path / "1.2", "paper", version="1.2", jobs=2)
        unseen, _ = shortcuts(tmp_path / "1.2", "unseen")
        assert max(max(scores.values()) for scores in unseen.values()) <= SHORTCUT_BAR, unseen
        columns = [scores for splits in memory(tmp_path / "1.2").values() for scores in splits.values()]
        assert all(scores["all"] < 0.1 for scores in columns[:2] + columns[3:5])
        rows = re.findall(r"^\| \w+ (?:\| [\d.]+ )+\|$", known, flags=re.M)
        assert [row.split()[3::2] for row in rows] == [
            [f"{scores[name]:.3f}" for scores in columns] for name in columns[0]
        ]


def test_shortcuts_against_plain_counts(built):
    found, _ = shortcuts(built)
    train, test = rows(built, "multi_hop_4", "train"), rows(built, "multi_hop_4", "test")
    counts = Counter(row["answers"][0] for row in train)
    best = [answer for answer, n in counts.items() if n == max(counts.values())]
    shares = [sum(row["answers"] == [answer] for row in test) / len(test) for answer in best]
    assert any(found["answer prior"]["multi_hop_4"] == pytest.approx(share) for share in shares)
    prior = [score for name, score in found["answer prior"].items() if name != "all"]
    assert found["answer prior"]["all"] == pytest.approx(sum(prior) / 11)


def test_memory_against_a_plain_count(built):
    def parts(split, config):
        for row in rows(built, config, split):
            for facts, query, answer in zip(row["facts"], row["queries"], row["answers"], strict=True):
                facts = re.sub(r"\w+\(y\) & ", "", facts).replace("Drop_", "Lose_")
                facts = re.sub("(?:Get|Receive)_", "Gain_", facts)
                stated, units = re.search(r"Has\([^)]*, (\d+)\)", facts), re.search(r"\(x, (\d+)\)$", facts)
                clause = (re.sub(r"\d+", "", facts), query) if stated else (facts, query)
                yield clause, int(stated[1]) if stated else None, int(units[1]) if units else 1, answer

    changes, answers = defaultdict(Counter), Counter()
    for config in subtasks_of(Dials()):
        for clause, stated, units, answer in parts("train", config):
            answers[answer] += 1
            changes[clause][answer if stated is None else (int(answer) - stated) / units] += 1
    right = []
    for clause, stated, units, answer in parts("test", "single_rule"):
        best = max(changes[clause].values(), default=0)
        guesses = {change for change, n in changes[clause].items() if n == best} or {
            max(answers, key=answers.get)
        }
        right.append(answer in {g if stated is None else str(int(g * units) + stated) for g in guesses})
    known = memory(built)["train by heart"]
    assert (
        known["test"]["single_rule"] == pytest.approx(sum(right) / len(right), abs=0.021) and sum(right) > 15
    )
    assert known["heldout"]["all"] < 0.15 < known["test"]["all"]


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
