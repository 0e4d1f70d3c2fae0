"""The reward certificate: what an environment's reward is worth, measured on its own instances.

Every golden answer scores the maximum and is derived again by clingo from the pool alone; policies that skip the way
stay at their floor.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..questions import boxed
from ..show import table_text
from ..spec import UNKNOWN
from ..verify import parse_rule_table
from ..verify.asp import AspSolver
from ..verify.leaks import SHORTCUT_BAR
from ..world.arrays import MAX_EFFECT
from .config import EnvConfig, RewardWeights
from .instances import SCHEMA, Instance, instance
from .policies import View, count_and_change, frequent_answers
from .reward import score
from .worlds import place_of

__all__ = ["Certificate", "certify"]

CHANGES = 2 * MAX_EFFECT
"""What a rule may change something by: one to `MAX_EFFECT`, more or fewer, drawn alike."""
CHOICE = 16
"""Rules about what is asked for that a pool has to hold at least, in effect, for its chains not to be given away."""


@dataclass(frozen=True)
class Certificate:
    """A certificate: the configuration, its checks, and what each policy earns.

    Attributes
    ----------
    config : dict
    instances : int
    floor : float
        The reward of a wrong answer in the form that is asked for.
    checks : dict
        Name -> ``checked`` and ``failed`` counts, and an example of what failed.
    policies : list of dict
        Best first: ``name``, ``kind`` (lucky guess, or answer by some of the rules), ``tried`` instances, ``mean`` and
        ``most`` of the rewards, the mean's standard ``error``, and ``allowed``: it passes while its mean is not more
        than two standard errors above.
    """

    config: dict[str, Any]
    instances: int
    floor: float
    checks: dict[str, dict[str, Any]]
    policies: list[dict[str, Any]]

    @property
    def failed(self) -> list[str]:
        """What does not pass: names of checks and policies."""
        failed = [name for name, check in self.checks.items() if check["failed"]]
        return failed + [f"policy {policy['name']!r}" for policy in self.policies if not policy["passes"]]

    @property
    def passes(self) -> bool:
        """Whether every check and every policy does."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it."""
        return {"schema": SCHEMA, "passes": self.passes, **vars(self)}

    def to_text(self) -> str:
        """Return tables of the checks and of the policies."""
        checks = [[name, check["checked"], check["failed"]] for name, check in self.checks.items()]
        numbers = ("mean", "error", "allowed")
        policies = [
            [one["name"], one["kind"], one["tried"], *(f"{one[name]:.3f}" for name in numbers)]
            for one in self.policies
        ]
        parts = [
            table_text(["check", "of", "failed"], checks),
            f"floor {self.floor:.3f}",
            table_text(["policy", "may have", "instances", "mean reward", "error", "allowed"], policies),
            f"FAILED: {', '.join(self.failed)}" if self.failed else "All pass.",
        ]
        return "\n\n".join(parts)


def certify(
    config: EnvConfig, count: int = 300, notify: Callable[[str], None] = lambda _: None
) -> Certificate:
    """Certify a configuration on its first instances.

    Parameters
    ----------
    config : EnvConfig
    count : int
        Instances; a guess's mean reward is known to about ``0.3 / sqrt(count)``.
    notify : callable
        Called with what is done next.

    Raises
    ------
    ImportError
        If clingo is not installed.
    ValueError
        If ``count`` is below 2.
    """
    if count < 2:
        raise ValueError(f"a certificate needs at least 2 instances, got {count}")
    instances = [instance(config, i) for i in range(count)]
    checks = {}
    for name, check in _CHECKS.items():
        notify(name)
        failures = [*check(config, instances)]
        checks[name] = {"checked": count, "failed": len(failures), "example": next(iter(failures), None)}
    notify("policies that skip the way")
    floor, views = config.reward.floor, _views(config, instances)
    pairs = [*zip(views, instances, strict=True)]
    # Of a single rule some of the rules are the proof.
    chains = [(view, one) for view, one in pairs if len(one.metadata["conclusions"]) > len(view.types)]
    policies = []
    for name, kind, policy, tried, bar in (
        ("most frequent answer", "luck", frequent_answers, pairs, SHORTCUT_BAR),
        ("count and a change, no chain", "rules", count_and_change, chains, chain_bar(config.reward)),
    ):
        rewards = [score(boxed(policy(view)), one.metadata).reward for view, one in tried]
        if rewards:
            policies.append({"name": name, "kind": kind, **_summary(rewards, floor + bar)})
    policies.sort(key=lambda policy: -policy["mean"])
    return Certificate(config.to_dict(), count, floor, checks, policies)


def chain_bar(weights: RewardWeights) -> float:
    """Return the mean reward, beyond the floor, that skipping the way may bring to who knows all but the last change.

    Such a policy takes one of the rules that change what is asked for. `CHOICE` of them at least have to be in its
    way; if it took another than the right one, one of `CHANGES` is right all the same, each as likely as another, as
    worlds are drawn. A right answer without the steps has what ``exact`` and ``strict`` weigh. Who earns more has
    found the last rule without the way to it: the pool gives it away.
    """
    lucky = 1 / CHOICE + (1 - 1 / CHOICE) / CHANGES
    return (weights.exact + weights.strict) / weights.total * lucky


def _summary(rewards: Sequence[float], allowed: float) -> dict[str, Any]:
    mean, error = math.fsum(rewards) / len(rewards), float(np.std(rewards)) / math.sqrt(len(rewards))
    passes = mean - 2 * error <= allowed + 1e-9
    numbers = {"mean": mean, "most": max(rewards), "error": error, "allowed": allowed}
    return {"tried": len(rewards), **numbers, "passes": passes}


def _views(config: EnvConfig, instances: Sequence[Instance]) -> list[View]:
    """Show each instance as a policy sees it; frequencies are of the other seed's instances, as many."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    changes: Counter[int] = Counter()
    other = replace(config, seed=(config.seed + 1) % 2**63, access="tool")
    for i in range(max(len(instances), 500)):
        record = instance(other, i).metadata
        for answer, kind, facts in zip(record["answers"], _types(record), record["facts"], strict=True):
            answers[kind][answer] += 1
            if kind == "count" and "Has(" in facts:
                stated = int(facts.partition("Has(")[2].partition(")")[0].rpartition(" ")[2])
                changes[int(answer) - stated] += 1
    frequent = {kind: seen.most_common(1)[0][0] for kind, seen in answers.items()}
    change = changes.most_common(1)[0][0] if changes else 1
    views = []
    for i, one in enumerate(instances):
        world, _, row = place_of(config, i)
        rules = world.texts("nl")[world.pool(row, config)].tolist()
        views.append(View(row["question"], rules, _types(one.metadata), frequent, change))
    return views


def _types(record: dict[str, Any]) -> list[str]:
    names = {"In": "environment", "Most": "creature"}
    names |= dict.fromkeys(("Has", "Sum", "Difference", "Highest"), "count")
    return [names.get(query.partition("(")[0], "state") for query in record["queries"]]


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
