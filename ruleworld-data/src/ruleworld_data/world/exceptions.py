"""Which rules have exceptions, and for whom: kinds of creature, places, or both."""

import numpy as np

from .arrays import MAX_EFFECT
from .draws import Draws
from .streams import Ints, keyed_integers, mix


class Excepting(Draws):
    """Draws rules from the states of places to drivers of a colour of their own, and exceptions to them."""

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
