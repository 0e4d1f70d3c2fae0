"""Units: what a question is before it is worded, drawn without replacement and split by what they ask.

A unit is a chain of rules, the numbers the question states, and the creatures it names. Units are never enumerated when
there are many: they are numbered, and different numbers are drawn.

Splits share no sub-question: which split a unit may serve is a hash of its rules and numbers (for multi-hop units: of
the chain alone, so that no test chain is trained on, whoever it happens to).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..world.arrays import MAX_COUNT, MAX_UNITS, MIN_COUNT, Ints, World
from ..world.streams import Stream, mix
from .skeletons import Skeleton, chains, group

SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0), "heldout": (0.0, 1.0)}
"""Each split's part of the hash range; the held-out world serves one split alone."""


@dataclass(frozen=True)
class Units:
    """Drawn units of one skeleton, as arrays of equal length.

    Attributes
    ----------
    rows : list of int arrays
        For each hop, the rule's row in its block.
    initial_row : int array or None
        Row of the ``entity2attr`` rule that gives the initial value.
    initial : int array or None
        Initial value, from the rule or stated in the question.
    units : int array
        Size of the change that starts the chain (1 where none does).
    subject, other : int array or None
        Kinds of the two creatures; None where the question names none.
    """

    skeleton: Skeleton
    rows: list[Ints]
    initial_row: Ints | None
    initial: Ints | None
    units: Ints
    subject: Ints | None
    other: Ints | None

    def __len__(self) -> int:
        return len(self.units)


class UnitSource:
    """All units of one skeleton that one split of a world may use.

    Parameters
    ----------
    world : World
        Where the rules are.
    skeleton : Skeleton
        The typed path.
    split : str
        A key of `SHARES`.
    """

    def __init__(self, world: World, skeleton: Skeleton, split: str) -> None:
        self.world, self.skeleton, self.split = world, skeleton, split
        rows = chains(world, skeleton.path)
        self._by_chain = skeleton.initial is None or len(skeleton.path) > 1
        if self._by_chain:
            keep = self._allowed(*self._ids(rows))
            rows = [column[keep] for column in rows]
        self.rows = rows
        entities = len(world.terms["entity"])
        self._n_units = MAX_UNITS if skeleton.start == "change" else 1
        self._n_subjects = entities if skeleton.initial is None and skeleton.start != "kind" else 1
        kind_known = skeleton.initial != "stated"
        self._n_others = (entities - kind_known) if skeleton.start == "action" else 1
        self._initial_order, first, count = (np.zeros(0, np.int32), None, None)
        if skeleton.initial == "rule":
            givers = world.blocks["entity2attr"]["attribute"]
            self._initial_order, first, count = group(givers, len(world.terms["attribute"]))
            queried = world.blocks[skeleton.path[-1]]["attribute"][rows[-1]]
            self._first, choices = first[queried], count[queried]
        else:
            stated = MAX_COUNT - MIN_COUNT + 1 if skeleton.initial == "stated" else 1
            choices = np.full(len(rows[0]), stated)
        self._ends = np.cumsum(choices * (self._n_units * self._n_subjects * self._n_others))

    @property
    def numbered(self) -> int:
        """How many units are numbered, before the split's share is taken of those whose numbers decide."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def draw(self, stream: Stream, count: int) -> Units:
        """Draw up to ``count`` different units at random; fewer only if the split has no more."""
        numbered = self.numbered
        wanted = count
        if not self._by_chain:
            low, high = SHARES[self.split]
            wanted = int((1.2 * count + 40) / (high - low))  # at least six standard deviations to spare
        return self._decode(stream.distinct(numbered, min(wanted, numbered)), count)

    def _decode(self, numbers: NDArray[np.int64], count: int) -> Units:
        world, skeleton = self.world, self.skeleton
        chain = np.searchsorted(self._ends, numbers, side="right")
        rest = numbers - np.concatenate([[0], self._ends])[chain]
        rest, other = np.divmod(rest, self._n_others)
        rest, subject = np.divmod(rest, self._n_subjects)
        rest, units = np.divmod(rest, self._n_units)
        rows = [column[chain] for column in self.rows]
        initial_row = initial = None
        if skeleton.initial == "rule":
            initial_row = self._initial_order[self._first[chain] + rest]
            initial = world.blocks["entity2attr"]["amount"][initial_row]
        elif skeleton.initial == "stated":
            initial = MIN_COUNT + rest
        if not self._by_chain:
            giver = world.blocks["entity2attr"].ids[initial_row] if initial_row is not None else initial
            assert giver is not None
            keep = np.flatnonzero(self._allowed(*self._ids(rows), giver, units))[:count]
        else:
            keep = np.arange(min(count, len(numbers)))
        kind: Ints | None = None
        if skeleton.start == "kind":
            kind = world.blocks["entity2attr"]["entity"][rows[0]]
        elif initial_row is not None:
            kind = world.blocks["entity2attr"]["entity"][initial_row]
        elif skeleton.initial is None:
            kind = subject
        if skeleton.start == "action" and kind is not None:
            other = other + (other >= kind)  # two different kinds
        return Units(
            skeleton,
            [column[keep] for column in rows],
            None if initial_row is None else initial_row[keep],
            None if initial is None else initial[keep].astype(np.int64),
            units[keep] + 1,
            None if kind is None else kind[keep],
            other[keep] if skeleton.start == "action" else None,
        )

    def _ids(self, rows: list[Ints]) -> list[Ints]:
        return [self.world.blocks[kind].ids[row] for kind, row in zip(self.skeleton.path, rows, strict=True)]

    def _allowed(self, *key: Ints) -> NDArray[np.bool_]:
        salt = Stream("split", self.world.seed, self.skeleton.name).words(1)
        low, high = SHARES[self.split]
        fraction = mix(salt, *key).astype(np.float64) / 2.0**64
        return (fraction >= low) & (fraction < high)


def draw_units(
    world: World, split: str, shares: dict[Skeleton, float], count: int, key: tuple[str | int, ...]
) -> list[Units]:
    """Draw exactly ``count`` units of several skeletons, as near to their shares as the world allows.

    Raises
    ------
    ValueError
        If the world has fewer units.
    """
    sources = {skeleton: UnitSource(world, skeleton, split) for skeleton in shares}
    limit = {skeleton: source.numbered for skeleton, source in sources.items()}
    drawn: dict[Skeleton, Units] = {}
    while True:
        quota = _allocate(count, shares, limit)
        for skeleton, source in sources.items():
            if skeleton not in drawn or len(drawn[skeleton]) != quota[skeleton]:
                drawn[skeleton] = source.draw(Stream("units", *key, skeleton.name), quota[skeleton])
        short = {s: len(u) for s, u in drawn.items() if len(u) < quota[s]}
        if not short:
            return [drawn[skeleton] for skeleton in shares]
        limit |= short


def _allocate(count: int, shares: dict[Skeleton, float], limit: dict[Skeleton, int]) -> dict[Skeleton, int]:
    """Split ``count`` by shares, passing on what a skeleton cannot take; whole numbers that add up."""
    if sum(limit.values()) < count:
        have = ", ".join(f"{skeleton.name}: {limit[skeleton]}" for skeleton in shares)
        raise ValueError(f"{count} questions wanted, but this world has only {have}; use a larger world")
    quota = dict.fromkeys(shares, 0)
    left = count
    while left:
        open_ = {s: w for s, w in shares.items() if quota[s] < limit[s]}
        total = sum(open_.values())
        step = {s: min(int(left * w / total), limit[s] - quota[s]) for s, w in open_.items()}
        if not any(step.values()):  # the last few, largest share first
            first = max(open_, key=lambda s: open_[s])
            step = {first: 1}
        for skeleton, more in step.items():
            quota[skeleton] += more
        left = count - sum(quota.values())
    return quota
