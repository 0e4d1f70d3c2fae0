"""A world: which terms exist and which rules hold, as index arrays.

The constraints C1-C8 hold by construction, so nothing is ever generated and thrown away:

- every rule type is a function of its key (C1, C2);
- attributes are *drivers* (what states and actions change, what triggers other changes) or *responses* (what drivers
  trigger, one driver each), so attribute changes are acyclic and no attribute is reached along two paths (C3, C4);
- the states that environments lead to, the states that actions lead to, and the attribute an action changes itself
  touch disjoint drivers (C5);
- initial counts are at least the largest possible loss, ``3 units x 3`` (C6);
- one term, one name (C7); pairs on the deny list are never drawn (C8).

Hence C9: whatever other rules are in force, a question's answer is the one its gold rules give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..spec import RULE_TYPES, WorldSizes, check_seed
from .streams import Key, Stream, keyed_integers
from .vocabulary import load_vocabulary

MIN_COUNT, MAX_COUNT = 9, 20
"""Initial values: no chain can take more than ``MAX_UNITS * MAX_EFFECT`` away."""
MAX_EFFECT = 3
MAX_UNITS = 3
MINUS, PLUS = 0, 1
ACTOR, TARGET = 0, 1
OPERATORS = ("minus", "plus")
ROLES = ("actor", "target")

Ints = NDArray[Any]


@dataclass(frozen=True)
class RuleBlock:
    """All rules of one type: ids and typed parts, one array each, sorted by key.

    ``columns`` holds term indices (of the world, not of the vocabulary), ``operator`` and ``trigger_operator`` (0
    minus, 1 plus), ``role`` (0 actor, 1 target), ``amount``, and ``verb`` / ``trigger_verb`` (index in the operator's
    lexicon).
    """

    type: str
    ids: NDArray[np.int32]
    columns: dict[str, Ints]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def take(self, rows: Ints | slice) -> RuleBlock:
        """Return the block with only some rows."""
        return RuleBlock(self.type, self.ids[rows], {k: v[rows] for k, v in self.columns.items()})


@dataclass(frozen=True)
class World:
    """The terms and rules of one world.

    Attributes
    ----------
    world_id : str
        Name used in the data.
    sizes : WorldSizes
        What the world was drawn with; `restrict` leaves it as it is.
    terms : dict
        For each of entity, attribute, action, environment, state: the vocabulary index of every term.
    blocks : dict
        One `RuleBlock` per rule type.
    """

    world_id: str
    seed: int
    sizes: WorldSizes
    terms: dict[str, Ints]
    blocks: dict[str, RuleBlock]
    subset_rows: dict[str, Ints] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks.values())

    def restrict(self) -> World:
        """Return the same world with only the rules of its subset; their ids do not change."""
        blocks = {
            t: b.take(self.subset_rows[t]) if t in self.subset_rows else b for t, b in self.blocks.items()
        }
        return World(self.world_id, self.seed, self.sizes, self.terms, blocks)

    @cached_property
    def rule_ids(self) -> NDArray[np.int32]:
        """Ids of all rules, ascending."""
        return np.concatenate([block.ids for block in self.blocks.values()])


def build_world(
    seed: int, sizes: WorldSizes, subset: dict[str, int] | None = None, *, heldout: bool = False
) -> World:
    """Draw the world of a seed.

    Parameters
    ----------
    seed : int
        World seed.
    sizes : WorldSizes
        Terms and rules.
    subset : dict, optional
        Also draw a random subset with this many rules per open type (see `World.restrict`).
    heldout : bool
        Draw the seed's held-out world instead: the same terms, and no rule in common with the first world of these
        sizes.

    Returns
    -------
    World
    """
    check_seed(seed)
    return _Builder(seed, sizes, subset or {}, heldout).build()


class _Builder:
    def __init__(self, seed: int, sizes: WorldSizes, subset: dict[str, int], heldout: bool) -> None:
        self.seed, self.sizes, self.subset, self.heldout = seed, sizes, subset, heldout
        self.vocabulary = load_vocabulary()
        self.subset_rows: dict[str, Ints] = {}

    def build(self) -> World:
        sizes = self.sizes
        terms = self._terms()
        environment_of, env_state, action_state = self._routes(terms)
        order = self._stream("responses").permutation(sizes.attributes)
        drivers, responses = np.split(order, 2)
        env_drivers, action_drivers = np.split(drivers, 2)
        action, role = np.divmod(np.arange(2 * sizes.actions), 2)
        action_attribute = drivers[self._stream("action attribute").integers(len(drivers), 2 * sizes.actions)]
        touched = {  # C5: what an action changes itself, its states must leave alone
            "target": action_attribute[1::2],
            "actor": action_attribute[0::2],
        }
        columns = {
            "entity2attr": self._entity2attr(),
            "attrchange2attr": self._changes(drivers, responses),
            "action2env": {"action": np.arange(sizes.actions), "environment": environment_of},
            "action2attr": {
                "action": action,
                "role": role,
                "attribute": action_attribute,
                **self._effect("action2attr", action, role),
            },
            "action2state": {"action": action, "role": role, "state": action_state},
            "env2state": {"environment": np.arange(sizes.environments), "state": env_state},
            "state2attr": self._state2attr(
                (env_state, env_drivers),
                (action_state, action_drivers),
                drivers,
                np.concatenate([env_state[environment_of], action_state[1::2], action_state[0::2]]),
                np.concatenate([touched["target"], touched["target"], touched["actor"]]),
            ),
        }
        blocks, first = {}, 0
        for rule_type in RULE_TYPES:
            part = {name: np.asarray(values).astype(np.int16) for name, values in columns[rule_type].items()}
            count = len(next(iter(part.values())))
            ids = np.arange(first, first + count, dtype=np.int32)
            blocks[rule_type] = RuleBlock(rule_type, ids, part)
            first += count
        world_id = f"rw-{self.seed}" + ("-heldout" if self.heldout else "")
        return World(world_id, self.seed, sizes, terms, blocks, self.subset_rows)

    def _key(self, *name: Key) -> tuple[Key, ...]:
        return ("heldout world" if self.heldout else "world", self.seed, *name)

    def _stream(self, *name: Key) -> Stream:
        return Stream(*self._key(*name))

    def _terms(self) -> dict[str, Ints]:
        """Choose the terms; the same for a world and its held-out twin."""
        words = self.vocabulary
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
        action_env, env_state, action_state = (
            denied[np.ix_(terms[left], terms[right])]
            for denied, left, right in zip(
                _denied(), ("action", "environment", "action"), ("environment", "state", "state"), strict=True
            )
        )
        state_denied = np.concatenate([env_state, np.repeat(action_state, 2, axis=0)])
        if self.heldout:
            world = build_world(self.seed, _routes_only(sizes))
            action_env = action_env.copy()
            action_env[np.arange(sizes.actions), world.blocks["action2env"]["environment"]] = True
            taken = np.concatenate(
                [world.blocks["env2state"]["state"], world.blocks["action2state"]["state"]]
            )
            state_denied[np.arange(len(taken)), taken] = True
        environments = _assign(self._stream("environments"), action_env)
        states = _assign(self._stream("states"), state_denied)
        return environments, states[: sizes.environments], states[sizes.environments :]

    def _entity2attr(self) -> dict[str, Ints]:
        sizes = self.sizes
        slots = self._choose("entity2attr", sizes.entities * sizes.attributes, sizes.entity2attr)
        entity, attribute = np.divmod(slots, sizes.attributes)
        span = MAX_COUNT - MIN_COUNT + 1
        return {
            "entity": entity,
            "attribute": attribute,
            "amount": MIN_COUNT + self._value("count", span, slots),
        }

    def _changes(self, drivers: Ints, responses: Ints) -> dict[str, Ints]:
        slots = self._choose("attrchange2attr", 2 * len(drivers), self.sizes.attrchange2attr)
        position, operator = np.divmod(slots, 2)
        key = np.argsort(drivers[position] * 2 + operator, kind="stable")
        if "attrchange2attr" in self.subset_rows:  # rows were positions in slot order
            self.subset_rows["attrchange2attr"] = np.flatnonzero(
                np.isin(key, self.subset_rows["attrchange2attr"])
            )
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
        self,
        environment: tuple[Ints, Ints],
        action: tuple[Ints, Ints],
        drivers: Ints,
        barred_state: Ints,
        barred_attribute: Ints,
    ) -> dict[str, Ints]:
        """Choose what each state changes: reachable states a half of the drivers, the others any driver."""
        sizes = self.sizes
        allowed = np.zeros((sizes.states, sizes.attributes), dtype=bool)
        allowed[:, drivers] = True
        for states, half in (environment, action):
            allowed[states] = False
            allowed[np.ix_(states, half)] = True
        allowed[barred_state, barred_attribute] = False
        slots = np.flatnonzero(allowed.ravel())
        slots = slots[self._choose("state2attr", len(slots), sizes.state2attr)]
        state, attribute = np.divmod(slots, sizes.attributes)
        return {"state": state, "attribute": attribute, **self._effect("state2attr", state, attribute)}

    def _choose(self, rule_type: str, slots: int, count: int) -> Ints:
        """Choose which slots hold a rule, and which of those rules are in the subset."""
        few = self.subset.get(rule_type)
        if few is None:
            return self._stream(rule_type).subset(slots, count)[0]
        if few > count:
            raise ValueError(f"a subset of {few} {rule_type} rules cannot be drawn from {count}")
        part, whole = self._stream(rule_type).subset(slots, few, count)
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
        lexicon = (len(self.vocabulary.minus), len(self.vocabulary.plus))
        both = [keyed_integers(self._key("verb", name, sign), lexicon[sign], *key) for sign in (MINUS, PLUS)]
        return np.where(operator == MINUS, both[MINUS], both[PLUS])


@lru_cache(maxsize=1)
def _denied() -> tuple[NDArray[np.bool_], ...]:
    """Return the deny list over the whole vocabulary: action-environment, environment-state, action-state."""
    words = load_vocabulary()
    return words.denied_action_env(), words.denied_env_state(), words.denied_action_state()


def _routes_only(sizes: WorldSizes) -> WorldSizes:
    """Return sizes that draw the same routes and nothing else."""
    few = {"entity2attr": 0, "attrchange2attr": 0, "state2attr": 0}
    return WorldSizes(**(vars(sizes) | few))


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
