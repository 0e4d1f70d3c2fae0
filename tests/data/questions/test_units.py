"""Units: evaluation splits spread over chains, and skeletons stand in for each other."""

from collections import Counter

import numpy as np
import pytest
from ruleworld_data.generate import world_of
from ruleworld_data.questions.skeletons import DOUBLE, MULTI_HOP, SINGLE, Skeleton
from ruleworld_data.questions.units import UnitSource, draw_units
from ruleworld_data.spec import WorldSpec
from ruleworld_data.world import Stream

SKELETONS = [*SINGLE, *DOUBLE, *(skeleton for shares in MULTI_HOP.values() for skeleton in shares)]


@pytest.mark.parametrize("skeleton", SKELETONS, ids=lambda s: s.name)
def test_evaluation_splits_spread_over_chains(skeleton):
    """Chains differ by one unit at most, but for those with fewer units; a unit's own hash leaves it to chance."""
    world, hops = world_of(WorldSpec()), len(skeleton.path)
    everything = UnitSource(world, skeleton, "test")
    units = everything.draw(Stream("spread"), 300)
    columns = [world.blocks[t].ids[rows] for t, rows in zip(skeleton.path, units.rows, strict=True)]
    parts = (units.amount, units.initial_row, units.initial, units.subject, units.other)
    columns += [part for part in parts if part is not None]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(rows)) == len(rows) == 300 or skeleton.path[0] in ("entity2attr", "env2state")
    times = Counter(row[:hops] for row in rows)
    if hops > 1:
        sizes = np.diff(everything._ends, prepend=0)
        assert len(times) == min(300, len(sizes)) or min(sizes) == 0
        assert max(times.values()) - min(times.values()) <= 1 + (min(sizes) < 2)
    assert max(times.values()) <= 2 * -(-300 // len(times))
    if skeleton.initial is not None and len(times) < 100:  # many units of a chain: their counts spread
        assert len(set(units.initial.tolist())) == 12


def test_what_one_skeleton_lacks_others_give():
    """The tiny world has 16 ways into an environment; ask for far more."""
    shares = {Skeleton(("env2state",)): 0.9, Skeleton(("entity2attr",)): 0.1}
    few, many = draw_units(world_of(WorldSpec("tiny")), "train", shares, 400, ("lack",))
    assert len(few) + len(many) == 400 and len(few) < 360 <= 0.9 * 400 and len(few) <= 16 * 40
