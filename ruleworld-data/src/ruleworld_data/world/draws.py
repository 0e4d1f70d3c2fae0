"""What every rule is drawn with: streams, slots and values named by the seed, other ones in the held-out world."""

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
