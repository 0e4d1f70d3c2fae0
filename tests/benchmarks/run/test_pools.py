import numpy as np
import pytest
from ruleworld_data.spec import SUBTASKS
from rwbench.run.pools import build_pools, pools_sha256
from rwbench.spec import RunSpec


@pytest.fixture(scope="module")
def split(workspace):
    return {name: workspace.questions(name, "mini") for name in SUBTASKS}


def make(size, scope, **changes):
    fields = {"method": {"name": "solver"}, "representation": "fol", "data": "x", "scale": "tiny"}
    return RunSpec(pool_size=size, pool_scope=scope, **(fields | changes))


@pytest.mark.parametrize(
    ("size", "scope", "within", "num_pools", "per_pool"),
    [(100, "question", 1500, 550, 1), (1000, "fold", 1500, 5, 110), (1500, "batch", None, 1, 550)],
)
def test_pools_hold_the_gold_rules_of_all_their_questions(
    workspace, split, size, scope, within, num_pools, per_pool
):
    pools = list(build_pools(make(size, scope, pool_within=within), split, workspace.rules("mini")))
    assert len(pools) == num_pools
    assert sorted(q.id for pool in pools for q in pool.questions) == sorted(
        q.id for questions in split.values() for q in questions
    )
    for pool in pools:
        members = pool.ids.tolist()
        assert len(members) == len(set(members)) == size
        assert len(pool.questions) == per_pool
        assert len({q.fold for q in pool.questions}) == (5 if scope == "batch" else 1)
        for question in pool.questions:
            assert {rule for step in question.row["steps"] for rule in step["rule_ids"]} <= set(members)


def test_smaller_pools_lie_within_the_large_one(workspace, split):
    rules = workspace.rules("mini")
    (large,) = build_pools(make(1500, "batch"), split, rules)
    for spec in (make(1000, "fold", pool_within=1500), make(100, "question", pool_within=1500)):
        for pool in build_pools(spec, split, rules):
            assert set(pool.ids.tolist()) <= set(large.ids.tolist())


def test_neither_limit_nor_the_choice_of_sub_tasks_changes_a_question_s_pool(workspace, split):
    rules = workspace.rules("mini")
    for scope, size in (("question", 100), ("fold", 1000), ("batch", 1500)):
        whole = {
            q.id: p.ids.tolist() for p in build_pools(make(size, scope), split, rules) for q in p.questions
        }
        spec = make(size, scope, limit=3, subtasks=("multi_hop_2", "multi_rule_8"))
        pools = list(build_pools(spec, split, rules))
        assert sum(len(pool.questions) for pool in pools) == 6
        assert all(pool.ids.tolist() == whole[q.id] for pool in pools for q in pool.questions)


def test_pools_are_a_function_of_the_seed_and_shuffled(workspace, split):
    rules = workspace.rules("mini")
    one, same, other = (
        list(build_pools(make(1000, "fold", pool_seed=seed), split, rules)) for seed in (0, 0, 1)
    )
    assert pools_sha256(one) == pools_sha256(same) != pools_sha256(other)
    assert pools_sha256(one) != pools_sha256(one[:-1])
    gold = {rule for q in one[0].questions for rule in q.gold}
    places = [place for place, rule in enumerate(one[0].ids.tolist()) if rule in gold]
    # Were gold rules first, their mean place would be near len(gold) / 2; shuffled it is near 500.
    assert abs(np.mean(places) - 499.5) < 4 * 289 / len(places) ** 0.5


def test_pools_too_small_and_unknown_rules_are_named(workspace, split):
    with pytest.raises(ValueError, match=r"100 .*cannot hold"):
        list(build_pools(make(100, "fold"), split, workspace.rules("mini")))
    with pytest.raises(ValueError, match="999999"):
        workspace.rules("mini").texts(np.array([999999], dtype=np.int32), "nl")


def test_a_method_cannot_change_the_pools_that_all_share(workspace, split):
    """A retriever that sorted them in place would answer, as all others after it, for rules that it did not find."""
    pool = next(build_pools(make(1000, "fold"), split, workspace.rules("mini")))
    for ids in (pool.ids, pool.rules.ids):
        with pytest.raises(ValueError, match="read-only"):
            ids.sort()
    assert isinstance(pool.texts, tuple)
