"""The certificate of an environment: golden answers score the maximum, and clingo derives them from the pool alone."""

from typing import Any

import numpy as np

from ..show import table_text
from ..spec import UNKNOWN, check_count
from ..verify import parse_rule_table
from ..verify.asp import AspSolver
from .config import EnvConfig
from .instances import SCHEMA, instance
from .reward import score
from .worlds import place_of

GOLDEN, DERIVED = "the golden answer scores 1", "clingo derives the answer from the pool"


def certify(config: EnvConfig, count: int = 300) -> dict[str, Any]:
    """Certify a configuration on its first ``count`` instances.

    Returns
    -------
    dict
        Ready for JSON: ``schema``, ``passes``, ``config``, ``instances``, and under ``checks`` by name the counts
        ``checked`` and ``failed``, and an ``example`` of what failed.

    Raises
    ------
    ImportError
        If clingo is not installed.
    ValueError
        If ``count`` is 0: nothing would be certified.
    """
    check_count("count", count, least=1)
    failures: dict[str, list[str]] = {GOLDEN: [], DERIVED: []}
    for index in range(count):
        one = instance(config, index)
        name, answers = one.metadata["id"], one.metadata["answers"]
        reward = score(one.answer, one.metadata, len(one.metadata["gold_rule_ids"]))
        if reward.reward != 1.0:
            failures[GOLDEN].append(f"{name}: the golden answer has {reward}")
        if (derived := _derived(config, one.metadata)) != [[answer] for answer in answers]:
            failures[DERIVED].append(f"{name}: clingo says {derived}, the answers are {answers}")
    checks = {
        check: {"checked": count, "failed": len(found), "example": next(iter(found), None)}
        for check, found in failures.items()
    }
    passes = not any(failures.values())
    made = {"schema": SCHEMA, "passes": passes, "config": config.to_dict(), "instances": count}
    return made | {"checks": checks}


def certificate_text(made: dict[str, Any]) -> str:
    """Return a certificate as a table of its checks."""
    rows = [[name, check["checked"], check["failed"]] for name, check in made["checks"].items()]
    verdict = "All pass." if made["passes"] else "FAILED"
    return f"{table_text(['check', 'of', 'failed'], rows)}\n\n{verdict}"


def _derived(config: EnvConfig, metadata: dict[str, Any]) -> list[list[str]]:
    """Parse the texts of an instance's pool back and ask clingo."""
    world, _, row = place_of(config, metadata["index"])
    solver = AspSolver(parse_rule_table(world.rules.take(np.sort(world.pool(row, config)))))
    scopes = list(zip(metadata["facts"], metadata["queries"], strict=True))
    return [
        [name.lower().replace("_", " ") for name in names] or [UNKNOWN] for names in solver.answers(scopes)
    ]
