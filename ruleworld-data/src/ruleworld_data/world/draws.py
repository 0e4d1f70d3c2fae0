"""What rules are drawn with: streams, slots and values named by the seed, others in the held-out world; exceptions."""

import numpy as np
from numpy.typing import NDArray

from ..spec import Dials, WorldSizes
from .arrays import MAX_EFFECT, MINUS, PLUS
from .streams import Ints, Key, Stream, keyed_integers, mix
from .vocabulary import load_vocabulary

NO_SLOTS = np.empty(0, dtype=np.int64)


class Draws:
    """The drawing of one world: its seed and sizes, and whether it is the held-out one."""

    def __init__(
        self, seed: int, sizes: WorldSizes, subset: dict[str, int], heldout: bool, dials: Dials
    ) -> None:
        self.seed, self.sizes, self.subset, self.heldout, self.dials = seed, sizes, subset, heldout, dials
        self.subset_rows: dict[str, Ints] = {}

    def _key(self, *name: Key) -> tuple[Key, ...]:
        tag = (self.dials.tag,) if self.dials.tag else ()
        return ("heldout world" if self.heldout else "world", self.seed, *tag, *name)

    def _stream(self, *name: Key) -> Stream:
        return Stream(*self._key(*name))

    def _pick(self, rule_type: str, rows: Ints, allowed: NDArray[np.bool_]) -> Ints:
        """Choose the fixed number of slots in each row of a table; ``rows`` are their numbers in it."""
        slots = rows[:, None] * allowed.shape[1] + np.arange(allowed.shape[1])
        words = mix(self._stream(rule_type, "fixed").words(1), slots)
        words[~allowed] = np.iinfo(np.uint64).max
        if not len(rows):
            return NO_SLOTS
        chosen = np.argpartition(words, self.sizes.share, axis=1)[:, : self.sizes.share]
        return np.sort(np.take_along_axis(slots, chosen, axis=1).ravel())

    def _choose(self, rule_type: str, slots: Ints, count: int, fixed: Ints = NO_SLOTS) -> Ints:
        """Choose which slots hold a rule besides the fixed ones, and which of those rules are in the subset."""
        part_count = self.subset.get(rule_type)
        counts = [count] if part_count is None else [part_count, count]
        parts = self._stream(rule_type).subset(len(slots), *(n - len(fixed) for n in counts))
        chosen = [np.sort(np.concatenate([fixed, slots[part]])) for part in parts]
        if part_count is not None:
            self.subset_rows[rule_type] = np.searchsorted(chosen[-1], chosen[0])
        return chosen[-1]

    def _value(self, name: str, high: int, *columns: Ints) -> Ints:
        """Choose a value per key; the held-out world's differs from the first world's everywhere."""
        value = keyed_integers(("world", self.seed, name), high, *columns)
        if self.heldout:
            value = (value + 1 + keyed_integers(self._key(name), high - 1, *columns)) % high
        return value

    def _effect(self, name: str, *key: Ints) -> dict[str, Ints]:
        operator, amount = np.divmod(self._value(name, 2 * MAX_EFFECT, *key), MAX_EFFECT)
        return {"operator": operator, "amount": amount + 1, "verb": self._verb(name, operator, *key)}

    def _verb(self, name: str, operator: Ints, *key: Ints) -> Ints:
        lexicon = [len(verbs) for verbs in load_vocabulary().change_verbs.values()]
        both = [keyed_integers(self._key("verb", name, sign), lexicon[sign], *key) for sign in (MINUS, PLUS)]
        return np.where(operator == MINUS, both[MINUS], both[PLUS])

    def _guards(self, drivers: Ints) -> Ints:
        """Choose the kinds that rules about each driver have exceptions for: shape drivers x 2 x kinds.

        A rule takes one of the two sets, and in the held-out world the other: the worlds share no exception.
        """
        words = mix(self._stream("guards").words(1), drivers[:, None], np.arange(self.sizes.entities))
        sets = [np.argsort(words[:, i::2], axis=1)[:, : self.sizes.guards] * 2 + i for i in (0, 1)]
        return np.stack(sets, axis=1)

    def _exceptions(self, slots: Ints, env_state: Ints, drivers: Ints, guards: Ints) -> dict[str, Ints]:
        """Choose what sets rules aside: some kinds or the place; and for two levels, what sets that aside: both.

        An exception has the operator of its rule, and another amount than what it sets aside, maybe 0.
        """
        states, attributes = np.divmod(slots, self.sizes.attributes)
        home = np.empty(self.sizes.states, dtype=np.int64)
        home[env_state] = np.arange(len(env_state))
        home, many = home[states], self.sizes.guards
        row = np.empty(self.sizes.attributes, dtype=np.int64)
        row[drivers] = np.arange(len(drivers))
        taken = keyed_integers(("world", self.seed, "guards"), 2, states, attributes) ^ self.heldout
        kinds, effect = guards[row[attributes], taken], self._effect("state2attr", states, attributes)
        order = self._stream("exceptions").permutation(len(slots))
        by_kind, by_place = np.split(order, [(len(slots) + 1) // 2])

        def other(amount: Ints, rule: Ints, *guard: Ints) -> Ints:
            key = (states[rule], attributes[rule], *guard)
            return (amount + 1 + keyed_integers(self._key("exception"), MAX_EFFECT, *key)) % (MAX_EFFECT + 1)

        rule = np.concatenate([np.repeat(by_kind, many), by_place])
        kind = np.concatenate([kinds[by_kind].ravel(), np.full(len(by_place), -1)])
        place = np.where(kind < 0, home[rule], -1)
        amount = other(effect["amount"][rule], rule, kind)
        if self.sizes.exceptions > 1:
            above = np.repeat(np.arange(len(rule)), np.where(kind < 0, many, 1))  # which one it sets aside
            inner = rule[above]
            whose = np.concatenate([kind[kind >= 0], kinds[by_place].ravel()])
            # Of the exceptions for a kind, half have theirs in the place that leads to the state, half elsewhere.
            away, far = (
                keyed_integers(self._key(name), high, states[inner], attributes[inner], whose)
                for name, high in (("away", 2), ("far", len(env_state) - 1))
            )
            there = (home[inner] + (kind[above] >= 0) * away * (1 + far)) % len(env_state)
            again = other(amount[above], inner, whose, there)
            rule, kind = np.concatenate([rule, inner]), np.concatenate([kind, whose])
            place, amount = np.concatenate([place, there]), np.concatenate([amount, again])
        sort = np.lexsort((place, kind, attributes[rule], states[rule]))
        rule, kind, place, amount = rule[sort], kind[sort], place[sort], amount[sort]
        key = (states[rule], attributes[rule], kind, place)
        parts = dict(zip(("state", "attribute", "entity", "environment"), key, strict=True))
        operator = effect["operator"][rule]
        return parts | {
            "operator": operator,
            "amount": amount,
            "verb": self._verb("exception", operator, *key),
        }
