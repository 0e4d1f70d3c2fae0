"""The certificate of an environment: golden answers score the maximum, and clingo derives them from the pool alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..show import table_text
from ..spec import UNKNOWN, check_count
from ..verify import parse_rule_table
from ..verify.asp import AspSolver
from .config import EnvConfig
from .instances import SCHEMA, Instance, instance
from .reward import score
from .worlds import place_of

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Certificate:
    """A certificate.

    Attributes
    ----------
    config : dict
        The configuration.
    instances : int
    checks : dict
        Name -> ``checked`` and ``failed`` counts, and an example of what failed.
    """

    config: dict[str, Any]
    instances: int
    checks: dict[str, dict[str, Any]]

    @property
    def failed(self) -> list[str]:
        """Names of the checks that do not pass."""
        return [name for name, check in self.checks.items() if check["failed"]]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it."""
        return {"schema": SCHEMA, "passes": not self.failed, **vars(self)}

    def to_text(self) -> str:
        """Return a table of the checks."""
        rows = [[name, check["checked"], check["failed"]] for name, check in self.checks.items()]
        verdict = f"FAILED: {', '.join(self.failed)}" if self.failed else "All pass."
        return f"{table_text(['check', 'of', 'failed'], rows)}\n\n{verdict}"


def certify(
    config: EnvConfig, count: int = 300, notify: Callable[[str], None] = lambda _: None
) -> Certificate:
    """Certify a configuration on its first instances.

    Parameters
    ----------
    config : EnvConfig
    count : int
        Instances.
    notify : callable
        Called with what is done next.

    Raises
    ------
    ImportError
        If clingo is not installed.
    ValueError
        If ``count`` is 0: nothing would be certified.
    """
    check_count("count", count, least=1)
    instances = [instance(config, i) for i in range(count)]
    checks = {}
    for name, check in _CHECKS.items():
        notify(name)
        failures = [*check(config, instances)]
        checks[name] = {"checked": count, "failed": len(failures), "example": next(iter(failures), None)}
    return Certificate(config.to_dict(), count, checks)


def _golden(config: EnvConfig, instances: Sequence[Instance]) -> Iterator[str]:
    for one in instances:
        reward = score(one.answer, one.metadata, len(one.metadata["gold_rule_ids"]))
        if reward.reward != 1.0:
            yield f"{one.metadata['id']}: the golden answer has {reward}"


def _derived(config: EnvConfig, instances: Sequence[Instance]) -> Iterator[str]:
    """Parse the pool's texts back and ask clingo, instance by instance."""
    for i, one in enumerate(instances):
        world, _, row = place_of(config, i)
        pool = np.sort(world.pool(row, config))
        solver = AspSolver(parse_rule_table(world.rules.take(pool)))
        scopes = list(zip(one.metadata["facts"], one.metadata["queries"], strict=True))
        values = [
            [name.lower().replace("_", " ") for name in names] or [UNKNOWN]
            for names in solver.answers(scopes)
        ]
        if values != [[answer] for answer in one.metadata["answers"]]:
            yield f"{one.metadata['id']}: clingo says {values}, the answers are {one.metadata['answers']}"


_CHECKS: dict[str, Callable[[EnvConfig, Sequence[Instance]], Iterator[str]]] = {
    "the golden answer scores 1": _golden,
    "clingo derives the answer from the pool": _derived,
}
