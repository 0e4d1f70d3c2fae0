"""The tables of the benchmark, any slice of any split, in memory.

Everything is a function of (configuration, split, scale, seed): any slicing gives the same rows. Worlds and
sub-question pools are kept per process, so many slices cost little more than one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from . import spec as tasks
from .io.schema import QUESTION_SCHEMA, RULE_SCHEMA, decode
from .questions.tables import Origin, ParallelBlock, block_bounds, chain_table
from .spec import SCALES, check_name, check_seed, heldout_scale
from .text.render import block_table
from .world.arrays import World, build_world
from .world.names import Names
from .world.streams import Stream


def num_rows(config: str, split: str, scale: str = "paper", seed: int = 0) -> int:
    """Number of rows of one split; ``config`` is a sub-task name or ``"rules"``."""
    check_seed(seed)
    return tasks.num_rows(config, split, scale)


def world_of(split: str, scale: str = "paper", seed: int = 0) -> World:
    """Return the world whose rules a split's questions use.

    ``validation``, ``test`` and ``mini`` are the same questions at scales ``paper`` and ``full``, so they use the
    paper's subset of the world; ``heldout`` has a world of its own.
    """
    check_name("split", split, tasks.QUESTION_SPLITS)
    check_name("scale", scale, SCALES)
    check_seed(seed)
    if split != "train":
        scale = heldout_scale(scale)
    return _world(scale, seed, split == "heldout")


@lru_cache(maxsize=4)
def _whole_world(scale: str, seed: int, heldout: bool) -> World:
    return build_world(seed, SCALES[scale].sizes, SCALES[scale].subset, heldout=heldout)


@lru_cache(maxsize=4)
def _world(scale: str, seed: int, heldout: bool) -> World:
    if scale == "full":
        return _whole_world("paper", seed, heldout)
    return _whole_world(scale, seed, heldout).restrict()


@lru_cache(maxsize=4)
def _names(scale: str, seed: int) -> Names:
    return Names(_whole_world("paper" if scale == "full" else scale, seed, False))


@lru_cache(maxsize=2)
def _block(subtask: str, split: str, scale: str, seed: int, block: int) -> ParallelBlock:
    start, stop = block_bounds(num_rows(subtask, split, scale))[block]
    origin = Origin(world_of(split, scale, seed), split, subtask)
    return ParallelBlock(origin, _names(scale, seed), block, start, stop - start, SCALES[scale].unit_pool)


def _parallel(subtask: str, split: str, scale: str, seed: int, start: int, stop: int) -> pa.Table:
    tables = []
    for block, (first, end) in enumerate(block_bounds(num_rows(subtask, split, scale))):
        low, high = max(start, first), min(stop, end)
        if low < high or (start == stop and not block):
            tables.append(
                _block(subtask, split, scale, seed, block).table(low - first, max(high, low) - first)
            )
    return tables[0] if len(tables) == 1 else pa.concat_tables([decode(t, QUESTION_SCHEMA) for t in tables])


@lru_cache(maxsize=2)
def _chains(subtask: str, split: str, scale: str, seed: int) -> pa.Table:
    origin = Origin(world_of(split, scale, seed), split, subtask)
    return chain_table(origin, _names(scale, seed), num_rows(subtask, split, scale))


def question_table(
    subtask: str,
    split: str,
    scale: str = "paper",
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    *,
    encoded: bool = False,
) -> pa.Table:
    """Return questions ``[start, stop)`` of a split.

    Parameters
    ----------
    subtask, split, scale : str
        Names from `ruleworld_data.spec`.
    seed : int
        World seed.
    start, stop : int
        Row range; ``stop=None`` means to the end.
    encoded : bool
        Keep repeated strings dictionary-encoded, for writing.

    Returns
    -------
    pyarrow.Table
        With `QUESTION_SCHEMA`.

    Raises
    ------
    ValueError
        For an unknown name, a bad seed, or a range outside the split.
    """
    check_name("sub-task", subtask, tasks.SUBTASKS)
    rows = num_rows(subtask, split, scale, seed)
    start, stop = _range(start, stop, rows)
    if split == "mini":
        table = _mini(subtask, scale, seed).slice(start, stop - start)
    else:
        source = scale if split == "train" else heldout_scale(scale)
        if subtask.startswith("multi_rule"):
            table = _parallel(subtask, split, source, seed, start, stop)
        else:
            table = _chains(subtask, split, source, seed).slice(start, stop - start)
    return table if encoded else decode(table, QUESTION_SCHEMA)


def _mini(subtask: str, scale: str, seed: int) -> pa.Table:
    """Return the paper's protocol: 5 seeds x 10 of the test questions; ``fold`` tells the seed."""
    test = question_table(subtask, "test", scale, seed)
    size = tasks.MINI_FOLDS * tasks.MINI_FOLD_SIZE
    picked = Stream("mini", seed, subtask).permutation(len(test))[:size]
    fold = np.arange(size, dtype=np.int8) // tasks.MINI_FOLD_SIZE
    table = test.take(pa.array(picked))
    return table.set_column(table.schema.get_field_index("fold"), "fold", pa.array(fold))


def rule_table(
    split: str = "train",
    scale: str = "paper",
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    *,
    encoded: bool = False,
) -> pa.Table:
    """Return rules ``[start, stop)`` of a world, ordered by id.

    Parameters
    ----------
    split : {"train", "heldout"}
        The world, or the held-out world.
    scale, seed, start, stop, encoded
        As for `question_table`.

    Returns
    -------
    pyarrow.Table
        With `RULE_SCHEMA`.
    """
    check_name("split of rules", split, tasks.RULE_SPLITS)
    start, stop = _range(start, stop, num_rows("rules", split, scale, seed))
    world = world_of("heldout" if split == "heldout" else "train", scale, seed)
    names = _names(heldout_scale(scale) if split == "heldout" else scale, seed)
    tables, first = [], 0
    for block in world.blocks.values():
        low, high = max(start - first, 0), min(stop - first, len(block))
        if low < high:
            rows = np.arange(low, high)
            inside = np.ones(high - low, dtype=bool)
            if block.type in world.subset_rows:
                inside = np.isin(rows, world.subset_rows[block.type])
            tables.append(block_table(block.take(slice(low, high)), names, world.world_id, pa.array(inside)))
        first += len(block)
    plain = [table if encoded else decode(table, RULE_SCHEMA) for table in tables]
    if not plain:
        return RULE_SCHEMA.empty_table()
    return plain[0] if len(plain) == 1 else pa.concat_tables(plain).unify_dictionaries()


def _range(start: int, stop: int | None, rows: int) -> tuple[int, int]:
    stop = rows if stop is None else stop
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"rows [{start}, {stop}) are not in a table of {rows} rows")
    return start, stop
