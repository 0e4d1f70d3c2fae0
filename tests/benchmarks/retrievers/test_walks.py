"""Searches that walk from rule to rule: by graph against a dense solution, from both ends against loops over sets."""

import math
import random
from collections import Counter

import numpy as np
import pytest
from dynarule.bank import parts_of
from rwbench.retrievers import Retriever
from rwbench.retrievers.both_ends import BothEnds, content
from rwbench.retrievers.graph import Graph
from rwbench.retrievers.tokenize import identifier_aware, with_pairs

from ..script import RULES

IDS = np.array([7, 3, 5, 1, 9, 2], dtype=np.int32)
QUESTION = "What happens to whom it chases?"


def walk(question, damping, sharpness):
    """Where a walk is in the long run: x = (1 - d) r + d P'x, solved densely; rules are the first nodes."""
    terms = {text: with_pairs(identifier_aware(text)) for text in (*RULES, question)}
    names = list(dict.fromkeys(term for text in RULES for term in terms[text]))
    size, count = len(RULES), {name: sum(name in terms[text] for text in RULES) for name in names}
    weight = {name: math.log(1 + (size - n + 0.5) / (n + 0.5)) ** sharpness for name, n in count.items()}
    edges = np.zeros((size + len(names),) * 2)
    for row, text in enumerate(RULES):
        for name in terms[text]:
            edges[row, size + names.index(name)] = edges[size + names.index(name), row] = weight[name]
    steps = edges / edges.sum(1, keepdims=True)
    start = np.array([0.0] * size + [weight[name] * (name in terms[question]) for name in names])
    start /= start.sum()
    return np.linalg.solve(np.eye(len(start)) - damping * steps.T, (1 - damping) * start)[:size]


@pytest.mark.parametrize(("damping", "sharpness"), [(0.85, 2.0), (0.5, 1.0)])
def test_scores_are_the_walks_shares(damping, sharpness, search):
    (hits,) = search(Graph(damping=damping, sharpness=sharpness), IDS, RULES, [QUESTION], 6)
    wanted = walk(QUESTION, damping, sharpness)
    assert hits.ids.tolist() == IDS[np.argsort(-wanted)].tolist()
    assert np.allclose(hits.scores, np.sort(wanted)[::-1] / wanted.max(), atol=1e-8)


def test_unknown_words_find_nothing_and_bad_settings_are_refused(search):
    assert len(search(Graph(), IDS, RULES, ["zebra", ""], 3)[0].ids) == 0
    assert Retriever.from_dict(Graph(damping=0.5).to_dict()) == Graph(damping=0.5)
    for bad in ({"damping": 1.0}, {"sharpness": -1}):
        with pytest.raises(ValueError, match="Input should be"):
            Graph(**bad)


def by_loops(rules, asked, known, count, width):
    """Scores by loops over sets of terms, a rule at a time: forward from what is known, backward from what is asked."""
    premises, conclusions = ([set(content(parts_of(text)[side])) for text in rules] for side in (0, 1))
    counts = Counter(term for pair in zip(premises, conclusions, strict=True) for term in set.union(*pair))

    def weight(terms):
        return sum(
            math.log(1 + (len(rules) - counts[t] + 0.5) / (counts[t] + 0.5)) ** 2
            for t in sorted(terms)
            if t in counts
        )

    def levels(start, leave, reach):
        best, level = start, start
        for _ in range(count - 1):
            chosen = sorted(range(len(rules)), key=lambda rule: (-level[rule], rule))[:width]
            level = [
                max(
                    level[rule] * (weight(leave[rule] & b) / min(weight(leave[rule]), weight(b))) ** 2
                    for rule in chosen
                )
                for b in reach
            ]
            best = list(map(max, best, level))
        return np.array(best)

    said, goal = set(content(known)), set(content(asked))
    forward = levels([weight(each & said) / weight(each) for each in premises], conclusions, premises)
    backward = levels([weight(each & goal) / weight(each) for each in conclusions], premises, conclusions)
    return forward * (0.1 + backward)


@pytest.mark.parametrize(("seed", "width"), [(seed, 1 + seed % 5) for seed in range(8)])
def test_scores_are_the_formula_where_rules_share_premises_and_say_a_word_twice(seed, width, monkeypatch):
    """Many rules of few words, in an order of which equals know nothing, some of them at a time."""
    monkeypatch.setattr("rwbench.retrievers.both_ends.CHUNK", 7)
    draw = random.Random(seed)
    items = [f"{how} {what}" for how in ("wet", "red", "old") for what in ("fin", "toe", "bell", "horn")]
    often = draw.choices(items, k=5) * 3 + items
    rules = [f"If A has the {draw.choice(often)}, it gets the {draw.choice(often)}." for _ in range(30)]
    asked = f"A {draw.choice(items)} and a {draw.choice(items)}: is there a {draw.choice(items)}?"
    known = f"A {draw.choice(items)}."
    score = BothEnds(levels=3, width=width).scorer(np.arange(30, dtype=np.int32), rules)
    for query, last in ((asked, asked), (f"{asked}\n{known}", known)):
        row = score(query)
        assert np.where(row > 0, row, 0) == pytest.approx(by_loops(rules, asked, last, 3, width), abs=1e-8)


def test_both_languages_and_words_in_other_forms():
    """Variables, amounts and stop words link nothing."""
    rules = ("Jealous(A) => Lose_Fin(A, 2)", "Lose_Fin(A, 1) => Gain_Feather(A, 4)", "Dog(A) => Has(Horn, 3)")
    scorer = BothEnds().scorer(np.arange(3, dtype=np.int32), rules)
    row = scorer("A dog is jealous. How many feathers will it have?")
    assert row[0] > row[2] and row[1] > row[2] > 0
    assert content("If A has 3 of the B, it will be so.") == ["has", "so", "has so"]
    assert (scorer("the of and") == -np.inf).all()
