"""Rules that are left out of a world, so that some of what it could be asked has no answer.

They are cut out of the world itself. No pool can hold them, and what is unknown is unknown in every pool.
"""

from dataclasses import replace

import numpy as np

from ..spec import RULE_TYPES
from ..spec.sizes import left_out
from .arrays import RuleBlock, World
from .streams import Ints, Stream


def leave_out(world: World, key: tuple[str | int, ...]) -> World:
    """Return a world without a tenth of its rules of the paper's types, and of its subset's; `World.left_out` has them.

    Ids are given anew: first to the rules that stay, in order, then to the others, so that no id tells of a gap.
    """
    gone = {name: _chosen(world, name, key) for name in RULE_TYPES}
    stay = {
        name: np.delete(np.arange(len(block)), gone.get(name, [])) for name, block in world.blocks.items()
    }
    first = sum(map(len, stay.values()))
    return replace(_numbered(world, stay, 0), left_out=_numbered(world, gone, first))


def _chosen(world: World, name: str, key: tuple[str | int, ...]) -> Ints:
    """Choose rows at random: the right number within the subset, and in all."""
    size = len(world.blocks[name])
    subset = world.subset_rows.get(name, np.arange(size))
    rest = np.delete(np.arange(size), subset)
    within = left_out(len(subset))
    chosen = [
        rows[Stream(*key, "left out", name, part).permutation(len(rows))[:count]]
        for part, rows, count in (("subset", subset, within), ("rest", rest, left_out(size) - within))
    ]
    return np.sort(np.concatenate(chosen))


def _numbered(world: World, rows: dict[str, Ints], first: int) -> World:
    blocks, subset = {}, {}
    for name, own in rows.items():
        ids = np.arange(first, first + len(own), dtype=np.int32)
        blocks[name] = RuleBlock(name, ids, world.blocks[name].take(own).columns)
        if name in world.subset_rows:
            subset[name] = np.flatnonzero(np.isin(own, world.subset_rows[name]))
        first += len(own)
    return replace(world, blocks=blocks, subset_rows=subset)
