"""Questions that no rule answers: what is left out of a world, and that nothing else decides them."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from ruleworld_data.generate import world_of
from ruleworld_data.io.schema import decode, rule_schema
from ruleworld_data.spec import RULE_TYPES, SCALES, Dials, WorldSpec
from ruleworld_data.text.render import block_table
from ruleworld_data.verify import RuleIndex, execute, parse_rule_table
from ruleworld_data.verify.asp import AspSolver
from ruleworld_data.world import build_world

from .brute_force import BruteForce, blemish, misread
from .cases import question_table, rule_table

DIALS = [Dials(unknown=True), Dials(hops=4, crowd=9, conjunction=2, thresholds=True, unknown=True, words=0.5)]


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ("Tiny_cat(x) & Lose_Strong_fin(x, 2)", "5"),
        ("Tiny_cat(x) & Bridge(x)", "unknown"),  # the initial count is known, and nothing changes it
        ("Wild_goat(x) & Lose_Strong_fin(x, 2)", "unknown"),  # the change is known, and not what it changes
        ("Tiny_cat(x) & Lose_Strong_fin(x, 2) & Gain_Mineral_scale(x, 4)", "9"),
        ("Tiny_cat(x) & Lose_Strong_fin(y, 2)", "unknown"),  # somebody else's
    ],
)
def test_a_count_that_must_change(facts, answer):
    """By the executor, by clingo, and by a reference of their own."""
    rules = ["Tiny_cat(A) => Has(Mineral_scale, 9)", "Lose_Strong_fin(A, 1) => Drop_Mineral_scale(A, 2)"]
    rules.append("Bridge(A) => Deeply_hungry(A)")
    base, query = parse_rule_table(pa.table({"id": [0, 1, 2], "fol": rules})), "Changed(x, Mineral_scale, ?)"
    wanted = set() if answer == "unknown" else {answer}
    assert {execute(facts, query, RuleIndex(base)).answer} - {None} == wanted
    assert set(AspSolver(base).answers([(facts, query)])[0]) == wanted
    assert BruteForce(rules).answers(facts, query) == wanted


@pytest.mark.parametrize("dials", DIALS, ids=str)
def test_a_tenth_is_missing_and_would_be_the_answer(dials):
    """Nothing follows from what is there; with the left out rules put back one count does, by one of them."""
    world, schema = world_of(WorldSpec("tiny", dials=dials)), rule_schema(dials)
    present = rule_table("train", "tiny", dials=dials)
    others = [
        decode(block_table(block, world, schema=schema), schema) for block in world.left_out.blocks.values()
    ]
    whole = pa.concat_tables([present, *others])
    assert whole["id"].to_pylist() == list(range(len(whole)))
    drawn = world_of(WorldSpec("tiny", dials=replace(dials, unknown=False)))
    for name, block in world.whole.blocks.items():
        assert len(block) == len(drawn.blocks[name])
        left = len(block) - len(world.blocks[name])
        assert left == (-(-len(block) // 10) if name in RULE_TYPES else 0)
    index, brute = RuleIndex.from_table(whole), BruteForce(present["fol"].to_pylist())
    gaps = {}
    for hops in range(1, dials.hops + 1):
        for split in ("train", "test"):
            rows = question_table(f"unknown_{hops}", split, "tiny", dials=dials).to_pylist()
            assert sum(row["answers"] == ["unknown"] for row in rows) == len(rows) // 2
            for row in rows:
                (facts,), (query,), (answer,) = row["facts"], row["queries"], row["answers"]
                proof = execute(facts, query, index)
                gap = set(proof.rule_ids) - set(present["id"].to_numpy().tolist())
                assert len(proof.rule_ids) == hops + 1 and len(gap) == (answer == "unknown")
                assert set(row["gold_rule_ids"]) <= set(proof.rule_ids) - gap
                assert brute.answers(facts, query) == ({answer} - {"unknown"})
                text = row["question"]
                assert dials.words or (blemish(text) is None and misread(text, facts, query) is None)
                if gap and row["steps"][-1]["state"].startswith("Has"):  # a rule of the chain
                    gaps.setdefault(gap.pop(), set()).add(split)
    assert len(gaps) > 20 and all(len(splits) == 1 for splits in gaps.values())


def test_who_always_says_unknown_has_half_of_every_fold():
    for hops in (1, 2, 3):
        rows = question_table(f"unknown_{hops}", "mini", "tiny", dials=DIALS[0]).to_pylist()
        folds = Counter((row["fold"], row["answers"] == ["unknown"]) for row in rows)
        assert folds == dict.fromkeys(product(range(5), (False, True)), 5)
        places = [i % 10 for i, row in enumerate(rows) if row["answers"] == ["unknown"]]
        assert len(set(places)) == 10 and len({row["id"] for row in rows}) == 50


def test_a_part_of_a_world_leaves_out_a_part_of_what_the_whole_one_does():
    """So a question of scale paper without an answer has none at scale full."""
    sizes, subset = SCALES["tiny"].sizes.turned(DIALS[0]), {"entity2attr": 400, "state2attr": 300}
    full = build_world(3, sizes, subset, dials=DIALS[0])
    paper = full.restrict()
    for name, block in paper.left_out.blocks.items():
        assert len(block) == -(-len(paper.whole.blocks[name]) // 10)
        assert np.isin(block.ids, full.left_out.blocks[name].ids).all()
        assert np.isin(paper.blocks[name].ids, full.blocks[name].ids).all()
