"""Rule pools: which rules a question is asked against.

A pool is a pure function of (rule ids, gold ids, size, key): it holds the gold rules, never a rule twice, in an order
that tells nothing, and it is the same on every machine. Pools are computed when needed and never stored.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from .spec import check_columns, check_count, check_kind
from .world import Ints, Key, Stream

__all__ = ["pool_rules", "question_pool", "shared_pool"]


def shared_pool(universe: Ints, gold: Iterable[int], size: int, *key: Key) -> Ints:
    """Return one pool for several questions.

    Parameters
    ----------
    universe : int32 array
        Ints of all rules of the world, e.g. ``table("rules", spec)["id"].to_numpy()``.
    gold : iterable of int
        Gold rule ids of all the questions.
    size : int
        Rules in the pool.
    *key : str or int
        Names the draw, e.g. a seed; a pool of the same key and a larger size holds other rules.

    Returns
    -------
    int32 array
        ``size`` different rule ids, shuffled.

    Raises
    ------
    ValueError
        If the pool cannot hold the gold rules, or the world has too few rules, or a gold id is not in the world.
    """
    check_count("size", size)
    universe = _ids("universe", universe).astype(np.int32)
    if (universe[1:] <= universe[:-1]).any():
        universe = np.unique(universe)
    wanted = np.unique(_ids("gold", [*gold]))
    places = np.searchsorted(universe, wanted)
    outside = wanted[universe[np.minimum(places, len(universe) - 1)] != wanted] if len(universe) else wanted
    if len(outside):
        raise ValueError(
            f"gold rule {outside[0]} (and {len(outside) - 1} more) is not among the world's {len(universe)} rules; "
            "take the rules of the questions' own split and scale"
        )
    if size < len(wanted):
        raise ValueError(
            f"a pool of {size} rules cannot hold the {len(wanted)} gold rules of these questions; "
            f"use a size of at least {len(wanted)}, or a pool per question (question_pool)"
        )
    if size > len(universe):
        raise ValueError(
            f"a pool of {size} rules cannot be drawn from a world of {len(universe)}; use a smaller size or a larger "
            "scale"
        )
    stream = Stream("pool", size, *key)
    drawn = stream.distinct(len(universe) - len(wanted), size - len(wanted))
    # The drawn numbers count the rules that are not gold; skip the gold ones' places.
    drawn = drawn + np.searchsorted(places - np.arange(len(places)), drawn, side="right")
    members = np.concatenate([universe[places], universe[drawn]])
    return members[stream.permutation(size)]


def _ids(name: str, values: object) -> Ints:
    """Return rule ids as an array; texts and fractions are none."""
    ids = np.asarray(values)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be rule ids, as in table('rules', spec)['id'].to_numpy(), got {values!r:.80}"
        )
    return ids.astype(np.int64)


def question_pool(
    universe: Ints, question_id: str, gold: Iterable[int], size: int, seed: int = 0, world_id: str = ""
) -> Ints:
    """Return the pool of one question; see `shared_pool`.

    ``world_id`` is the question's: ids of questions repeat from world to world.
    """
    world = (world_id,) if world_id else ()
    return shared_pool(universe, gold, size, "question", question_id, seed, *world)


def pool_rules(rules: pa.Table, pool: Ints | Sequence[int]) -> pa.Table:
    """Return the pool's rows of a rule table sorted by id, in pool order.

    Raises
    ------
    ValueError
        If a pool id is not in the table.
    """
    check_kind("rules", rules, pa.Table, "table('rules', WorldSpec('tiny'))")
    check_columns("a rule table", rules.column_names, "id")
    ids = rules.column("id").to_numpy()
    rows = np.searchsorted(ids, pool)
    unknown = np.asarray(pool)[np.append(ids, -1)[rows] != pool]
    if len(unknown):
        raise ValueError(
            f"rule {unknown[0]} is not in the table of {len(ids):,} rules; take both from the same world and scale, "
            "and the table in the order of its ids"
        )
    return rules.take(pa.array(rows))
