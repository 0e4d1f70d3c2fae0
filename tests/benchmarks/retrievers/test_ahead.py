"""BM25 that looks ahead: of the rules that fit a step, the one that leads to what is asked comes first."""

import numpy as np
import pytest
from dynarule.bank import conclusion_of, premise_of
from rwbench.retrievers.ahead import Ahead
from rwbench.retrievers.bm25 import BM25

RULES = (
    "If A is in the tundra, it becomes deeply jealous.",
    "If A is deeply jealous, it loses 2 fins.",
    "If A is deeply jealous, it gets 3 bells.",
    "If A is deeply jealous, it drops 1 shard.",
    "If A loses 2 fins, it gains 4 feathers.",
    "If A drops 1 shard, it gains 5 toes.",
    "If A is a tiny cat, it has 7 feathers.",
    *(
        f"If A is in the {place}, it becomes {state}."
        for place in ("bridge", "ferry", "attic", "cave")
        for state in ("angry", "rude")
    ),
    *(
        f"If A is a {creature}, it has {count} horns."
        for count, creature in enumerate(("dog", "pig", "owl", "ant"), 3)
    ),
)
ASKED = "A tiny cat is in the tundra. How many feathers does it have?"
IDS = np.arange(len(RULES), dtype=np.int32)


def found(retriever, *lines, k=1):
    (hits,) = retriever.index(IDS, RULES).search(["\n".join(lines)], k)
    return hits.ids.tolist()


@pytest.mark.parametrize(
    ("known", "rule"),
    [
        ("The tiny cat is deeply jealous", 1),
        ("The tiny cat loses 2 fins", 4),
    ],
)
def test_of_rules_with_one_premise_the_one_that_leads_on_is_first(known, rule):
    assert found(Ahead(), ASKED, known) == [rule]


def test_a_first_step_says_no_more_than_the_question():
    """What it asks for, and the rule that has the creature's own number, of which both are needed."""
    assert set(found(Ahead(), ASKED, "The tiny cat is in the tundra", k=2)) == {0, 6}


def test_other_questions_lead_elsewhere():
    """The same state, asked for something else."""
    assert found(Ahead(), ASKED.replace("feathers", "toes"), "The tiny cat is deeply jealous") == [3]
    assert found(Ahead(), ASKED.replace("feathers", "bells"), "The tiny cat is deeply jealous") == [2]


def test_the_state_alone_does_not_tell():
    (hits,) = BM25().index(IDS, RULES).search(["deeply jealous"], 4)
    assert len({score for rule, score in zip(hits.ids, hits.scores, strict=True) if rule in (1, 2, 3)}) == 1


def test_a_level_is_the_most_over_the_rules_that_may_follow():
    """The levels by hand, from BM25's scores of conclusions."""
    conclusions, premises = list(map(conclusion_of, RULES)), list(map(premise_of, RULES))
    score = BM25().scorer(IDS, conclusions)

    def relative(query):
        row = np.maximum(score([query])[0], 0.0)
        return row / row.max() if row.max() else row

    levels = [relative(ASKED)]
    for _ in range(2):
        levels.append(np.max([relative(premises[j]) ** 4 * levels[-1][j] for j in range(len(RULES))], axis=0))
    # A question alone is what is known and what is asked, so its scores are its premises' and the levels together.
    state = np.maximum(BM25().scorer(IDS, premises)([ASKED])[0], 0.0)
    (row,) = Ahead(levels=3, width=len(RULES)).scorer(IDS, RULES)([ASKED])
    assert row == pytest.approx(state / state.max() + np.max(levels, axis=0), abs=1e-6)


@pytest.mark.parametrize("odd", [{"levels": 0}, {"width": 0}, {"sharpness": 0.0}])
def test_settings_that_cannot_be(odd):
    with pytest.raises(ValueError, match="looking ahead needs levels >= 1"):
        Ahead(**odd)


def test_what_neither_fits_nor_leads_on_is_not_found():
    """Rules without a score would stand in every list, in the order of their ids, and win where lists are joined."""
    rules = ("Jealous(A) => Lose_Fin(A, 2)", "Lose_Fin(A, 1) => Gain_Feather(A, 4)", "Dog(A) => Has(Horn, 3)")
    (hits,) = Ahead().index(np.arange(3, dtype=np.int32), rules).search([f"{ASKED}\nJealous(x)"], 3)
    assert hits.ids.tolist() == [0, 1]
