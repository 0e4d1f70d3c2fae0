"""The tables of the benchmark, any slice of any split, in memory.

Everything is a function of a configuration and a `WorldSpec`: any slicing gives the same rows. Worlds and sub-question
pools are kept per process, so many slices cost little more than one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from .io.schema import QUESTION_SCHEMA, decode, rule_schema
from .questions.compare import compare_table
from .questions.parallel import ParallelBlock, block_bounds
from .questions.tables import Origin, chain_table
from .spec import (
    HELDOUT_IDS,
    MINI_FOLD_SIZE,
    MINI_FOLDS,
    PAPER_POINT,
    RULE_SPLITS,
    SCALES,
    UNKNOWN,
    VERSION,
    Dials,
    WorldSpec,
    check_name,
    num_rows,
    subtasks_of,
)
from .text.render import block_table
from .world import Stream, World, build_world

__all__ = ["num_rows", "question_table", "rule_table", "world_of"]


def world_of(spec: WorldSpec) -> World:
    """Return the world whose rules a split's questions use.

    ``validation``, ``test`` and ``mini`` are the same questions at scales ``paper`` and ``full``, so they use the
    paper's subset of the world; ``heldout`` has a world of its own.
    """
    # Splits of one world share it: held-out is all that tells them apart.
    return _world(replace(spec.drawn, split="heldout" if spec.split == "heldout" else "train"))


@lru_cache(maxsize=4)
def _world(spec: WorldSpec) -> World:
    if spec.scale == "full":
        return _whole_world(replace(spec, scale="paper"))
    return _whole_world(spec).restrict()


@lru_cache(maxsize=4)
def _whole_world(spec: WorldSpec) -> World:
    scale, heldout = spec.sized, spec.split == "heldout"
    world = build_world(spec.seed, scale.sizes, scale.subset, heldout=heldout, dials=spec.dials)
    if spec.version == "1.1":
        return world
    if not heldout:
        return replace(world, reserves=True)
    blocks = {name: replace(block, ids=block.ids + HELDOUT_IDS) for name, block in world.blocks.items()}
    return replace(world, blocks=blocks)


@lru_cache(maxsize=2)
def _block(spec: WorldSpec, subtask: str, block: int) -> ParallelBlock:
    start, stop = block_bounds(spec.num_rows(subtask))[block]
    origin = Origin(world_of(spec), spec.split, subtask, spec.version)
    return ParallelBlock(origin, block, start, stop - start, SCALES[spec.scale].unit_pool)


def _parallel(spec: WorldSpec, subtask: str, start: int, stop: int) -> pa.Table:
    tables = []
    for block, (first, end) in enumerate(block_bounds(spec.num_rows(subtask))):
        low, high = max(start, first), min(stop, end)
        if low < high or (start == stop and not block):
            tables.append(_block(spec, subtask, block).table(low - first, max(high, low) - first))
    return tables[0] if len(tables) == 1 else pa.concat_tables([decode(t, QUESTION_SCHEMA) for t in tables])


@lru_cache(maxsize=2)
def _chains(spec: WorldSpec, subtask: str) -> pa.Table:
    table = compare_table if subtask.startswith("compare") else chain_table
    return table(Origin(world_of(spec), spec.split, subtask, spec.version), spec.num_rows(subtask))


def _mini(spec: WorldSpec, subtask: str) -> pa.Table:
    """Return the paper's protocol: 5 seeds x 10 of the test questions; ``fold`` tells the seed."""
    test = question_table(subtask, "test", spec.scale, spec.seed, version=spec.version, dials=spec.dials)
    size = MINI_FOLDS * MINI_FOLD_SIZE
    picked = Stream("mini", spec.seed, subtask).permutation(len(test))
    if subtask.startswith("unknown"):  # half of each fold has no answer, as half of test
        unknown = np.array([answers == [UNKNOWN] for answers in test["answers"].to_pylist()])[picked]
        halves = [picked[unknown == which].reshape(-1, MINI_FOLD_SIZE // 2)[:MINI_FOLDS] for which in (0, 1)]
        order = Stream("mini order", spec.seed, subtask).words(size).reshape(MINI_FOLDS, -1).argsort(axis=1)
        picked = np.take_along_axis(np.hstack(halves), order, axis=1).ravel()
    picked = picked[:size]
    fold = np.arange(size, dtype=np.int8) // MINI_FOLD_SIZE
    table = test.take(pa.array(picked))
    return table.set_column(table.schema.get_field_index("fold"), "fold", pa.array(fold))


def question_table(
    subtask: str,
    split: str,
    scale: str = "paper",
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
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
    version : str
        A name of `ruleworld_data.spec.VERSIONS`.
    dials : Dials
        Where the world departs from the paper's.
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
    check_name("sub-task", subtask, subtasks_of(dials))
    spec = WorldSpec(scale, split, seed, version, dials).drawn
    start, stop = _range(start, stop, spec.num_rows(subtask))
    if split == "mini":
        table = _mini(spec, subtask).slice(start, stop - start)
    elif subtask.startswith("multi_rule"):
        table = _parallel(spec, subtask, start, stop)
    else:
        table = _chains(spec, subtask).slice(start, stop - start)
    return table if encoded else decode(table, QUESTION_SCHEMA)


def rule_table(
    split: str = "train",
    scale: str = "paper",
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
    encoded: bool = False,
) -> pa.Table:
    """Return rules ``[start, stop)`` of a world, ordered by id.

    Parameters
    ----------
    split : {"train", "heldout"}
        The world, or the held-out world.
    scale, seed, start, stop, version, dials, encoded
        As for `question_table`.

    Returns
    -------
    pyarrow.Table
        With `ruleworld_data.io.rule_schema` of the dials.
    """
    check_name("split of rules", split, RULE_SPLITS)
    spec = WorldSpec(scale, split, seed, version, dials)
    start, stop = _range(start, stop, spec.num_rows("rules"))
    world, schema = world_of(spec), rule_schema(dials)
    tables, first = [], 0
    for block in world.blocks.values():
        low, high = max(start - first, 0), min(stop - first, len(block))
        if low < high:
            rows = np.arange(low, high)
            in_paper = np.isin(rows, world.subset_rows.get(block.type, rows))
            part = block.take(slice(low, high))
            table = block_table(part, world, in_paper, schema=schema, version=version)
            tables.append(table if encoded else decode(table, schema))
        first += len(block)
    if not tables:
        return schema.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()


def _range(start: int, stop: int | None, rows: int) -> tuple[int, int]:
    stop = rows if stop is None else stop
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"rows [{start}, {stop}) are not in a table of {rows} rows")
    return start, stop
