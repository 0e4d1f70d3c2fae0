"""Draw a world: which terms it has, which slots hold a rule, and what each rule says.

Everything is drawn from streams named by the seed. The held-out world of a seed has the same terms, and no rule in
common with the first world: its routes avoid the first one's, and every value is another one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..spec import PAPER_POINT, RULE_TYPES, VERSION, Dials, WorldSizes, check_seed
from .arrays import MAX_COUNT, MAX_EFFECT, MIN_COUNT, MINUS, PLUS, RuleBlock, World
from .streams import Ints, Key, Stream, keyed_integers
from .vocabulary import load_vocabulary


def build_world(
    seed: int,
    sizes: WorldSizes,
    subset: dict[str, int] | None = None,
    *,
    heldout: bool = False,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
) -> World:
    """Draw the world of a seed.

    ``subset`` draws a random part as well, with so many rules per open type (see `World.restrict`); ``heldout`` draws
    the held-out world of the seed instead: the same terms, and no rule in common with the first world of these sizes.
    """
    check_seed(seed)
    return replace(_Drawing(seed, sizes, subset or {}, heldout, dials).world(), version=version)


class _Drawing:
    def __init__(
        self, seed: int, sizes: WorldSizes, subset: dict[str, int], heldout: bool, dials: Dials
    ) -> None:
        self.seed, self.sizes, self.subset, self.heldout, self.dials = seed, sizes, subset, heldout, dials
        self.subset_rows: dict[str, Ints] = {}

    def world(self) -> World:
        sizes = self.sizes
        terms = self._terms()
        environment_of, env_state, action_state = self._routes(terms)
        drivers, responses = np.split(self._stream("responses").permutation(sizes.attributes), 2)
        action, role = np.divmod(np.arange(2 * sizes.actions), 2)
        changed = drivers[self._stream("action attribute").integers(len(drivers), 2 * sizes.actions)]
        # C5: what an action changes itself, the states that it leads to must leave alone. Only targets enter places.
        actor, target = slice(0, None, 2), slice(1, None, 2)
        reached = np.concatenate([env_state[environment_of], action_state[target], action_state[actor]])
        barred = np.concatenate([changed[target], changed[target], changed[actor]])
        columns = {
            "entity2attr": self._entity2attr(),
            "attrchange2attr": self._changes(drivers, responses),
            "action2env": {"action": np.arange(sizes.actions), "environment": environment_of},
            "action2attr": {
                "action": action,
                "role": role,
                "attribute": changed,
                **self._effect("action2attr", action, role),
            },
            "action2state": {"action": action, "role": role, "state": action_state},
            "env2state": {"environment": np.arange(sizes.environments), "state": env_state},
            "state2attr": self._state2attr(drivers, env_state, action_state, (reached, barred)),
        }
        blocks, first = {}, 0
        for rule_type in RULE_TYPES:
            part = {name: np.asarray(values).astype(np.int16) for name, values in columns[rule_type].items()}
            count = len(next(iter(part.values())))
            blocks[rule_type] = RuleBlock(rule_type, np.arange(first, first + count, dtype=np.int32), part)
            first += count
        parts = (f"rw-{self.seed}", self.dials.tag, "heldout" if self.heldout else "")
        world_id = "-".join(part for part in parts if part)
        return World(world_id, self.seed, terms, blocks, self.subset_rows, dials=self.dials)

    def _key(self, *name: Key) -> tuple[Key, ...]:
        tag = (self.dials.tag,) if self.dials.tag else ()
        return ("heldout world" if self.heldout else "world", self.seed, *tag, *name)

    def _stream(self, *name: Key) -> Stream:
        return Stream(*self._key(*name))

    def _terms(self) -> dict[str, Ints]:
        """Choose the terms; the same for a world and the held-out world of its seed."""
        words = load_vocabulary()
        known = {
            "entity": (self.sizes.entities, len(words.entities)),
            "attribute": (self.sizes.attributes, len(words.attributes)),
            "action": (self.sizes.actions, len(words.actions)),
            "environment": (self.sizes.environments, len(words.environments)),
            "state": (self.sizes.states, len(words.states)),
        }
        for kind, (wanted, there) in known.items():
            if wanted > there:
                raise ValueError(f"the vocabulary has {there} terms of kind {kind}, the world wants {wanted}")
        return {
            kind: np.sort(Stream("terms", self.seed, kind).permutation(there)[:wanted])
            for kind, (wanted, there) in known.items()
        }

    def _routes(self, terms: dict[str, Ints]) -> tuple[Ints, Ints, Ints]:
        """Choose each action's environment and each environment's and action's state, all of them one to one."""
        sizes = self.sizes
        action_env = _denied("action_env")[np.ix_(terms["action"], terms["environment"])]
        env_state = _denied("env_state")[np.ix_(terms["environment"], terms["state"])]
        action_state = _denied("action_state")[np.ix_(terms["action"], terms["state"])]
        state = np.concatenate([env_state, np.repeat(action_state, 2, axis=0)])
        if self.heldout:  # the first world's routes are taken; they do not depend on its other rules
            first = replace(sizes, entity2attr=0, attrchange2attr=0, state2attr=0)
            blocks = build_world(self.seed, first).blocks
            taken = np.concatenate([blocks["env2state"]["state"], blocks["action2state"]["state"]])
            action_env[np.arange(sizes.actions), blocks["action2env"]["environment"]] = True
            state[np.arange(len(taken)), taken] = True
        environments = _assign(self._stream("environments"), action_env)
        states = _assign(self._stream("states"), state)
        return environments, states[: sizes.environments], states[sizes.environments :]

    def _entity2attr(self) -> dict[str, Ints]:
        sizes = self.sizes
        slots = self._choose("entity2attr", sizes.entities * sizes.attributes, sizes.entity2attr)
        entity, attribute = np.divmod(slots, sizes.attributes)
        amount = MIN_COUNT + self._value("count", MAX_COUNT - MIN_COUNT + 1, slots)
        return {"entity": entity, "attribute": attribute, "amount": amount}

    def _changes(self, drivers: Ints, responses: Ints) -> dict[str, Ints]:
        """Choose what changes of drivers do to the response of each."""
        slots = self._choose("attrchange2attr", 2 * len(drivers), self.sizes.attrchange2attr)
        position, operator = np.divmod(slots, 2)
        key = np.argsort(drivers[position] * 2 + operator, kind="stable")
        if "attrchange2attr" in self.subset_rows:  # rows were positions in slot order
            chosen = np.isin(key, self.subset_rows["attrchange2attr"])
            self.subset_rows["attrchange2attr"] = np.flatnonzero(chosen)
        position, operator = position[key], operator[key]
        trigger = drivers[position]
        return {
            "trigger_attribute": trigger,
            "trigger_operator": operator,
            "trigger_verb": self._verb("attrchange2attr trigger", operator, trigger),
            "attribute": responses[position],
            **self._effect("attrchange2attr", trigger, operator),
        }

    def _state2attr(
        self, drivers: Ints, env_state: Ints, action_state: Ints, barred: tuple[Ints, Ints]
    ) -> dict[str, Ints]:
        """Choose what each state changes: reachable states a half of the drivers, the others any driver.

        ``barred`` are states and attributes that must not meet.
        """
        sizes = self.sizes
        allowed = np.zeros((sizes.states, sizes.attributes), dtype=bool)
        allowed[:, drivers] = True
        for states, half in zip((env_state, action_state), np.split(drivers, 2), strict=True):
            allowed[states] = False
            allowed[np.ix_(states, half)] = True
        allowed[barred] = False
        slots = np.flatnonzero(allowed.ravel())
        slots = slots[self._choose("state2attr", len(slots), sizes.state2attr)]
        state, attribute = np.divmod(slots, sizes.attributes)
        return {"state": state, "attribute": attribute, **self._effect("state2attr", state, attribute)}

    def _choose(self, rule_type: str, slots: int, count: int) -> Ints:
        """Choose which slots hold a rule, and which of those rules are in the subset."""
        stream, part_count = self._stream(rule_type), self.subset.get(rule_type)
        if part_count is None:
            return stream.subset(slots, count)[0]
        if part_count > count:
            raise ValueError(f"a subset of {part_count} {rule_type} rules cannot be drawn from {count}")
        part, whole = stream.subset(slots, part_count, count)
        self.subset_rows[rule_type] = np.searchsorted(whole, part)
        return whole

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
        lexicon = len(load_vocabulary().minus), len(load_vocabulary().plus)
        both = [keyed_integers(self._key("verb", name, sign), lexicon[sign], *key) for sign in (MINUS, PLUS)]
        return np.where(operator == MINUS, both[MINUS], both[PLUS])


@lru_cache(maxsize=3)
def _denied(kind: str) -> NDArray[np.bool_]:
    """Return the deny list over the whole vocabulary."""
    return load_vocabulary().denied_mask(kind)


def _assign(stream: Stream, denied: NDArray[np.bool_]) -> Ints:
    """Give every row a column of its own, at random, avoiding denied pairs.

    Raises
    ------
    ValueError
        If no such assignment is found: the world is too small for what it must avoid.
    """
    rows, columns = denied.shape
    order = stream.permutation(columns)
    for _ in range(100):
        bad = np.flatnonzero(denied[np.arange(rows), order[:rows]])
        if not len(bad):
            return order[:rows]
        for row, other in zip(bad, stream.integers(columns, len(bad)), strict=True):
            order[row], order[other] = order[other], order[row]
    raise ValueError(
        f"cannot assign {rows} keys to {columns} values without a denied pair; use a larger world"
    )
