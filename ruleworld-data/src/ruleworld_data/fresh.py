"""Fresh worlds with rules and questions: training data that is not the benchmark."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .io.schema import QUESTION_SCHEMA, decode, rule_schema
from .questions.compare import compare_table
from .questions.parallel import SMALLEST_POOL, ParallelBlock
from .questions.tables import Origin, chain_table
from .spec import (
    PAPER_POINT,
    SCALES,
    VERSION,
    VERSIONS,
    Dials,
    WorldSizes,
    check_count,
    check_kind,
    check_name,
    check_seed,
    check_subtask,
)
from .text.render import block_table
from .world import Stream, build_world

__all__ = ["FreshWorld", "fresh_world"]


class FreshWorld(NamedTuple):
    """A world's name, its rules by id (ids are row numbers), and questions that they answer by sub-task.

    Tables have the columns of the benchmark's. Any rules of it that hold a question's gold rules are a world that
    answers the question the same (C9).
    """

    world_id: str
    rules: pa.Table
    questions: dict[str, pa.Table]


def fresh_world(
    seed: int,
    number: int,
    questions: Mapping[str, int],
    sizes: WorldSizes = SCALES["tiny"].sizes,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
) -> FreshWorld:
    """Draw one world of a sequence named by a seed.

    Worlds share the benchmark's vocabulary, and a rule of its worlds only by chance (about one in a thousand): their
    seeds are hashes that no benchmark world is given. Question ids repeat from world to world; ``world_id`` tells them
    apart.

    Parameters
    ----------
    seed, number : int
        Which sequence, and which world of it.
    questions : mapping
        How many questions of each sub-task.
    sizes : WorldSizes
        Terms and rules: with few terms, distractors resemble gold rules. Dials change them (`WorldSizes.turned`).
    version : str
        A name of `ruleworld_data.spec.VERSIONS`.
    dials : Dials
        Where the world and its questions depart from the paper's.

    Raises
    ------
    ValueError
        For an unknown sub-task, more questions than the world has, or dials that the sizes do not allow.
    """
    check_seed(seed)
    check_name("version", version, VERSIONS)
    check_kind("dials", dials, Dials, "Dials(hops=6) or Dials.parse('hops=6')")
    check_kind("sizes", sizes, WorldSizes, "SCALES['tiny'].sizes")
    check_kind("questions", questions, Mapping, "{'multi_hop_3': 100}")
    for subtask in questions:
        check_subtask("sub-task", subtask, dials)
    for name, value in {"number": number, **questions}.items():
        check_count(name, value)
    world_seed = int(Stream("fresh", seed, number).words(1)[0] >> np.uint64(1))
    world, schema = build_world(world_seed, sizes.turned(dials), dials=dials), rule_schema(dials)
    blocks = [block_table(block, world, schema=schema, version=version) for block in world.blocks.values()]
    rules = pa.concat_tables(decode(block, schema) for block in blocks).combine_chunks()
    tables = {}
    for subtask, rows in questions.items():
        origin = Origin(world, "heldout", subtask, version)
        if rows and subtask.startswith("multi_rule"):
            block = ParallelBlock(origin, 0, 0, rows, limit=max(rows, SMALLEST_POOL))
            tables[subtask] = block.table(0, rows)
        elif rows:
            draw = compare_table if subtask.startswith("compare") else chain_table
            tables[subtask] = draw(origin, rows)
    made = {subtask: decode(table, QUESTION_SCHEMA) for subtask, table in tables.items()}
    return FreshWorld(world.world_id, rules, made)
