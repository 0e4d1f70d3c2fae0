"""Reasoning skeletons: typed paths of one to eight rules, and the rule chains of a world that follow them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..spec import ROLES, Dials
from ..world import Ints, World
from ..world.arrays import PLUS

Initial = Literal["rule", "stated"] | None


@dataclass(frozen=True)
class Skeleton:
    """A typed path: rule types in firing order, one per hop.

    ``initial`` says where the queried attribute's initial value comes from: an ``entity2attr`` rule, the question
    itself, or nowhere (the answer is no final value). ``exceptions`` is how many set aside a rule of the path, or what
    did so; None where it has none. ``changed``: the question says that the count changes. ``gap`` is the hop whose rule
    is left out of the world, after the last one the rule of the initial value; then there is no answer.
    """

    path: tuple[str, ...]
    initial: Initial = None
    exceptions: int | None = None
    changed: bool = False
    gap: int | None = None

    @property
    def name(self) -> str:
        """The path as text, e.g. ``state2attr>attrchange2attr+entity2attr``; it ends with ``?`` at a gap."""
        path, giver = ">".join(self.path[: self.gap]), "+entity2attr" if self.initial == "rule" else ""
        if self.gap is None:
            return path.replace("state2attr", "state2attr" + "+exception" * (self.exceptions or 0)) + giver
        return f"{path}+?" if self.gap == len(self.path) else f"{path}>?{giver}".lstrip(">")

    @property
    def key(self) -> str:
        """A name for streams: of different skeletons different, and that of a world without gaps where none is met."""
        return self.name if self.gap is None else f"{replace(self, gap=None).name} without {self.gap}"

    @property
    def n_rules(self) -> int:
        """Gold rules of a question."""
        return len(self.path) + (self.initial == "rule") + (self.exceptions or 0)

    @property
    def has_threshold(self) -> bool:
        """Whether the path begins with a count and its threshold."""
        return "count2state" in self.path

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
UNSEEN = SINGLE | {Skeleton(("entity2attr",)): 4.2}
"""The same of ``unseen``: a guess has one of six changes of a stated count right, of a kind one of twelve counts."""

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


_CHANGE = "attrchange2attr"
_BEFORE_CHANGES: tuple[tuple[str, ...], ...] = (
    ("action2env", "env2state", "state2attr"),
    ("action2state", "state2attr"),
    ("env2state", "state2attr"),
    ("action2attr",),
    ("state2attr",),
    (),
)
"""What may come before a chain of attribute changes."""
_CONJUNCTION = ("action2env", "action2state", "place_state2attr")
_THRESHOLD = ("entity2attr", "count2state", "state2attr")
_STATE_OF_COUNT = Skeleton(("entity2attr", "count2state"))
"""The state itself that a count gives."""


def shares_of(subtask: str, dials: Dials, split: str = "test") -> dict[Skeleton, float]:
    """Return the skeletons of a sub-task whose questions are one chain each, and their shares in a split."""
    if subtask == "single_rule":
        return UNSEEN if split == "unseen" else SINGLE
    kind, _, hops = subtask.rpartition("_")
    if kind == "unknown":
        known, gaps = unknown(int(hops), dials)
        return known | gaps
    return (exceptions if kind == "exceptions" else multi_hop)(int(hops), dials)


def multi_hop(hops: int, dials: Dials) -> dict[Skeleton, float]:
    """Return the skeletons of so many hops, and their shares.

    Conjunctive premises and thresholds take a third of the questions each, where a path of theirs has this length.
    """
    plain = MULTI_HOP.get(hops) or dict.fromkeys(_with_changes(_BEFORE_CHANGES, hops, dials), 1.0)
    families = [plain]
    if dials.conjunction > 1:
        families.append(dict.fromkeys(_with_changes((_CONJUNCTION,), hops, dials), 1.0))
    if dials.thresholds:
        changes = _with_changes((_THRESHOLD,), hops, dials)
        families.append(
            dict.fromkeys([_STATE_OF_COUNT] if hops == len(_STATE_OF_COUNT.path) else changes, 1.0)
        )
    families = [family for family in families if family]
    parts = [1 / 3] * len(families[1:])
    return {
        skeleton: part * share / sum(family.values())
        for part, family in zip([1 - sum(parts), *parts], families, strict=True)
        for skeleton, share in family.items()
    }


def exceptions(hops: int, dials: Dials) -> dict[Skeleton, float]:
    """Return the skeletons of so many hops through a rule that has exceptions, and their shares.

    None applies, one does, and with two levels one that is set aside itself, in equal parts; the last where the path
    tells of a place.
    """
    paths = _with_changes((_BEFORE_CHANGES[i] for i in (0, 2, 4)), hops, dials)
    families = [
        [replace(path, exceptions=level) for path in paths if level < 2 or "env2state" in path.path]
        for level in range(dials.exceptions + 1)
    ]
    families = [family for family in families if family]
    return {path: 1 / len(families) / len(family) for family in families for path in family}


def unknown(hops: int, dials: Dials) -> tuple[dict[Skeleton, float], dict[Skeleton, float]]:
    """Return the skeletons of so many hops to a count that changes: those with an answer, and those with a gap.

    Every hop, and the initial value, is the gap equally often. A creature whose counts have thresholds is not asked of.
    """
    shares = multi_hop(hops, dials) if hops > 1 else DOUBLE
    known = {
        replace(skeleton, changed=True): share
        for skeleton, share in shares.items()
        if skeleton.initial == "rule" and not skeleton.has_threshold
    }
    gaps = {
        replace(skeleton, gap=gap): share / skeleton.n_rules
        for skeleton, share in known.items()
        for gap in range(skeleton.n_rules)
    }
    return known, gaps


def _with_changes(prefixes: Iterable[tuple[str, ...]], hops: int, dials: Dials) -> list[Skeleton]:
    """Return the paths of so many hops that begin with a prefix and go on with as many changes as there are levels."""
    return [
        Skeleton((*prefix, *[_CHANGE] * (hops - len(prefix))), "rule")
        for prefix in prefixes
        if 0 <= hops - len(prefix) < dials.levels
    ]


def chains(world: World, path: tuple[str, ...]) -> list[Ints]:
    """Enumerate all rule chains along a path: for each hop the row of the rule in its block."""
    rows = [np.arange(len(world.blocks[path[0]]), dtype=np.int32)]
    for hop in range(1, len(path)):
        keep, follows = _follow(world, path[: hop + 1], rows)
        rows = [column[keep] for column in rows]
        rows.append(follows)
    return rows


def _follow(world: World, path: tuple[str, ...], rows: list[Ints]) -> tuple[Ints, Ints]:
    """Return positions in ``rows`` (repeated where several rules follow) and the rows of the rules that follow.

    ``path`` ends with the rule that follows; its premise is what the rule before concludes, or what several do.
    """
    here, following = path[-2:]
    block, target = world.blocks[here].take(rows[-1]), world.blocks[following]
    size = len(world.terms["state"])
    if following == _CHANGE:
        key = block["attribute"].astype(np.int32) * 2 + block["operator"]
        target_key = target["trigger_attribute"].astype(np.int32) * 2 + target["trigger_operator"]
        size = 2 * len(world.terms["attribute"])
    elif following == "count2state":
        key, target_key, size = block["attribute"], target["trigger_attribute"], len(world.terms["attribute"])
    elif (
        following == "action2state"
    ):  # the conjunction's second branch: what the act does to its target itself
        key = world.blocks[path[0]]["action"][rows[0]].astype(np.int32) * 2 + ROLES.index("target")
        target_key = target["action"].astype(np.int32) * 2 + target["role"]
        size = 2 * len(world.terms["action"])
    elif following == "place_state2attr":
        place = world.blocks[path[0]]["environment"][rows[0]]
        key = place.astype(np.int32) * size + block["state"]
        target_key = target["environment"].astype(np.int32) * size + target["state"]
        size *= len(world.terms["environment"])
    else:
        shared = "environment" if following == "env2state" else "state"
        key, target_key, size = block[shared], target[shared], len(world.terms[shared])
    order, first, count = group(target_key, size)
    repeat = count[key]
    keep = np.repeat(np.arange(len(key), dtype=np.int32), repeat)
    within = np.arange(len(keep)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    follows = order[first[key][keep] + within]
    if following == "count2state":
        has, cut = block["amount"][keep], target["threshold"][follows]
        holds = np.where(target["trigger_operator"][follows] == PLUS, has > cut, has < cut)
        return keep[holds], follows[holds]
    return keep, follows


def group(key: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    """Group rows by key: row order, first position and count per key."""
    count = np.bincount(key, minlength=size)
    if size <= 1 << 16:  # numpy sorts short integers by digits, ten times as fast
        key = key.astype(np.uint16)
    return np.argsort(key, kind="stable").astype(np.int32), np.cumsum(count) - count, count
