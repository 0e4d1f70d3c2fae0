"""The tables of the benchmark, any slice of any split, in memory.

Everything is a function of a configuration and a `WorldSpec`: any slicing gives the same rows. Worlds and sub-question
pools are kept per process, so many slices cost little more than one.
"""

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
    SCALES,
    UNKNOWN,
    WorldSpec,
    check_kind,
    check_subtask,
    data_version,
)
from .text.render import block_table
from .world import Stream, World, build_world

__all__ = ["table", "world_of"]


def world_of(spec: WorldSpec | str) -> World:
    """Return the world whose rules a split's questions use, of a version alone the paper's; it prints its dials.

    ``validation``, ``test`` and ``mini`` are the same questions at scales ``paper`` and ``full``, so they use the
    paper's subset of the world; ``heldout`` has a world of its own.
    """
    if not isinstance(spec, WorldSpec):
        spec = WorldSpec(version=data_version(spec))
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
        return replace(world, reserves=scale.reserved)
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
        if low < high:
            tables.append(_block(spec, subtask, block).table(low - first, high - first))
    return tables[0] if len(tables) == 1 else pa.concat_tables([decode(t, QUESTION_SCHEMA) for t in tables])


@lru_cache(maxsize=2)
def _chains(spec: WorldSpec, subtask: str) -> pa.Table:
    draw = compare_table if subtask.startswith("compare") else chain_table
    return draw(Origin(world_of(spec), spec.split, subtask, spec.version), spec.num_rows(subtask))


def _mini(spec: WorldSpec, subtask: str) -> pa.Table:
    """Return the paper's protocol: 5 seeds x 10 of the test questions; ``fold`` tells the seed."""
    test = table(subtask, replace(spec, split="test"))
    size = MINI_FOLDS * MINI_FOLD_SIZE
    picked = Stream("mini", spec.seed, subtask).permutation(len(test))
    if subtask.startswith("unknown"):  # half of each fold has no answer, as half of test
        unknown = np.array([answers == [UNKNOWN] for answers in test["answers"].to_pylist()])[picked]
        halves = [picked[unknown == which].reshape(-1, MINI_FOLD_SIZE // 2)[:MINI_FOLDS] for which in (0, 1)]
        order = Stream("mini order", spec.seed, subtask).words(size).reshape(MINI_FOLDS, -1).argsort(axis=1)
        picked = np.take_along_axis(np.hstack(halves), order, axis=1).ravel()
    picked = picked[:size]
    fold = np.arange(size, dtype=np.int8) // MINI_FOLD_SIZE
    mini = test.take(pa.array(picked))
    return mini.set_column(mini.schema.get_field_index("fold"), "fold", pa.array(fold))


def table(
    config: str, spec: WorldSpec, start: int = 0, stop: int | None = None, *, encoded: bool = False
) -> pa.Table:
    """Return rows ``[start, stop)`` of one split.

    Parameters
    ----------
    config : str
        A sub-task, or ``"rules"``, which are ordered by id.
    spec : WorldSpec
    start, stop : int
        Row range; ``stop=None`` means to the end.
    encoded : bool
        Keep repeated strings dictionary-encoded, for writing.

    Returns
    -------
    pyarrow.Table
        With `QUESTION_SCHEMA`, or `ruleworld_data.io.rule_schema` of the dials.

    Raises
    ------
    ValueError
        For an unknown name, or a range outside the split.
    """
    check_kind("spec", spec, WorldSpec, "WorldSpec('tiny', 'test')")
    if config != "rules":
        check_subtask("sub-task", config, spec.dials)
        spec = spec.drawn
    rows = spec.num_rows(config)
    stop = rows if stop is None else stop
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"rows [{start}, {stop}) are not in a table of {rows} rows")
    if start == stop:
        return (rule_schema(spec.dials) if config == "rules" else QUESTION_SCHEMA).empty_table()
    if config == "rules":
        return _rules(spec, start, stop, encoded)
    try:
        if spec.split == "mini":
            made = _mini(spec, config).slice(start, stop - start)
        elif config.startswith("multi_rule"):
            made = _parallel(spec, config, start, stop)
        else:
            made = _chains(spec, config).slice(start, stop - start)
    except ValueError as error:
        raise ValueError(
            f"split {spec.split} of {config} does not fit the world of scale {spec.scale}, seed {spec.seed} and dials "
            f"{spec.dials or 'none'}: {error}; ask for scale paper or another seed, or turn a dial back"
        ) from None
    return made if encoded else decode(made, QUESTION_SCHEMA)


def _rules(spec: WorldSpec, start: int, stop: int, encoded: bool) -> pa.Table:
    world, schema = world_of(spec), rule_schema(spec.dials)
    tables, first = [], 0
    for block in world.blocks.values():
        low, high = max(start - first, 0), min(stop - first, len(block))
        if low < high:
            rows = np.arange(low, high)
            in_paper = np.isin(rows, world.subset_rows.get(block.type, rows))
            part = block.take(slice(low, high))
            made = block_table(part, world, in_paper, schema=schema, version=spec.version)
            tables.append(made if encoded else decode(made, schema))
        first += len(block)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()
