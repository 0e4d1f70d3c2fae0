"""Which exceptions apply to whom: what a kind of creature, in a place, sets aside of a rule."""

from __future__ import annotations

import numpy as np

from ..world import Ints, World


def applying(world: World, rules: Ints, kinds: Ints, places: Ints | int) -> list[Ints]:
    """Return the exceptions that apply, for each of some creatures.

    Parameters
    ----------
    world : World
        With rules of type ``exception``.
    rules : array of int, shape (n,)
        Rows of ``state2attr``.
    kinds, places : array of int, shape (n,)
        Who meets them where; -1: nowhere.

    Returns
    -------
    list
        Rows of ``exception`` with one condition more than the rule, and with two more; -1 where there is none.
    """
    block, changed = world.blocks["exception"], world.blocks["state2attr"].take(rules)
    sizes = [len(world.terms[name]) + 1 for name in ("attribute", "entity", "environment")]

    def key(state: Ints, *parts: Ints | int) -> Ints:
        code = state.astype(np.int64)
        for part, size in zip(parts, sizes, strict=True):
            code = code * size + part + 1
        return code

    known = key(*(block[name] for name in ("state", "attribute", "entity", "environment")))

    def find(kind: Ints | int, place: Ints | int) -> Ints:
        wanted = key(changed["state"], changed["attribute"], kind, place)
        row = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[row] == wanted, row, -1)

    both = np.where(np.asarray(places) < 0, -1, find(kinds, places))
    return [np.maximum(find(kinds, -1), find(-1, places)), both]
