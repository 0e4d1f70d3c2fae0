"""Reasoning skeletons: every typed path of one to four rules, and the rule chains of a world that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from ..world import Ints, World

Initial = Literal["rule", "stated"] | None


@dataclass(frozen=True)
class Skeleton:
    """A typed path: rule types in firing order, one per hop.

    ``initial`` says where the queried attribute's initial value comes from: an ``entity2attr`` rule, the question
    itself, or nowhere (the answer is no final value).
    """

    path: tuple[str, ...]
    initial: Initial = None

    @property
    def name(self) -> str:
        """The path as text, e.g. ``state2attr>attrchange2attr+entity2attr``."""
        return ">".join(self.path) + ("+entity2attr" if self.initial == "rule" else "")

    @property
    def n_rules(self) -> int:
        """Gold rules of a question."""
        return len(self.path) + (self.initial == "rule")

    @property
    def answer_type(self) -> str:
        """Type of the answer: count, environment or state."""
        last = self.path[-1]
        if last == "action2env":
            return "environment"
        return "state" if last.endswith("2state") else "count"

    @property
    def start(self) -> str:
        """What the question states: a kind, a change, an action, an environment or a state."""
        return {
            "entity2attr": "kind",
            "attrchange2attr": "change",
            "env2state": "environment",
            "state2attr": "state",
        }.get(self.path[0], "action")


SINGLE: dict[Skeleton, float] = {
    Skeleton(("entity2attr",)): 0.25,
    Skeleton(("attrchange2attr",), "stated"): 0.20,
    Skeleton(("action2env",)): 0.05,
    Skeleton(("action2attr",), "stated"): 0.15,
    Skeleton(("action2state",)): 0.08,
    Skeleton(("env2state",)): 0.05,
    Skeleton(("state2attr",), "stated"): 0.22,
}
"""One-rule questions and their shares. Types with few rules get few questions."""

DOUBLE: dict[Skeleton, float] = {
    Skeleton(("attrchange2attr",), "rule"): 0.35,
    Skeleton(("action2attr",), "rule"): 0.20,
    Skeleton(("state2attr",), "rule"): 0.45,
}
"""Two-rule questions: an effect, and the rule that gives the initial value."""

MULTI_HOP: dict[int, dict[Skeleton, float]] = {
    2: {
        Skeleton(("action2env", "env2state")): 0.08,
        Skeleton(("action2attr", "attrchange2attr"), "rule"): 0.10,
        Skeleton(("action2state", "state2attr"), "rule"): 0.27,
        Skeleton(("env2state", "state2attr"), "rule"): 0.25,
        Skeleton(("state2attr", "attrchange2attr"), "rule"): 0.30,
    },
    3: {
        Skeleton(("action2env", "env2state", "state2attr"), "rule"): 1 / 3,
        Skeleton(("action2state", "state2attr", "attrchange2attr"), "rule"): 1 / 3,
        Skeleton(("env2state", "state2attr", "attrchange2attr"), "rule"): 1 / 3,
    },
    4: {Skeleton(("action2env", "env2state", "state2attr", "attrchange2attr"), "rule"): 1.0},
}
"""Every typed path of two, three and four hops (drivers trigger responses, and responses trigger nothing)."""


def chains(world: World, path: tuple[str, ...]) -> list[Ints]:
    """Enumerate all rule chains along a path: for each hop the row of the rule in its block."""
    rows = [np.arange(len(world.blocks[path[0]]), dtype=np.int32)]
    for here, following in pairwise(path):
        keep, found = _follow(world, here, following, rows[-1])
        rows = [column[keep] for column in rows]
        rows.append(found)
    return rows


def _follow(world: World, here: str, following: str, rows: Ints) -> tuple[Ints, Ints]:
    """Return positions in ``rows`` (repeated where several rules follow) and the rows of the rules that follow."""
    block, target = world.blocks[here], world.blocks[following]
    if following == "attrchange2attr":
        key = block["attribute"][rows].astype(np.int32) * 2 + block["operator"][rows]
        target_key = target["trigger_attribute"].astype(np.int32) * 2 + target["trigger_operator"]
        size = 2 * len(world.terms["attribute"])
    else:
        shared = "environment" if following == "env2state" else "state"
        key, target_key, size = block[shared][rows], target[shared], len(world.terms[shared])
    order, first, count = group(target_key, size)
    repeat = count[key]
    keep = np.repeat(np.arange(len(rows), dtype=np.int32), repeat)
    within = np.arange(len(keep)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    return keep, order[first[key][keep] + within]


def group(key: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    """Group rows by key: row order, first position and count per key."""
    count = np.bincount(key, minlength=size)
    return np.argsort(key, kind="stable").astype(np.int32), np.cumsum(count) - count, count
