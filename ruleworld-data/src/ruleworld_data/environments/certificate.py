"""The reward certificate: what an environment's reward is worth, measured on its own instances.

Every golden answer scores the maximum and is derived again by clingo from the pool alone; gaming policies stay at the
floor; changes that keep the meaning keep the score; instances share nothing that would give one another away.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..questions import boxed
from ..scoring import SHORTCUT_BAR
from ..verify import parse_rule_table
from ..verify.asp import AspSolver
from ..world.arrays import MAX_EFFECT
from .config import EnvConfig, RewardWeights
from .instances import SCHEMA, Instance, instance
from .policies import POLICIES, QUERIES, Kind, Policy, View
from .reward import score
from .search import Episode
from .worlds import place_of, world_of

__all__ = ["Certificate", "PolicyResult", "certify"]

HUGE_ON = 3
"""Instances that huge policies are tried on."""
CHANGES = 2 * MAX_EFFECT
"""What a rule may change something by: one to `MAX_EFFECT`, more or fewer, drawn alike."""
CHOICE = 16
"""Rules about what is asked for that a pool has to hold at least, in effect, for its chains not to be given away."""
Notify = Callable[[str], None]


class PolicyResult(NamedTuple):
    """What a gaming policy earns.

    Attributes
    ----------
    name : str
    kind : str
        What it may earn beyond the floor: ``nothing``; by ``luck`` a mean of `SHORTCUT_BAR`; by some of the ``rules``,
        on chains of rules only, since elsewhere one rule is the proof, what `chain_bar` says.
    tried : int
        Instances.
    mean, most : float
        Of the rewards.
    error : float
        Standard error of the mean.
    allowed : float
        What passes: a mean that is not more than two standard errors above.
    """

    name: str
    kind: str
    tried: int
    mean: float
    most: float
    error: float
    allowed: float

    @property
    def passes(self) -> bool:
        """Whether the mean is allowed; where nothing may be earned, every single reward."""
        reached = self.most if self.kind == Kind.NOTHING else self.mean - 2 * self.error
        return reached <= self.allowed + 1e-9


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
    policies : list of PolicyResult
        Best first.
    """

    config: dict[str, Any]
    instances: int
    floor: float
    checks: dict[str, dict[str, Any]]
    policies: list[PolicyResult] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        """Whether every check and every policy does."""
        failed = sum(check["failed"] for check in self.checks.values())
        return not failed and all(policy.passes for policy in self.policies)

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it."""
        policies = [policy._asdict() | {"passes": policy.passes} for policy in self.policies]
        return {"schema": SCHEMA, "passes": self.passes, **vars(self), "policies": policies}

    def to_text(self, most: int = 12) -> str:
        """Return tables of the checks and of the policies that earn most."""
        lines = ["| check | of | failed |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {each['checked']} | {each['failed']} |" for name, each in self.checks.items()]
        lines += [
            "",
            f"{len(self.policies)} gaming policies; floor {self.floor:.3f}. Those that earn most:",
            "",
        ]
        lines += [
            "| policy | may have | instances | mean reward | error | allowed |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]
        lines += [
            f"| {each.name} | {each.kind} | {each.tried} | {each.mean:.3f} | {each.error:.3f} | {each.allowed:.3f} |"
            for each in self.policies[:most]
        ]
        failed = [name for name, each in self.checks.items() if each["failed"]]
        failed += [f"policy {each.name!r}" for each in self.policies if not each.passes]
        lines += ["", f"FAILED: {', '.join(failed)}" if failed else "All pass."]
        return "\n".join(lines)


def certify(config: EnvConfig, count: int = 300, notify: Notify = lambda _: None) -> Certificate:
    """Certify a configuration on its first instances.

    Parameters
    ----------
    config : EnvConfig
    count : int
        Instances; a guess's mean reward is known to about ``0.3 / sqrt(count)``.
    notify : callable
        Is told what is done next.

    Raises
    ------
    ImportError
        If clingo or the search tool is not installed.
    ValueError
        If ``count`` is below 2.
    """
    if count < 2:
        raise ValueError(f"a certificate needs at least 2 instances, got {count}")
    made = [instance(config, i) for i in range(count)]
    checks = {}
    for name, check in _CHECKS.items():
        notify(name)
        failures = [*check(config, made)]
        checks[name] = {"checked": count, "failed": len(failures), "example": next(iter(failures), None)}
    views = _views(config, made)
    notify(f"{len(POLICIES) + len(QUERIES)} policies")
    earned = {(policy.name, policy.kind): _written(policy, views, made) for policy in POLICIES}
    if config.access != "prompt":
        for name, queries in QUERIES.items():
            earned[f"queries: {name}", Kind.LUCK] = _searched(queries, views, made)
    policies = [_result(config, *which, rewards) for which, rewards in earned.items() if rewards]
    policies.sort(key=lambda policy: -policy.mean)
    return Certificate(config.to_dict(), count, config.reward.floor, checks, policies)


def chain_bar(weights: RewardWeights) -> float:
    """Return the mean reward, beyond the floor, that skipping the way may bring to who knows all but the last change.

    Such a policy takes one of the rules that change what is asked for. `CHOICE` of them at least have to be in its
    way; if it took another than the right one, one of `CHANGES` is right all the same, each as likely as another, as
    worlds are drawn. A right answer without the steps has what ``exact`` and ``strict`` weigh. Who earns more has
    found the last rule without the way to it: the pool gives it away.
    """
    lucky = 1 / CHOICE + (1 - 1 / CHOICE) / CHANGES
    return (weights.exact + weights.strict) / weights.total * lucky


def _result(config: EnvConfig, name: str, kind: Kind, rewards: Sequence[float]) -> PolicyResult:
    bars = {Kind.NOTHING: 0.0, Kind.LUCK: SHORTCUT_BAR, Kind.RULES: chain_bar(config.reward)}
    mean, allowed = math.fsum(rewards) / len(rewards), config.reward.floor + bars[kind]
    error = float(np.std(rewards)) / math.sqrt(len(rewards))
    return PolicyResult(name, kind.value, len(rewards), mean, max(rewards), error, allowed)


def _written(policy: Policy, views: Sequence[View], made: Sequence[Instance]) -> list[float]:
    tried = list(zip(views, made, strict=True))
    if policy.kind is Kind.RULES:
        tried = [(v, one) for v, one in tried if len(one.metadata["conclusions"]) > len(v.types)]
    if policy.name.startswith("huge"):
        tried = tried[:HUGE_ON]
    return [score(policy.write(view), one.metadata).reward for view, one in tried]


def _searched(
    queries: Callable[[View], list[object]], views: Sequence[View], made: Sequence[Instance]
) -> list[float]:
    rewards = []
    for view, one in zip(views[: 16 * HUGE_ON], made, strict=False):
        episode = Episode(one.metadata)
        said = [episode.search(query) for query in queries(view)]
        rewards.append(episode.score("\n".join(said) + boxed(view.each())).reward)
    return rewards


def _views(config: EnvConfig, made: Sequence[Instance]) -> list[View]:
    """Show each instance as a policy sees it; frequencies are of the other seed's instances, as many."""
    learnt: dict[str, Counter[str]] = defaultdict(Counter)
    changes: Counter[int] = Counter()
    other = replace(config, seed=(config.seed + 1) % 2**63, access="tool")
    for i in range(max(len(made), 500)):
        record = instance(other, i).metadata
        for answer, kind, facts in zip(record["answers"], _types(record), record["facts"], strict=True):
            learnt[kind][answer] += 1
            if kind == "count" and "Has(" in facts:
                stated = int(facts.partition("Has(")[2].partition(")")[0].rpartition(" ")[2])
                changes[int(answer) - stated] += 1
    frequent = {kind: [answer for answer, _ in seen.most_common(40)] for kind, seen in learnt.items()}
    change = changes.most_common(1)[0][0] if changes else 1
    views = []
    for i, one in enumerate(made):
        world, _, row = place_of(config, i)
        rules = world.texts("nl")[world.pool(row, config)].tolist()
        views.append(View(one.prompt, row["question"], rules, _types(one.metadata), frequent, change))
    return views


def _types(record: dict[str, Any]) -> list[str]:
    names = {"Has": "count", "In": "environment"}
    return [names.get(query.partition("(")[0], "state") for query in record["queries"]]


def _golden(config: EnvConfig, made: Sequence[Instance]) -> Iterator[str]:
    for one in made:
        found = score(one.answer, one.metadata, len(one.metadata["gold_rule_ids"]))
        if found.reward != 1.0:
            yield f"{one.metadata['id']}: the golden answer has {found}"


def _derived(config: EnvConfig, made: Sequence[Instance]) -> Iterator[str]:
    """Parse the pool's texts back and ask clingo, instance by instance."""
    for i, one in enumerate(made):
        world, _, row = place_of(config, i)
        pool = np.sort(world.pool(row, config))
        solver = AspSolver(parse_rule_table(world.rules.take(pool)))
        scopes = list(zip(one.metadata["facts"], one.metadata["queries"], strict=True))
        values = [[name.lower().replace("_", " ") for name in each] for each in solver.answers(scopes)]
        if values != [[answer] for answer in one.metadata["answers"]]:
            yield f"{one.metadata['id']}: clingo says {values}, the answers are {one.metadata['answers']}"


def _reworded(config: EnvConfig, made: Sequence[Instance]) -> Iterator[str]:
    for one in made:
        wrong = ["no", *one.metadata["answers"][1:]]
        for answer in (one.answer, boxed(one.metadata["answers"]), boxed(wrong)):
            reward = score(answer, one.metadata).reward
            for name, change in _SAME.items():
                if score(change(answer), one.metadata).reward != reward:
                    yield f"{one.metadata['id']}: {name} changes the reward of {answer!r}"
        record = dict(reversed(json.loads(json.dumps(one.metadata)).items()))
        if score(one.answer, json.dumps(record)) != score(one.answer, one.metadata):
            yield f"{one.metadata['id']}: the record read back scores otherwise"


def _in_box(change: Callable[[str], str]) -> Callable[[str], str]:
    def changed(answer: str) -> str:
        head, box, inside = answer.rpartition(r"\boxed{")
        return head + box + change(inside[:-1]) + "}"

    return changed


_SAME: dict[str, Callable[[str], str]] = {
    "upper case": _in_box(str.upper),
    "spaces": _in_box(lambda text: f"  {text.replace(', ', ' ,   ')} "),
    "no spaces": _in_box(lambda text: text.replace(", ", ",")),
    "text commands": _in_box(lambda text: rf"\text{{{text}}}"),
    "mathematics": _in_box(lambda text: f"${text}$"),
    "logic's names": _in_box(lambda text: text.replace(", ", "|").replace(" ", "_").replace("|", ", ")),
    "bold": _in_box(lambda text: f"**{text}**"),
    "words before": lambda text: f"Let me think about 12 and the bridge.\n{text}",
    "a full stop": lambda text: f"{text}.\n\n",
    "lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "bytes": lambda text: text.encode(),  # type: ignore[return-value, dict-item]
}
"""Changes that keep the meaning of an answer."""


def _apart(config: EnvConfig, made: Sequence[Instance]) -> Iterator[str]:
    """No question twice in a world, none of another seed's worlds, and no pool whose order tells the gold rules."""
    seen: dict[tuple[str, str], str] = {}
    elsewhere = replace(config, seed=(config.seed + 1) % 2**63, access="tool")
    worlds = {place_of(elsewhere, i)[0].world_id for i in range(len(made))}
    places = []
    for i, one in enumerate(made):
        world, _, row = place_of(config, i)
        key = (world.world_id, one.metadata["question"])
        if key in seen:
            yield f"{one.metadata['id']} asks what {seen[key]} asks"
        seen[key] = one.metadata["id"]
        if world.world_id in worlds:
            yield f"{one.metadata['id']}: its world is one of seed {elsewhere.seed}, too"
        pool = world.pool(row, config)
        gold = np.flatnonzero(np.isin(pool, row["gold_rule_ids"]))
        # Of a pool that is mostly gold, places say nothing: the gold rules fill it.
        if len(pool) > 2 * len(gold):
            places += (gold / (len(pool) - 1)).tolist()
    deviation = abs(np.mean(places) - 0.5) * math.sqrt(12 * len(places)) if places else 0.0
    if deviation > 5:
        yield f"gold rules stand at {np.mean(places):.2f} of the pool on average, {deviation:.1f} deviations from 0.5"


def _stateless(config: EnvConfig, made: Sequence[Instance]) -> Iterator[str]:
    """Another order, threads, and worlds drawn anew give the same instances and rewards."""
    world_of.cache_clear()
    order = list(range(len(made)))
    random.Random("another order").shuffle(order)

    def again(i: int) -> tuple[Instance, Instance]:
        one = instance(config, i)
        return one, made[i]

    with ThreadPoolExecutor(4) as threads:
        for one, first in threads.map(again, order):
            if one != first:
                yield f"{first.metadata['id']}: another order gives another instance"


_CHECKS: dict[str, Callable[[EnvConfig, Sequence[Instance]], Iterator[str]]] = {
    "the golden answer scores 1": _golden,
    "clingo derives the answer from the pool": _derived,
    "changes that keep the meaning keep the score": _reworded,
    "instances share no question, seeds no world, places tell nothing": _apart,
    "any order and any thread give the same": _stateless,
}
