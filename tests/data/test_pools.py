"""Pools: what they hold, in an order that tells nothing, the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.pools import pool_rules, question_pool, shared_pool

from .cases import question_table, rule_table

WORLD = np.arange(10, 2_010, 2, dtype=np.int32)
# A pool of the world above; reported results depend on such pools, so they never change.
GOLDEN = [860, 56, 700, 1006, 978, 54, 448, 738, 500, 1330, 1572, 20]


@given(st.sets(st.integers(5, 1_004), max_size=30), st.integers(0, 1_000), st.integers(0, 3))
def test_pools_hold_gold_and_are_exact(gold, extra, key):
    gold = [2 * rule for rule in gold]
    size = min(len(gold) + extra, len(WORLD))
    pool = shared_pool(WORLD, gold, size, key)
    assert pool.dtype == np.int32 and len(pool) == len(set(pool.tolist())) == size
    assert set(gold) <= set(pool.tolist()) <= set(WORLD.tolist())


def test_a_pool_never_changes():
    assert question_pool(WORLD, "multi_hop_3-test-0000007", [20, 500], 12, seed=3).tolist() == GOLDEN


def test_order_does_not_reveal_gold():
    """The place of a gold rule is uniform: mean and spread of its rank, and each tenth of the pool."""
    gold, size, pools = [12, 1_000, 2_008], 40, 1_500
    ranks = np.array(
        [np.flatnonzero(np.isin(question_pool(WORLD, f"q{i}", gold, size), gold)) for i in range(pools)]
    ).ravel()
    assert ranks.shape == (3 * pools,)
    deviation = ((size**2 - 1) / 12) ** 0.5
    assert abs(ranks.mean() - (size - 1) / 2) < 5 * deviation / len(ranks) ** 0.5
    counts = np.bincount(ranks // 4, minlength=10)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 9 + 6 * 18**0.5


@pytest.mark.parametrize(("subtask", "split"), [("multi_rule_8", "test"), ("multi_hop_4", "heldout")])
def test_pool_rules_are_the_rows_in_pool_order(subtask, split):
    rules = rule_table("heldout" if split == "heldout" else "train", "tiny")
    row = question_table(subtask, split, "tiny").to_pylist()[3]
    pool = question_pool(rules["id"].to_numpy(), row["id"], row["gold_rule_ids"], 100)
    table = pool_rules(rules, pool)
    assert table["id"].to_pylist() == pool.tolist() and {*row["gold_rule_ids"]} <= {*pool.tolist()}
    text = dict(zip(rules["id"].to_pylist(), rules["nl"].to_pylist(), strict=True))
    assert table["nl"].to_pylist() == [text[rule] for rule in pool.tolist()]
