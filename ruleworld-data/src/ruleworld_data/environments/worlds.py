"""The worlds behind an environment: drawn once, kept by a cache, shared by all instances and threads.

A world serves many instances, so that one costs less than a millisecond; pools are drawn when they are asked for.
"""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fresh import fresh_world
from ..pools import shared_pool
from ..spec import WorldSpec
from ..world import Ints, Stream
from .config import EnvConfig, world_questions, world_sizes

WORLDS_KEPT = 16
"""Worlds in memory: about 5 MB each at scale ``tiny``, 100 MB at ``paper``."""


class EnvWorld:
    """One world, of a ``number`` in its sequence: ``rules`` by id, which is a row number, and ``rows`` by sub-task."""

    def __init__(self, spec: WorldSpec, subtasks: tuple[str, ...], number: int) -> None:
        rows, made = dict.fromkeys(subtasks, world_questions(spec, subtasks)), world_sizes(spec.scale)
        self.world_id, self.rules, questions = fresh_world(
            spec.seed, number, rows, made, version=spec.version, dials=spec.dials
        )
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: table.drop_columns(["world_id", "subtask", "fold"]).to_pylist()
            for name, table in questions.items()
        }
        self._ids = self.rules.column("id").to_numpy()
        self._texts: dict[str, NDArray[np.object_]] = {}

    def texts(self, form: str) -> NDArray[np.object_]:
        """Return the rules in one form, by id."""
        if form not in self._texts:
            self._texts[form] = self.rules.column(form).combine_chunks().to_numpy(zero_copy_only=False)
        return self._texts[form]

    def pool(self, row: dict[str, Any], config: EnvConfig) -> Ints:
        """Return the ids of the rules that a question is asked against: gold rules, rivals and others, shuffled.

        Rivals of what the question asks about come first, then those of the steps on the way.
        """
        gold = np.unique(row["gold_rule_ids"])
        wanted, count = gold, int(config.rivals * (config.pool_size - len(gold)))
        if count:
            group, members = self._rivals
            last = row["steps"][-1:] if row["n_hops"] > 1 else row["steps"]
            target = dict.fromkeys(group[[step["rule_ids"][0] for step in last]].tolist())
            stream = Stream("rivals", self.world_id, row["id"], config.pool_size)
            for groups in (target, {*group[gold].tolist()} - {*target}):
                rivals = np.setdiff1d(np.concatenate([gold[:0], *(members[i] for i in groups)]), gold)
                wanted = np.concatenate([wanted, rivals[stream.permutation(len(rivals))]])
            wanted = wanted[: len(gold) + count]
        return shared_pool(self._ids, wanted.tolist(), config.pool_size, "env", self.world_id, row["id"])

    @cached_property
    def _rivals(self) -> tuple[Ints, list[Ints]]:
        """Groups of rules that conclude about the same: a change of one attribute, a count of it, a state, a place."""
        table = self.rules
        changes = table.column("operator").is_valid().to_numpy()
        kind = np.where(changes, "change", table.column("type").to_numpy(zero_copy_only=False).astype(str))
        attribute = table.column("attribute").fill_null("").to_numpy(zero_copy_only=False).astype(str)
        _, group = np.unique(np.char.add(np.char.add(kind, " "), attribute), return_inverse=True)
        order = np.argsort(group, kind="stable")
        return group, np.split(order, np.cumsum(np.bincount(group))[:-1])


world_of = lru_cache(maxsize=WORLDS_KEPT)(EnvWorld)
"""Return a world of a sequence, drawn at most once while it is kept."""


def place_of(config: EnvConfig, index: int) -> tuple[EnvWorld, str, dict[str, Any]]:
    """Return the world, the sub-task and the question of an instance."""
    spec, subtasks = config.spec, config.subtasks
    number, place = divmod(index, world_questions(spec, subtasks) * len(subtasks))
    row, turn = divmod(place, len(subtasks))
    world = world_of(spec, subtasks, number)
    return world, subtasks[turn], world.rows[subtasks[turn]][row]
