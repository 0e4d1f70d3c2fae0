"""What runs of a process share: questions, rules and pools of one source, loaded once."""

from __future__ import annotations

from ..spec import RunSpec, canonical_json
from .data import DataSource, Question, RuleTable
from .pools import Pool, build_pools

KEPT_DESIGNS = 8


class Workspace:
    """Questions and rules of one source, loaded once and shared by all runs of a process."""

    def __init__(self, source: DataSource) -> None:
        self.source = source
        self._questions: dict[tuple[str, str], list[Question]] = {}
        self._rules: dict[bool, RuleTable] = {}
        self._pools: dict[str, list[Pool]] = {}

    def questions(self, subtask: str, split: str) -> list[Question]:
        """Return all questions of one sub-task and split."""
        if (subtask, split) not in self._questions:
            self._questions[subtask, split] = self.source.questions(subtask, split)
        return self._questions[subtask, split]

    def rules(self, split: str) -> RuleTable:
        """Return the rules of the world that the split asks about."""
        heldout = split == "heldout"
        if heldout not in self._rules:
            self._rules[heldout] = self.source.rules(split)
        return self._rules[heldout]

    def pools(self, spec: RunSpec) -> list[Pool]:
        """Return the pools of a run; a ValueError if the spec belongs to other data.

        Methods that are compared share their pools, so the last few designs are kept.
        """
        design = canonical_json({**spec.to_dict(), "method": None})
        if design not in self._pools:
            while len(self._pools) >= KEPT_DESIGNS:
                self._pools.pop(next(iter(self._pools)))
            self._pools[design] = self._build_pools(spec)
        return self._pools[design]

    def _build_pools(self, spec: RunSpec) -> list[Pool]:
        source = self.source
        world = {"scale": source.scale, "world_seed": source.seed, "data": source.data}
        for name, ours in (world | {"dials": str(source.dials) or None}).items():
            if getattr(spec, name) != ours:
                raise ValueError(
                    f"run {spec.run_id} asks for {name}={getattr(spec, name)!r}, this source has {ours!r}; "
                    "point --data at the right build, or make the spec anew"
                )
        # A pool of one question needs only the sub-tasks asked; a shared pool holds the gold rules of all.
        alone = spec.pool_scope in ("question", "world") and spec.pool_within is None
        names = spec.subtasks if alone else source.subtasks
        split = {name: self.questions(name, spec.split) for name in names}
        return list(build_pools(spec, split, self.rules(spec.split)))
