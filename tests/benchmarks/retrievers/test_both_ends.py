"""A search from both ends: of the rules that fit a question or a step, those on the way to what is asked come first."""

import math
import random
from collections import Counter

import numpy as np
import pytest
from dynarule.bank import conclusion_of, premise_of
from rwbench.retrievers.both_ends import BothEnds, content


def by_loops(rules, asked, known, count, width):
    """Scores by loops over sets of terms, a rule at a time: forward from what is known, backward from what is asked."""
    premises, conclusions = (
        [set(content(part(text))) for text in rules] for part in (premise_of, conclusion_of)
    )
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
    rows = score([asked, f"{asked}\n{known}"])
    for row, last in zip(rows, (asked, known), strict=True):
        assert np.where(row > 0, row, 0) == pytest.approx(by_loops(rules, asked, last, 3, width), abs=1e-8)


def test_both_languages_and_words_in_other_forms():
    """Variables, amounts and stop words link nothing."""
    rules = ("Jealous(A) => Lose_Fin(A, 2)", "Lose_Fin(A, 1) => Gain_Feather(A, 4)", "Dog(A) => Has(Horn, 3)")
    scorer = BothEnds().scorer(np.arange(3, dtype=np.int32), rules)
    (row,) = scorer(["A dog is jealous. How many feathers will it have?"])
    assert row[0] > row[2] and row[1] > row[2] > 0
    assert content("If A has 3 of the B, it will be so.") == ["has", "so", "has so"]
    assert (scorer(["the of and"])[0] == -np.inf).all()
