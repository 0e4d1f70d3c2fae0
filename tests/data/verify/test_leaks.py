"""The leak report: what it says of an honest build, and that planted leaks and shortcuts show."""

import json
import re
from collections import Counter, defaultdict
from itertools import product
from math import hypot, log
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ruleworld_data.io import build
from ruleworld_data.scoring.memory import PROBES, memory
from ruleworld_data.scoring.shortcuts import SHORTCUT_BAR, SHORTCUTS, bar, shortcuts
from ruleworld_data.spec import Dials, subtasks_of
from ruleworld_data.verify import leak_report, render_leaks


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaks") / "tiny"
    build(folder, "tiny")
    return folder


@pytest.fixture(scope="module")
def honest(tiny):
    return leak_report(tiny)


def rows(folder, config, split):
    return pq.read_table(next((folder / config).glob(f"{split}-*.parquet"))).to_pylist()


def test_an_honest_build_leaks_nothing(honest):
    assert not any(honest["duplicates"].values())
    for split in ("validation", "test", "mini", "heldout"):
        assert honest["overlap"][split]["instances"] == 0
        assert honest["overlap"][split]["sub_questions"] == 0
    assert honest["overlap"]["heldout"]["gold_rules"] == 0
    assert honest["overlap"]["test"]["gold_rules"] > 0.3  # the test split asks about known rules in new ways
    assert all(leaks["unchanged_share"] == 0 for leaks in honest["subtasks"].values())
    assert json.loads(json.dumps(honest))["questions"]["train"] == 1100


def test_shares_against_a_plain_count(tiny, honest):
    test, train = rows(tiny, "multi_rule_3", "test"), rows(tiny, "multi_rule_3", "train")
    answers = Counter(answer for row in test for answer in row["answers"])
    leaks = honest["subtasks"]["multi_rule_3"]
    assert answers[leaks["top_answer"]] == max(answers.values())
    assert leaks["top_share"] == pytest.approx(max(answers.values()) / answers.total())
    assert leaks["skeletons"] == Counter(row["skeleton"] for row in test)
    learnt = Counter(pair for row in train for pair in zip(row["answer_types"], row["answers"], strict=True))
    best = {kind: max(n for (k, _), n in learnt.items() if k == kind) for kind, _ in learnt}
    tied = {kind: [a for (k, a), n in learnt.items() if (k, n) == (kind, top)] for kind, top in best.items()}
    means = []
    for guesses in product(*tied.values()):
        guess = dict(zip(tied, guesses, strict=True))
        hits = [
            [guess[k] == a for k, a in zip(row["answer_types"], row["answers"], strict=True)] for row in test
        ]
        means.append(sum(sum(row) / len(row) for row in hits) / len(hits))
    assert any(leaks["majority_exact_match"] == pytest.approx(mean) for mean in means)
    reads_off = [
        answer == str(int(step["state"].rsplit(", ", 1)[1][:-1])) and " = " not in step["fol"]
        for row in test
        for answer, step, kind in zip(row["answers"], row["steps"], row["answer_types"], strict=True)
        if kind == "count"
    ]
    assert leaks["initial_share"] == pytest.approx(sum(reads_off) / answers.total())


DOCS, NUMBER = Path(__file__).parents[3] / "ruleworld-data/docs", "number in the question"


def top(scores):
    """The sub-task that a shortcut scores best on, as the pages have it."""
    name = max(scores.keys() - {"all"}, key=scores.get)
    return f"{scores[name]:.3f} (`{name}`)"


@pytest.mark.parametrize(
    "dials", [Dials(), Dials(hops=6, crowd=6), Dials(conjunction=2, thresholds=True, parts=6)], ids=str
)
def test_no_shortcut_reaches_its_bar(tmp_path, dials):
    build(tmp_path, "tiny", dials=dials)
    found = shortcuts(tmp_path)
    assert set(found) == set(SHORTCUTS)
    for name, scores in found.items():
        assert scores.keys() - {"all"} == set(subtasks_of(dials))
        assert 0 < scores["all"] <= bar(50 * (len(scores) - 1)) and max(scores.values()) <= bar(50), (
            name,
            scores,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "dials",
    [
        Dials(),
        Dials(hops=6),
        Dials(crowd=16, conjunction=2),
        Dials(crowd=2),
        Dials(thresholds=True),
    ],
    ids=str,
)
def test_no_shortcut_reaches_its_bar_at_scale_paper(tmp_path, dials):
    build(tmp_path, "paper", dials=dials, jobs=2)
    found = shortcuts(tmp_path)
    for name, scores in found.items():
        assert scores["all"] <= SHORTCUT_BAR and max(scores.values()) <= bar(500), (name, scores)
    # And the pages print what is measured, to the last digit.
    mean, highest = re.search(
        rf"^\| `?{str(dials) or 'none'}`? \| ([\d.]+) \| (.*) \|$",
        (DOCS / "dials.md").read_text(),
        flags=re.M,
    ).groups()
    assert (mean, highest) == (f"{found[NUMBER]['all']:.3f}", top(found[NUMBER]))
    if not dials.to_dict():
        _, shortcut, known = re.split("## Shortcuts|## Memory", (DOCS / "data-card.md").read_text())
        rows = re.findall(r"^\| .* \| (0[\d.]+) \| (.*) \|$", shortcut, flags=re.M)
        assert rows == [(f"{found[name]['all']:.3f}", top(found[name])) for name in SHORTCUTS]
        old = memory(tmp_path)["train by heart"]
        assert (
            f"{old['heldout']['all']:.3f} of its `heldout` and {old['test']['all']:.3f} of its `test`"
            in known
        )
        build(tmp_path / "1.2", "paper", version="1.2", jobs=2)
        columns = [scores for splits in memory(tmp_path / "1.2").values() for scores in splits.values()]
        assert all(scores["all"] < 0.1 for scores in columns[:2] + columns[3:5])
        rows = re.findall(r"^\| \w+ (?:\| [\d.]+ )+\|$", known, flags=re.M)
        assert [row.split()[3::2] for row in rows] == [
            [f"{scores[name]:.3f}" for scores in columns] for name in columns[0]
        ]


def test_shortcuts_against_plain_counts(tiny):
    found = shortcuts(tiny)
    train, test = rows(tiny, "multi_hop_4", "train"), rows(tiny, "multi_hop_4", "test")
    counts = Counter(row["answers"][0] for row in train)
    best = [answer for answer, n in counts.items() if n == max(counts.values())]
    shares = [sum(row["answers"] == [answer] for row in test) / len(test) for answer in best]
    assert any(found["answer prior"]["multi_hop_4"] == pytest.approx(share) for share in shares)
    words = [Counter(re.findall(r"\w+", row["question"].lower())) for row in [*train, *test]]
    known, asked = words[: len(train)], words[len(train) :]
    rarity = {
        word: log(len(train) / sum(word in each for each in known) + 1) for each in known for word in each
    }

    def alike(one, other):
        weigh = [{word: n * rarity.get(word, 0) for word, n in each.items()} for each in (one, other)]
        return sum(weigh[0].get(word, 0) * n for word, n in weigh[1].items()) / hypot(*weigh[1].values())

    nearest = [max(range(len(train)), key=lambda i: alike(one, known[i])) for one in asked]
    right = [train[i]["answers"] == row["answers"] for i, row in zip(nearest, test, strict=True)]
    assert found["nearest training question"]["multi_hop_4"] == pytest.approx(
        sum(right) / len(test), abs=0.021
    )
    prior = [score for name, score in found["answer prior"].items() if name != "all"]
    assert found["answer prior"]["all"] == pytest.approx(sum(prior) / 11)


def test_memory_against_a_plain_count(tiny):
    def parts(split, config):
        for row in rows(tiny, config, split):
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
    known = memory(tiny)["train by heart"]
    assert (
        known["test"]["single_rule"] == pytest.approx(sum(right) / len(right), abs=0.021) and sum(right) > 15
    )
    assert known["heldout"]["all"] < 0.15 < known["test"]["all"]


def test_clauses_that_train_has_with_other_numbers_are_remembered(tiny, tampered):
    copy = tampered(tiny)
    planted = [row for row in copy.rows("single_rule", "test") if "Has(" in row["facts"][0]]
    for row in planted:
        row["facts"] = [re.sub(r"(, )(\d+)\)", lambda m: f"{m[1]}{int(m[2]) + 5})", row["facts"][0], count=1)]
        row["answers"] = [str(int(row["answers"][0]) + 5)]
    copy.write("single_rule", "train", planted * 9)
    known = memory(copy.folder)
    asked = len(planted) / 50
    assert known.keys() == PROBES.keys()
    for scores in known.values():
        assert scores["test"]["single_rule"] > 0.9 * asked > 0.4
        assert scores["heldout"]["all"] < 0.15


def test_planted_shortcuts_show(tiny, tampered):
    copy = tampered(tiny)
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
    assert "above the bar: multi_hop_4" in render_leaks(report)


def test_planted_leaks_show(tiny, tampered):
    copy = tampered(tiny)
    test, train = copy.rows("multi_hop_3", "test"), copy.rows("multi_hop_3", "train")
    for number in range(10):
        train[number] = test[number] | {"id": train[number]["id"]}
    train[20]["question"] = train[21]["question"]
    copy.write("multi_hop_3", "train", train)
    single = copy.rows("single_rule", "test")
    for row in single:
        row["question"] = f"{row['question']} I guess {row['answers'][0]}."
    copy.write("single_rule", "test", single)
    report = leak_report(copy.folder)
    assert report["duplicates"]["train"] == 1 and report["duplicates"]["train/test"] == 10
    assert report["overlap"]["test"]["instances"] == pytest.approx(10 / 550)
    assert report["overlap"]["test"]["sub_questions"] > 0
    assert report["subtasks"]["single_rule"]["visible_share"] == 1
    assert report["subtasks"]["multi_hop_4"]["visible_share"] < 0.2
    shown = render_leaks(report)
    assert "train/test" in shown and "multi_hop_3" in shown


def test_a_damaged_build_is_refused(tiny, tampered, tmp_path):
    with pytest.raises(FileNotFoundError, match="ruleworld build"):
        leak_report(tmp_path)
    copy = tampered(tiny)
    copy.path("single_rule", "test").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="ruleworld verify"):
        leak_report(copy.folder)
