"""Units: what a question is before it is worded, drawn without replacement and split by what they ask.

A unit is a chain of rules, the numbers the question states, and the creatures it names. Units are never enumerated when
there are many: they are numbered, and different numbers are drawn.

Splits share no sub-question: which split a unit may serve is a hash of its rules and numbers (for multi-hop units: of
the chain alone, so that no test chain is trained on, whoever it happens to).
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..world import Ints, Stream, World, keyed_integers, mix
from ..world.arrays import MAX_COUNT, MAX_UNITS, MIN_COUNT
from .skeletons import Skeleton, chains, group

SHARES = {
    "train": (0.0, 0.8),
    "validation": (0.8, 0.9),
    "test": (0.9, 1.0),
    "heldout": (0.0, 1.0),
    "unseen": (0.0, 0.9),
}
"""Each split's part of the hash range; held-out questions have a world of their own, unseen ones other rules."""
CHAIN_SHARES = SHARES | {
    "train": (0.0, 0.5),
    "validation": (0.5, 0.75),
    "test": (0.75, 1.0),
    "unseen": (0.0, 0.75),
}
"""The same for chains that serve one split alone, of which a world has few.

Constants, not functions of the world: the full scale trains on a larger world and is tested on the paper's.
"""
BALANCED = ("validation", "test", "heldout", "unseen")
"""Splits whose units spread over chains evenly."""


@dataclass(frozen=True)
class Units:
    """Drawn units of one skeleton, as arrays of equal length; None where the question has none.

    Per hop the rule's row in its block; row and value of the initial count (a stated one has no row); units of the
    change that starts the chain (1 where none does); kinds of the two creatures. ``exceptions`` are the rows of those
    that apply, each after what it sets aside.
    """

    skeleton: Skeleton
    rows: list[Ints]
    initial_row: Ints | None
    initial: Ints | None
    amount: Ints
    subject: Ints | None
    other: Ints | None
    exceptions: tuple[Ints, ...] = ()

    def __len__(self) -> int:
        return len(self.amount)


class UnitSource:
    """All units of one skeleton that one split of a world may use."""

    def __init__(self, world: World, skeleton: Skeleton, split: str) -> None:
        self.skeleton, self.split = skeleton, split
        self.world = world if skeleton.gap is None else world.whole
        self._rows = chains(self.world, skeleton.path)
        givers = np.arange(len(self.world.blocks["entity2attr"]))
        if skeleton.gap is not None:  # in the whole world's blocks, rows of this one come first
            for hop, rule_type in enumerate(skeleton.path):
                self._keep((self._rows[hop] < len(world.blocks[rule_type])) == (hop != skeleton.gap))
            size = len(world.blocks["entity2attr"])
            givers = givers[size:] if skeleton.gap == len(skeleton.path) else givers[:size]
        self._by_gap = skeleton.gap is not None and skeleton.gap < len(skeleton.path)
        self._by_chain = skeleton.initial is None or len(skeleton.path) > 1
        self._by_chain = self._by_chain or skeleton.exceptions is not None or skeleton.gap is not None
        self._exceptions: tuple[Ints, ...] = ()
        # Unseen may ask about the gaps of validation, in whose questions nothing is reserved, and not about train's.
        share = "validation" if self._by_gap and split == "unseen" else split
        self._share = (CHAIN_SHARES if self._by_chain else SHARES)[share]
        path = skeleton.path
        if world.reserves and split in ("train", "validation", "unseen"):
            # Of unseen the rules that give an answer count: the last one, and who has what at first.
            hops = (
                {len(path) - 1, *range(path[0] == "entity2attr")} if split == "unseen" else range(len(path))
            )
            self._keep(np.logical_and.reduce([self._open(path[hop])[self._rows[hop]] for hop in hops]))
        self._balanced = split in BALANCED
        if self._by_chain:
            self._keep(self._allowed(*self._ids(self._rows)))
        if len(world.threshold_driven) and skeleton.answer_type == "count" and skeleton.initial != "stated":
            # A creature of a kind has counts of its own, whose thresholds may change what is asked.
            queried = self.world.blocks[skeleton.path[-1]]["attribute"][self._rows[-1]]
            self._keep(np.isin(queried, world.threshold_driven) == skeleton.has_threshold)
        if "exception" in world.blocks and "state2attr" in skeleton.path:
            # What has exceptions is asked for by the sub-tasks of exceptions alone: nobody else states who is where.
            changed = world.blocks["state2attr"]["attribute"][self._rule()]
            excepted = np.isin(changed, world.blocks["exception"]["attribute"])
            self._keep(excepted == (skeleton.exceptions is not None))
        if skeleton.start == "change":
            # Below the first responses every amount is 1: who knows a sign there knows the answer without the rule.
            changes = world.whole.blocks["attrchange2attr"]
            first = ~np.isin(changes["trigger_attribute"], changes["attribute"])
            self._keep(first[self._rows[0]])
        if skeleton.start == "kind":
            # Such a question names a kind and an attribute and nothing else, and must not stand in both worlds of a
            # seed, where it has two answers.
            has, last = world.blocks["entity2attr"], -1 if skeleton.answer_type == "count" else 0
            kind = has["entity"][self._rows[0]]
            queried = world.blocks[skeleton.path[last]]["attribute"][self._rows[last]]
            heldout = world.world_id.endswith("-heldout")
            self._keep(keyed_integers(("asked of", world.seed), 2, kind, queried) == heldout)
        if skeleton.has_threshold:  # the chain begins after the count; who has it comes last
            self._keep(np.lexsort(self._rows))
        entities = len(world.terms["entity"])
        kind_known = skeleton.initial != "stated"
        # A unit's number counts, fastest first: other creature, subject, size of the change, initial value, chain.
        self._radix = (
            entities - kind_known if skeleton.start == "action" else 1,
            entities if skeleton.initial is None and skeleton.start != "kind" else 1,
            MAX_UNITS if skeleton.start == "change" else 1,
        )
        choices = np.full(
            len(self._rows[0]), MAX_COUNT - MIN_COUNT + 1 if skeleton.initial == "stated" else 1
        )
        if skeleton.initial == "rule":
            entity2attr, attributes = self.world.blocks["entity2attr"], len(world.terms["attribute"])
            givers = givers[self._open("entity2attr")[givers]]
            key = entity2attr["attribute"][givers].astype(np.int64)
            queried = self.world.blocks[skeleton.path[-1]]["attribute"][self._rows[-1]].astype(np.int64)
            if skeleton.has_threshold:  # whoever has the count has the attribute at the end, too
                queried += attributes * entity2attr["entity"][self._rows[0]].astype(np.int64)
                key += attributes * entity2attr["entity"][givers].astype(np.int64)
                attributes *= entities
            order, first, count = group(key, attributes)
            self._givers = givers[order]
            self._first_giver, choices = first[queried], count[queried]
            if skeleton.exceptions is not None:
                choices = self._pair(choices)
        self._ends = np.cumsum(choices * prod(self._radix))
        self._chain_ends = self._ends
        if (skeleton.has_threshold or skeleton.exceptions is not None) and len(self._ends):
            chain = np.stack(self._rows[skeleton.has_threshold :])
            self._chain_ends = self._ends[np.append((chain[:, 1:] != chain[:, :-1]).any(axis=0), True)]

    def _rule(self) -> Ints:
        """Return the rows of the path's rule from a state."""
        return self._rows[self.skeleton.path.index("state2attr")]

    def _pair(self, choices: Ints) -> Ints:
        """Keep chains with every creature that so many exceptions apply to; return that each pair is one choice."""
        level, path = self.skeleton.exceptions, self.skeleton.path
        chain = np.repeat(np.arange(len(choices)), choices)
        within = np.arange(len(chain)) - np.repeat(np.cumsum(choices) - choices, choices)
        giver = self._givers[self._first_giver[chain] + within]
        self._keep(chain)
        places: Ints | int = -1
        if "env2state" in path:
            block = self.world.blocks["env2state"]
            places = block["environment"][self._rows[path.index("env2state")]]
        found = _applying(self.world, self._rule(), self.world.blocks["entity2attr"]["entity"][giver], places)
        fits = np.sum([rows >= 0 for rows in found], axis=0) == level
        if level and path[-1] != "state2attr":  # nothing follows from no change
            fits &= self.world.blocks["exception"]["amount"][found[level - 1]] > 0
        self._keep(np.flatnonzero(fits))
        self._exceptions = tuple(rows[fits] for rows in found[:level])
        self._givers, self._first_giver = giver[fits], np.arange(fits.sum())
        return np.ones(fits.sum(), dtype=np.int64)

    @property
    def numbered(self) -> int:
        """How many units are numbered, before the split's share is taken of those whose numbers decide."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def draw(self, stream: Stream, count: int) -> Units:
        """Draw up to ``count`` different units at random; fewer only if the split has no more.

        Splits that models are tested on take as many units of one chain as of any other, as far as a chain has them;
        of one hop, ``unseen`` as many of each number at first and each effect, so that no number is a good guess.
        """
        effect_alone = len(self.skeleton.path) == 1 and self.skeleton.answer_type == "count"
        even = effect_alone and self.split == "unseen"
        if self._by_chain and not even:
            return self._decode(self._numbers(stream, count))
        low, high = self._share
        wanted = int((1.2 * count + 40) / (high - low))  # at least six standard deviations to spare
        numbers = self._numbers(stream, 8 * wanted if even else wanted)
        units = self._decode(numbers)
        entity2attr, key = self.world.blocks["entity2attr"], self._ids(units.rows)
        if units.initial is not None and not self._by_chain:
            giver = units.initial if units.initial_row is None else entity2attr.ids[units.initial_row]
            key += [giver, units.amount - 1]
        kept = np.flatnonzero(self._allowed(*key))
        if self._balanced:
            kept = kept[_in_turns(units.rows[0][kept])]
        if even:
            rule = self.world.blocks[self.skeleton.path[0]].take(units.rows[0])
            effect = (2 * rule["amount"] + rule.columns.get("operator", 0)) * (MAX_UNITS + 1) + units.amount
            first = 0 if units.initial_row is None else entity2attr["amount"][units.initial_row]
            kept = kept[_in_turns((effect * (MAX_COUNT + 1) + first)[kept])]
        return self._decode(numbers[kept[:count]])

    def _numbers(self, stream: Stream, count: int) -> Ints:
        """Draw the numbers of up to ``count`` different units."""
        count = min(count, self.numbered)
        if not self._balanced:
            return stream.distinct(self.numbered, count)
        first = np.concatenate([[0], self._chain_ends[:-1]])
        sizes = self._chain_ends - first
        level = 0
        while np.minimum(sizes, level).sum() < count:
            level += 1
        take = np.minimum(sizes, max(level - 1, 0))
        more = np.flatnonzero(sizes >= max(level, 1))
        take[more[stream.permutation(len(more))[: count - take.sum()]]] += 1
        # One unit of each of `take` equal parts of the chain's numbers: the slowest digit, who has the count, spreads.
        chain = np.repeat(np.arange(len(take)), take)
        part = np.arange(count) - np.repeat(np.cumsum(take) - take, take)
        low, high = (sizes[chain] * (part + i) // take[chain] for i in (0, 1))
        numbers = first[chain] + low + stream.integers(high - low, count)
        return numbers[stream.permutation(count)]

    def _decode(self, numbers: Ints) -> Units:
        skeleton, entity2attr = self.skeleton, self.world.blocks["entity2attr"]
        chain = np.searchsorted(self._ends, numbers, side="right")
        rest = numbers - np.concatenate([[0], self._ends])[chain]
        parts = []
        for size in self._radix:
            rest, part = np.divmod(rest, size)
            parts.append(part)
        other, subject, amount = parts
        rows = [column[chain] for column in self._rows]
        initial_row: Ints | None = None
        initial: Ints | None = None
        kind: Ints | None = None
        if skeleton.initial == "rule":
            initial_row = self._givers[self._first_giver[chain] + rest]
            initial, kind = entity2attr["amount"][initial_row], entity2attr["entity"][initial_row]
        elif skeleton.initial == "stated":
            initial = MIN_COUNT + rest
        else:
            kind = entity2attr["entity"][rows[0]] if skeleton.start == "kind" else subject
        if kind is not None:
            other = other + (other >= kind)  # two different kinds
        named = other if skeleton.start == "action" else None
        asides = tuple(column[chain] for column in self._exceptions)
        return Units(skeleton, rows, initial_row, initial, amount + 1, kind, named, asides)

    def _ids(self, rows: list[Ints]) -> list[Ints]:
        """Return the ids of the chain's rules, or of its gap alone, so that train tells nothing of the gaps of test."""
        chain = list(zip(self.skeleton.path, rows, strict=True))[self.skeleton.has_threshold :]
        if self._by_gap:
            chain = [chain[self.skeleton.gap or 0]]
        return [self.world.blocks[kind].ids[row] for kind, row in chain]

    def _open(self, kind: str) -> NDArray[np.bool_]:
        """Return which rules of a type the split may use as one that gives an answer; but for unseen, as any."""
        reserved = self.world.reserved(self.world.blocks[kind])
        return reserved if self.split == "unseen" else ~reserved | (self.split not in ("train", "validation"))

    def _keep(self, rows: Ints) -> None:
        self._rows = [column[rows] for column in self._rows]

    def _allowed(self, *key: Ints) -> NDArray[np.bool_]:
        # A chain is in one split, whatever exceptions apply.
        name = "left out" if self._by_gap else replace(self.skeleton, gap=None, exceptions=None).name
        salt = Stream("split", self.world.seed, name).words(1)
        low, high = self._share
        fraction = mix(salt, *key).astype(np.float64) / 2.0**64
        return (fraction >= low) & (fraction < high)


def _applying(world: World, rules: Ints, kinds: Ints, places: Ints | int) -> list[Ints]:
    """Return which exceptions to a rule apply to a creature of a kind in a place, -1 for nowhere.

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


def _in_turns(chain: Ints) -> Ints:
    """Order rows so that every chain's first comes before any chain's second, and so on."""
    order = np.argsort(chain, kind="stable")
    count = np.bincount(chain)
    rank = np.empty(len(chain), dtype=np.int64)
    rank[order] = np.arange(len(chain)) - (np.cumsum(count) - count)[chain[order]]
    return np.argsort(rank, kind="stable")


def _source(world: World, skeleton: Skeleton, split: str) -> UnitSource:
    """Return the units of a skeleton; those of one hop are kept: every block of a parallel sub-task draws from them."""
    kept = world.derived if len(skeleton.path) == 1 else {}
    key = (UnitSource, skeleton, split)
    if key not in kept:
        kept[key] = UnitSource(world, skeleton, split)
    source: UnitSource = kept[key]
    return source


def draw_units(
    world: World, split: str, shares: dict[Skeleton, float], count: int, key: tuple[str | int, ...]
) -> list[Units]:
    """Draw exactly ``count`` units of several skeletons, as near to their shares as the world allows.

    A ValueError if the world has fewer units.
    """
    sources = {skeleton: _source(world, skeleton, split) for skeleton in shares}
    limit = {skeleton: source.numbered for skeleton, source in sources.items()}
    drawn: dict[Skeleton, Units] = {}
    while True:
        quota = _allocate(count, shares, limit, str(key[-1]))
        for skeleton, source in sources.items():
            if skeleton not in drawn or len(drawn[skeleton]) != quota[skeleton]:
                drawn[skeleton] = source.draw(Stream("units", *key, skeleton.key), quota[skeleton])
        short = {s: len(u) for s, u in drawn.items() if len(u) < quota[s]}
        if not short:
            return [drawn[skeleton] for skeleton in shares]
        limit |= short


def _allocate(
    count: int, shares: dict[Skeleton, float], limit: dict[Skeleton, int], name: str
) -> dict[Skeleton, int]:
    """Split ``count`` by shares, passing on what a skeleton cannot take; whole numbers that add up."""
    if sum(limit.values()) < count:
        raise ValueError(f"{count} questions wanted of {name}, but this world has only {sum(limit.values())}")
    quota = dict.fromkeys(shares, 0)
    left = count
    while left:
        open_ = {s: w for s, w in shares.items() if quota[s] < limit[s]}
        total = sum(open_.values())
        step = {s: min(int(left * w / total), limit[s] - quota[s]) for s, w in open_.items()}
        if not any(step.values()):  # the last few, largest share first
            step = {max(open_, key=lambda s: open_[s]): 1}
        for skeleton, more in step.items():
            quota[skeleton] += more
        left = count - sum(quota.values())
    return quota
