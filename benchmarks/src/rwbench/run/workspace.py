"""What runs of a process share: questions, rules and pools of one source, loaded once."""

from __future__ import annotations

from functools import cache

from ..spec import RunSpec, canonical_json
from .data import DataSource, RuleTable
from .pools import Pool, build_pools


class Workspace:
    """Questions and rules of one source, loaded once and shared by all runs of a process."""

    def __init__(self, source: DataSource) -> None:
        self.source = source
        self.questions = cache(source.questions)
        self._rules = cache(source.rules)
        self._pools: dict[str, list[Pool]] = {}

    def rules(self, split: str) -> RuleTable:
        """Return the rules of the world that the split asks about."""
        return self._rules("heldout" if split == "heldout" else "train")

    def pools(self, spec: RunSpec) -> list[Pool]:
        """Return the pools of a run, which methods that are compared share.

        Raises
        ------
        ValueError
            If the spec belongs to other data.
        """
        design = canonical_json({**spec.to_dict(), "method": None})
        if design not in self._pools:
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
