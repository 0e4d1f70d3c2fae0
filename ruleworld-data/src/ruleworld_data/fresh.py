"""Fresh small worlds, each with rules and questions: training data that is not the benchmark.

Drawing a world costs about the same whether it has a hundred rules or some thousands. So a continent of a few thousand
rules is drawn and small worlds are cut out of it: any subset of a world's rules is a world, and questions whose gold
rules are in the subset keep their answers (C9). After some dozens of small worlds comes the next continent, and no rule
of the last one is seen again but by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .io.schema import QUESTION_SCHEMA, RULE_SCHEMA, decode
from .questions.tables import Origin, ParallelBlock, chain_table
from .spec import SCALES, SUBTASKS, WorldSizes, check_name, check_seed
from .text.render import block_table
from .world.arrays import build_world
from .world.names import Names
from .world.streams import Stream

WORLDS_PER_CONTINENT = 64


@dataclass(frozen=True)
class FreshWorld:
    """One small world.

    Attributes
    ----------
    world_id : str
        Name of the continent it was cut from.
    rules : pyarrow.Table
        Its rules, shuffled, with the columns of the benchmark's rule table.
    questions : pyarrow.Table
        Questions that its rules answer, with the columns of the benchmark's question table.
    """

    world_id: str
    rules: pa.Table
    questions: pa.Table


def fresh_worlds(
    seed: int,
    count: int,
    questions: Mapping[str, int],
    n_rules: int = 128,
    sizes: WorldSizes = SCALES["tiny"].sizes,
    first: int = 0,
) -> Iterator[FreshWorld]:
    """Yield small worlds ``first`` to ``first + count - 1`` of a sequence named by a seed.

    Every world is a function of the arguments and its number. Worlds share the benchmark's vocabulary, and a rule of
    its worlds only by chance (about one in a thousand): their seeds are hashes that no benchmark world is given.
    Question ids repeat from continent to continent; ``world_id`` tells them apart.

    Parameters
    ----------
    seed : int
        Names the sequence.
    count, first : int
        Which worlds of it.
    questions : mapping
        Questions per world by sub-task.
    n_rules : int
        Rules per world, gold rules included.
    sizes : WorldSizes
        Terms and rules of a continent: with few terms, distractors resemble gold rules.

    Raises
    ------
    ValueError
        For an unknown sub-task, more questions than a continent has, or fewer rules than the questions need.
    """
    check_seed(seed)
    for subtask in questions:
        check_name("sub-task", subtask, SUBTASKS)
    wanted = {"count": count, "first": first, "n_rules": n_rules} | dict(questions)
    for name, value in wanted.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} must be a non-negative integer, got {value!r}")
    number = first
    while number < first + count:
        continent, start = divmod(number, WORLDS_PER_CONTINENT)
        stop = min(WORLDS_PER_CONTINENT, start + first + count - number)
        yield from _cut(seed, continent, start, stop, dict(questions), n_rules, sizes)
        number += stop - start


def _cut(
    seed: int,
    continent: int,
    start: int,
    stop: int,
    questions: dict[str, int],
    n_rules: int,
    sizes: WorldSizes,
) -> Iterator[FreshWorld]:
    world = build_world(int(Stream("fresh", seed, continent).words(1)[0] >> np.uint64(1)), sizes)
    names = Names(world)
    everything = pa.concat_tables(
        decode(block_table(block, names, world.world_id, pa.array(np.ones(len(block), bool))), RULE_SCHEMA)
        for block in world.blocks.values()
    ).combine_chunks()
    tables = []
    for subtask, each in questions.items():
        if not each:
            continue
        origin, rows = Origin(world, "heldout", subtask), WORLDS_PER_CONTINENT * each
        if subtask.startswith("multi_rule"):
            tables.append((each, ParallelBlock(origin, names, 0, 0, rows, limit=rows).table(0, rows)))
        else:
            tables.append((each, chain_table(origin, names, rows)))
    plain = [(each, decode(table, QUESTION_SCHEMA)) for each, table in tables]
    size = len(everything)
    chance = Stream("fresh", seed, continent, "members").words(WORLDS_PER_CONTINENT * size).reshape(-1, size)
    order = (
        Stream("fresh", seed, continent, "order").words(WORLDS_PER_CONTINENT * n_rules).reshape(-1, n_rules)
    )
    for i in range(start, stop):
        asked = pa.concat_tables(
            [table.slice(i * each, each) for each, table in plain] or [QUESTION_SCHEMA.empty_table()]
        )
        gold = np.unique(asked.column("gold_rule_ids").combine_chunks().flatten().to_numpy())
        if not len(gold) <= n_rules <= size:
            raise ValueError(
                f"n_rules must be between {len(gold)}, the gold rules of a world's questions, and {size}, the rules "
                f"there are, got {n_rules}; ask fewer questions or give larger sizes"
            )
        chance[i, gold] = 0  # ids are row numbers here
        members = np.sort(np.argpartition(chance[i], n_rules - 1)[:n_rules])
        members = members[np.argsort(order[i], kind="stable")]
        yield FreshWorld(world.world_id, everything.take(pa.array(members)), asked)
