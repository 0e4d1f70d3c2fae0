"""Draw a world: which terms it has, which slots hold a rule, and what each rule says.

Everything is drawn from streams named by the seed. The held-out world of a seed has the same terms, and no rule in
common with the first world: its routes avoid the first one's, and every value is another one.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..spec import PAPER_POINT, Dials, WorldSizes, check_seed
from .arrays import MAX_COUNT, MAX_CUT, MIN_COUNT, MIN_CUT, PLUS, RuleBlock, World
from .draws import Draws
from .gaps import leave_out
from .streams import Ints, Stream, keyed_integers
from .vocabulary import denied_pairs, load_vocabulary


def build_world(
    seed: int,
    sizes: WorldSizes,
    subset: dict[str, int] | None = None,
    *,
    heldout: bool = False,
    dials: Dials = PAPER_POINT,
) -> World:
    """Draw the world of a seed.

    ``subset`` draws a random part as well, with so many rules per open type (see `World.restrict`); ``heldout`` draws
    the held-out world of the seed instead: the same terms, and no rule in common with the first world of these sizes.
    ``sizes`` and ``subset`` are those that the dials make of a scale's (`Scale.turned`).
    """
    check_seed(seed)
    drawing = _Drawing(seed, sizes, subset or {}, heldout, dials)
    return leave_out(drawing.world(), drawing._key()) if dials.unknown else drawing.world()


class _Drawing(Draws):
    def world(self) -> World:
        sizes = self.sizes
        terms = self._terms()
        environment_of, env_state, action_state = self._routes(terms)
        order = self._stream("responses").permutation(sizes.attributes)
        owners, order = np.split(order, [sizes.threshold_attributes])
        levels = np.array_split(order, sizes.levels)
        colours = np.array_split(levels[0], sizes.colours)
        effects = np.concatenate(colours[:2])
        action, role = np.divmod(np.arange(2 * sizes.actions), 2)
        changed = effects[self._stream("action attribute").integers(len(effects), 2 * sizes.actions)]
        # C5: what an action changes itself, the states that it leads to must leave alone. Only targets enter places.
        actor, target = slice(0, None, 2), slice(1, None, 2)
        reached = np.concatenate([env_state[environment_of], action_state[target], action_state[actor]])
        barred = np.concatenate([changed[target], changed[target], changed[actor]])
        # The states of thresholds, two of each attribute: what a high count and what a low one leads to.
        free = np.setdiff1d(np.arange(sizes.states), reached)
        threshold_states = free[self._stream("threshold states").permutation(len(free))[: sizes.count2state]]
        allowed = self._allowed((env_state, action_state), threshold_states, colours)
        allowed[reached, barred] = False
        fixed = np.concatenate([reached if sizes.crowd else reached[:0], threshold_states])
        excepted = given = kinds = owners[:0]
        if sizes.exceptions:
            colour = 2 + (sizes.place_state2attr > 0)
            drivers, start = colours[colour], sum(map(len, colours[:colour]))
            guards, slots = self._guards(drivers), np.zeros((len(env_state), sizes.attributes), dtype=bool)
            slots[:, drivers] = True  # of `state2attr`, that may have exceptions: as many of each state
            excepted = self._pick("excepted", env_state, slots)
            trees = [level[start : start + len(drivers)] for level in levels]
            given = np.concatenate([np.repeat(level, 2 * sizes.guards) for level in trees])
            kinds = np.concatenate([guards[: len(level)].ravel() for level in trees])
        columns = {
            "entity2attr": self._entity2attr(owners, kinds, given),
            "attrchange2attr": self._changes(levels),
            "action2env": {"action": np.arange(sizes.actions), "environment": environment_of},
            "action2attr": {
                "action": action,
                "role": role,
                "attribute": changed,
                **self._effect("action2attr", action, role),
            },
            "action2state": {"action": action, "role": role, "state": action_state},
            "env2state": {"environment": np.arange(sizes.environments), "state": env_state},
            "state2attr": self._state2attr(allowed, fixed, excepted),
        }
        if sizes.place_state2attr:
            place_of = (environment_of, action_state[target])
            columns["place_state2attr"] = self._place_state2attr(*place_of, colours[2])
        if len(owners):
            columns["count2state"] = self._count2state(owners, threshold_states)
        if sizes.exceptions:
            columns["exception"] = self._exceptions(excepted, env_state, drivers, guards)
        blocks, first = {}, 0
        for rule_type, typed in columns.items():
            part = {name: np.asarray(values).astype(np.int16) for name, values in typed.items()}
            count = len(next(iter(part.values())))
            blocks[rule_type] = RuleBlock(rule_type, np.arange(first, first + count, dtype=np.int32), part)
            first += count
        words = f"words{self.dials.words:g}" if self.dials.words else ""
        parts = (f"rw-{self.seed}", self.dials.tag, words, "heldout" if self.heldout else "")
        world_id = "-".join(part for part in parts if part)
        threshold_driven = _below(colours[-1] if len(owners) else owners, levels)
        return World(
            world_id,
            self.seed,
            terms,
            blocks,
            self.subset_rows,
            dials=self.dials,
            threshold_driven=threshold_driven,
        )

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
        action_env = denied_pairs("action_env")[np.ix_(terms["action"], terms["environment"])]
        env_state = denied_pairs("env_state")[np.ix_(terms["environment"], terms["state"])]
        action_state = denied_pairs("action_state")[np.ix_(terms["action"], terms["state"])]
        state = np.concatenate([env_state, np.repeat(action_state, 2, axis=0)])
        if self.heldout:  # the first world's routes are taken; they do not depend on its other rules
            first = _Drawing(self.seed, sizes, {}, False, self.dials)._routes(terms)
            action_env[np.arange(sizes.actions), first[0]] = True
            taken = np.concatenate(first[1:])
            state[np.arange(len(taken)), taken] = True
        environments = _assign(self._stream("environments"), action_env)
        states = _assign(self._stream("states"), state)
        return environments, states[: sizes.environments], states[sizes.environments :]

    def _allowed(
        self, led_to: tuple[Ints, Ints], threshold_states: Ints, colours: list[Ints]
    ) -> NDArray[np.bool_]:
        """Return which attributes each state may change (shape states x attributes).

        States of places and of actions have a colour each, and so has every threshold attribute's pair of states
        within the last one; any other state may change what either of the first two do.
        """
        allowed = np.zeros((self.sizes.states, self.sizes.attributes), dtype=bool)
        allowed[:, np.concatenate(colours[:2])] = True
        pairs = threshold_states.reshape(-1, 2)
        kinds = list(zip(led_to, colours[:2], strict=True))
        kinds += zip(pairs, np.array_split(colours[-1], max(1, len(pairs))), strict=False)
        for states, drivers in kinds:
            allowed[states] = False
            allowed[np.ix_(states, drivers)] = True
        return allowed

    def _entity2attr(self, owners: Ints, kinds: Ints, given: Ints) -> dict[str, Ints]:
        """Choose which attributes each kind has: some at random, every one that has a threshold, and those given."""
        sizes = self.sizes
        open_ = np.ones((sizes.entities, sizes.attributes), dtype=bool)
        open_[:, owners] = open_[kinds, given] = False
        fixed = np.flatnonzero(~open_.ravel())
        slots = self._choose("entity2attr", np.flatnonzero(open_.ravel()), sizes.entity2attr, fixed)
        entity, attribute = np.divmod(slots, sizes.attributes)
        amount = MIN_COUNT + self._value("count", MAX_COUNT - MIN_COUNT + 1, slots)
        return {"entity": entity, "attribute": attribute, "amount": amount}

    def _changes(self, levels: list[Ints]) -> dict[str, Ints]:
        """Choose what changes of an attribute do to the one below it."""
        triggers = np.concatenate([above[: len(below)] for above, below in pairwise(levels)])
        responses, first = np.concatenate(levels[1:]), len(levels[1])
        slots = self._choose("attrchange2attr", np.arange(2 * len(triggers)), self.sizes.attrchange2attr)
        position, operator = np.divmod(slots, 2)
        key = np.argsort(triggers[position] * 2 + operator, kind="stable")
        if "attrchange2attr" in self.subset_rows:  # rows were positions in slot order
            chosen = np.isin(key, self.subset_rows["attrchange2attr"])
            self.subset_rows["attrchange2attr"] = np.flatnonzero(chosen)
        position, operator = position[key], operator[key]
        trigger = triggers[position]
        effect = self._effect("attrchange2attr", trigger, operator)
        if len(levels) > 2:
            # C6: below the first response amounts are 1, so that no chain multiplies further. The held-out world has
            # the opposite sign, since amounts no longer tell its rules from the first world's.
            sign = self._value("change sign", 2, trigger, operator)
            verb = self._verb("attrchange2attr", sign, trigger, operator)
            effect = {
                "operator": sign,
                "amount": np.where(position < first, effect["amount"], 1),
                "verb": verb,
            }
        return {
            "trigger_attribute": trigger,
            "trigger_operator": operator,
            "trigger_verb": self._verb("attrchange2attr trigger", operator, trigger),
            "attribute": responses[position],
            **effect,
        }

    def _state2attr(self, allowed: NDArray[np.bool_], fixed: Ints, excepted: Ints) -> dict[str, Ints]:
        """Choose what each state changes, of what it may, besides the slots of rules that have exceptions.

        ``fixed`` states have a fixed number of other rules.
        """
        slots = np.concatenate([self._pick("state2attr", fixed, allowed[fixed]), excepted])
        allowed[fixed] = False
        open_ = np.flatnonzero(allowed.ravel())
        slots = self._choose("state2attr", open_, self.sizes.state2attr, np.sort(slots))
        state, attribute = np.divmod(slots, self.sizes.attributes)
        return {"state": state, "attribute": attribute, **self._effect("state2attr", state, attribute)}

    def _place_state2attr(self, environment_of: Ints, state_of: Ints, colour: Ints) -> dict[str, Ints]:
        """Choose conjunctive rules: as many that an action makes fire as decoys that mix the atoms of two actions.

        A decoy takes one atom of a rule that can fire, and its attribute.
        """
        actions = np.arange(self.sizes.actions)
        allowed = np.zeros((len(actions), self.sizes.attributes), dtype=bool)
        allowed[:, colour] = True
        action, attribute = np.divmod(self._pick("place_state2attr", actions, allowed), self.sizes.attributes)
        circle = self._stream("decoys").permutation(len(actions))
        other = np.empty_like(actions)
        other[circle] = np.roll(circle, -1)
        swap = keyed_integers(self._key("decoy"), 2, action, attribute)
        place = environment_of[np.concatenate([action, np.where(swap, other[action], action)])]
        state = state_of[np.concatenate([action, np.where(swap, action, other[action])])]
        attribute = np.tile(attribute, 2)
        order = np.lexsort((attribute, state, place))
        place, state, attribute = place[order], state[order], attribute[order]
        return {
            "environment": place,
            "state": state,
            "attribute": attribute,
            **self._effect("place_state2attr", place, state, attribute),
        }

    def _count2state(self, owners: Ints, states: Ints) -> dict[str, Ints]:
        """Choose where the count of each owner is cut; the two states of one lie side by side."""
        owner, plus = np.divmod(np.arange(len(states)), 2)
        cut = MIN_CUT + self._value("threshold", MAX_CUT - MIN_CUT + 1, owners[owner])
        order = np.lexsort((plus, owners[owner]))
        columns = {
            "trigger_attribute": owners[owner],
            "trigger_operator": plus,
            "threshold": np.where(plus == PLUS, cut, cut + 1),
            "state": states,
        }
        return {name: values[order] for name, values in columns.items()}


def _below(drivers: Ints, levels: list[Ints]) -> Ints:
    """Return some drivers and all attributes below them."""
    place = np.flatnonzero(np.isin(levels[0], drivers))
    return np.sort(np.concatenate([level[place[place < len(level)]] for level in levels]))


def _assign(stream: Stream, denied: NDArray[np.bool_]) -> Ints:
    """Give every row a column of its own, at random, avoiding denied pairs.

    A ValueError if none is found: the world is too small for what it must avoid.
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
