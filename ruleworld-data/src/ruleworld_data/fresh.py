"""Fresh small worlds, each with rules and questions: training data that is not the benchmark.

Drawing a world costs about the same whether it has a hundred rules or some thousands. So a continent of a few thousand
rules is drawn and small worlds are cut out of it: any subset of a world's rules is a world, and questions whose gold
rules are in the subset keep their answers (C9). After some dozens of small worlds comes the next continent, and no rule
of the last one is seen again but by chance.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .io.schema import QUESTION_SCHEMA, decode, rule_schema
from .questions.compare import compare_table
from .questions.parallel import ParallelBlock
from .questions.tables import Origin, chain_table
from .spec import (
    PAPER_POINT,
    SCALES,
    VERSION,
    VERSIONS,
    Dials,
    WorldSizes,
    check_count,
    check_name,
    check_seed,
    subtasks_of,
)
from .text.render import block_table
from .world import Stream, World, build_world

__all__ = ["WORLDS_PER_CONTINENT", "FreshWorld", "continent", "fresh_worlds"]

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
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
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
        Terms and rules of a continent: with few terms, distractors resemble gold rules. Dials change them
        (`WorldSizes.turned`).
    version : str
        A name of `ruleworld_data.spec.VERSIONS`.
    dials : Dials
        Where worlds and questions depart from the paper's.

    Raises
    ------
    ValueError
        For an unknown sub-task, more questions than a continent has, fewer rules than the questions need, or dials
        that the sizes do not allow.
    """
    check_seed(seed)
    check_name("version", version, VERSIONS)
    for subtask in questions:
        check_name("sub-task", subtask, subtasks_of(dials))
    wanted = {"count": count, "first": first, "n_rules": n_rules} | dict(questions)
    for name, value in wanted.items():
        check_count(name, value)
    rows = {subtask: WORLDS_PER_CONTINENT * own for subtask, own in questions.items()}
    last = first + count - 1
    for number in range(first // WORLDS_PER_CONTINENT, last // WORLDS_PER_CONTINENT + 1 if count else 0):
        world, rules, tables = continent(seed, number, rows, sizes, version=version, dials=dials)
        key, size = ("fresh", seed, number), len(rules)
        chance = Stream(*key, "members").words(WORLDS_PER_CONTINENT * size).reshape(-1, size)
        order = Stream(*key, "order").words(WORLDS_PER_CONTINENT * n_rules).reshape(-1, n_rules)
        for i in range(WORLDS_PER_CONTINENT):
            if not first <= number * WORLDS_PER_CONTINENT + i <= last:
                continue
            parts = [table.slice(i * questions[name], questions[name]) for name, table in tables.items()]
            own = pa.concat_tables(parts or [QUESTION_SCHEMA.empty_table()])
            gold = np.unique(own.column("gold_rule_ids").combine_chunks().flatten().to_numpy())
            if not len(gold) <= n_rules <= size:
                raise ValueError(
                    f"n_rules must be between {len(gold)}, the gold rules of a world's questions, and {size}, the "
                    f"rules there are, got {n_rules}; ask fewer questions or give larger sizes"
                )
            chance[i, gold] = 0  # ids are row numbers here
            members = np.sort(np.argpartition(chance[i], n_rules - 1)[:n_rules])
            members = members[np.argsort(order[i], kind="stable")]
            yield FreshWorld(world.world_id, rules.take(pa.array(members)), own)


def continent(
    seed: int,
    number: int,
    questions: Mapping[str, int],
    sizes: WorldSizes = SCALES["tiny"].sizes,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
) -> tuple[World, pa.Table, dict[str, pa.Table]]:
    """Draw one whole continent of a sequence: the world, its rules by id (row numbers), its questions by sub-task.

    ``questions`` says how many of each sub-task; all else is as in `fresh_worlds`, errors included.
    """
    world_seed = int(Stream("fresh", seed, number).words(1)[0] >> np.uint64(1))
    world, schema = build_world(world_seed, sizes.turned(dials), dials=dials), rule_schema(dials)
    blocks = [block_table(block, world, schema=schema, version=version) for block in world.blocks.values()]
    rules = pa.concat_tables(decode(block, schema) for block in blocks).combine_chunks()
    tables = {}
    for subtask, rows in questions.items():
        origin = Origin(world, "heldout", subtask, version)
        if rows and subtask.startswith("multi_rule"):
            tables[subtask] = ParallelBlock(origin, 0, 0, rows, limit=rows).table(0, rows)
        elif rows and subtask.startswith("compare"):
            tables[subtask] = compare_table(origin, rows)
        elif rows:
            tables[subtask] = chain_table(origin, rows)
    return world, rules, {subtask: decode(table, QUESTION_SCHEMA) for subtask, table in tables.items()}
