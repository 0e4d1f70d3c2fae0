"""Names and counts of the benchmark: rule types, sub-tasks, splits and scales (the paper's two count tables)."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

__all__ = [
    "CONFIGS",
    "EXTRA_TYPES",
    "MINI_FOLDS",
    "MINI_FOLD_SIZE",
    "OPERATORS",
    "PAPER_POINT",
    "QUESTION_SPLITS",
    "ROLES",
    "RULE_SPLITS",
    "RULE_TYPES",
    "SCALES",
    "SUBTASKS",
    "VERSION",
    "VERSIONS",
    "Dials",
    "Scale",
    "WorldSizes",
    "WorldSpec",
    "check_count",
    "check_name",
    "check_seed",
    "num_rows",
]

VERSIONS = ("1.0", "1.1")
"""Versions of the data, oldest first; each can be generated."""
VERSION = "1.0"
"""The version that is made unless another is asked for."""
RULE_TYPES = (
    "entity2attr",
    "attrchange2attr",
    "action2env",
    "action2attr",
    "action2state",
    "env2state",
    "state2attr",
)
EXTRA_TYPES = ("place_state2attr", "count2state")
"""Rule types that only dials bring into a world: conjunctive premises and thresholds."""
SUBTASKS = (
    "single_rule",
    *(f"multi_rule_{width}" for width in range(2, 9)),
    *(f"multi_hop_{hops}" for hops in range(2, 5)),
)
CONFIGS = (*SUBTASKS, "rules")
OPERATORS = ("minus", "plus")
ROLES = ("actor", "target")
QUESTION_SPLITS = ("train", "validation", "test", "mini", "heldout")
RULE_SPLITS = ("train", "heldout")
MINI_FOLDS = 5
MINI_FOLD_SIZE = 10
"""The paper's protocol: five seeds, ten questions a sub-task each."""


def _by_subtask(*counts: int) -> dict[str, int]:
    return dict(zip(SUBTASKS, counts, strict=True))


def check_name(kind: str, value: object, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names.

    Raises
    ------
    ValueError
        Otherwise, naming the near matches and all known names.
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ValueError(f"unknown {kind} {value!r}{hint} Known: {', '.join(names)}.")


def check_count(name: str, value: object, least: int = 0) -> int:
    """Return a number if it is an integer of at least 0 or 1.

    Raises
    ------
    ValueError
        For any other value, strings and booleans included.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = "positive" if least else "non-negative"
        raise ValueError(f"{name} must be a {kind} integer, got {value!r}")
    return value


def check_seed(seed: object) -> int:
    """Return a world seed if it is an integer from 0 to 2**63 - 1; `ValueError` for any other value."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - 1, got {seed!r} ({type(seed).__name__})")
    return seed


@dataclass(frozen=True)
class WorldSizes:
    """How many terms a world uses and how many rules of each open type it holds.

    Actions and environments fix the counts of the other four types: one environment per action, one attribute effect
    and one state per action and role, one state per environment.
    """

    entities: int = 960
    attributes: int = 4096
    states: int = 1664
    actions: int = 100
    environments: int = 100
    entity2attr: int = 1_877_380
    attrchange2attr: int = 4_021
    state2attr: int = 3_054_112

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_count(name, value)
        if self.entities < 2 or self.attributes < 4 or self.attributes % 4:
            raise ValueError(
                "a world needs at least 2 entities and a multiple of 4 attributes (drivers and responses, in two "
                f"halves), got {self.entities} entities and {self.attributes} attributes"
            )
        if self.environments != self.actions or self.actions < 1:
            raise ValueError(
                "every action leads to an environment of its own, so environments must equal actions and be at least "
                f"1, got {self.actions} actions and {self.environments} environments"
            )
        if self.states < self.reachable_states:
            raise ValueError(
                f"states must be at least environments + 2 * actions = {self.reachable_states}, got {self.states}"
            )
        for name, slots in self.slots().items():
            if getattr(self, name) > slots:
                raise ValueError(
                    f"{name}={getattr(self, name)} rules do not fit: this world has room for {slots}; "
                    "ask for fewer rules or more terms"
                )

    @property
    def reachable_states(self) -> int:
        """States that an environment or an action leads to."""
        return self.environments + 2 * self.actions

    def slots(self) -> dict[str, int]:
        """Room for each open rule type under the constraints (a lower bound for ``state2attr``)."""
        drivers = self.attributes // 2
        free = self.states - self.reachable_states
        return {
            "entity2attr": self.entities * self.attributes,
            "attrchange2attr": 2 * drivers,
            "state2attr": self.reachable_states * (drivers // 2) + free * drivers - 3 * self.actions,
        }

    def rule_counts(self) -> dict[str, int]:
        """Return the number of rules by type, in the order of `RULE_TYPES`."""
        return {
            "entity2attr": self.entity2attr,
            "attrchange2attr": self.attrchange2attr,
            "action2env": self.actions,
            "action2attr": 2 * self.actions,
            "action2state": 2 * self.actions,
            "env2state": self.environments,
            "state2attr": self.state2attr,
        }


@dataclass(frozen=True)
class Scale:
    """A named size of the benchmark.

    Attributes
    ----------
    sizes : WorldSizes
        The world that rules are drawn in.
    subset : dict or None
        Rules kept per open type, if the scale uses a part of its world; ids are those of the whole world.
    train : dict
        Questions of the train split by sub-task.
    evaluation : dict
        Questions per sub-task of the other splits.
    unit_pool : int
        Most sub-questions of each width (one rule, two rules) that a block of parallel questions combines.
    """

    sizes: WorldSizes
    subset: dict[str, int] | None
    train: dict[str, int]
    evaluation: dict[str, int] = field(
        default_factory=lambda: {"validation": 500, "test": 500, "mini": 50, "heldout": 500}
    )
    unit_pool: int = 8_192

    def rule_count(self) -> int:
        """Return the number of rules of the scale."""
        return sum((self.sizes.rule_counts() | (self.subset or {})).values())


SCALES: dict[str, Scale] = {
    "tiny": Scale(
        sizes=WorldSizes(
            entities=40,
            attributes=64,
            states=60,
            actions=16,
            environments=16,
            entity2attr=1_000,
            attrchange2attr=60,
            state2attr=828,
        ),
        subset=None,
        train=dict.fromkeys(SUBTASKS, 100),
        evaluation={"validation": 20, "test": 50, "mini": 50, "heldout": 20},
        unit_pool=300,
    ),
    "paper": Scale(
        sizes=WorldSizes(),
        subset={"entity2attr": 74_888, "attrchange2attr": 3_772, "state2attr": 20_975},
        train=_by_subtask(25_000, 6_702, 8_696, 12_384, 10_924, 6_824, 2_863, 807, 19_500, 12_500, 5_000),
    ),
    "full": Scale(
        sizes=WorldSizes(),
        subset=None,
        train=_by_subtask(
            50_000, 154_167, 381_116, 839_755, 886_455, 618_577, 289_761, 80_169, 37_737, 30_000, 10_000
        ),
    ),
}


@dataclass(frozen=True)
class Dials:
    """How a world and its questions depart from the paper's; the defaults are the paper's point.

    Attributes
    ----------
    hops : int
        Hops of the longest chain, 1 to 8. Every hop above four is one more level of attributes.
    parts : int
        Most sub-questions that a parallel question merges, 1 to 8; each is of one or two rules.
    crowd : int or None
        Rules that share the premise of a chain's ``state2attr`` hop, 1 to 64: exactly so many for every state that an
        action or an environment leads to. None: as it falls (the paper).
    conjunction : int
        Most atoms of a premise, 1 to 3; above 1 there are rules of type ``place_state2attr``.
    thresholds : bool
        Whether there are rules of type ``count2state``: "If A has more than 12 strong horns, ...".

    Raises
    ------
    ValueError
        For a value outside its range.
    """

    hops: int = 4
    parts: int = 4
    crowd: int | None = None
    conjunction: int = 1
    thresholds: bool = False

    def __post_init__(self) -> None:
        for name, most in {"hops": 8, "parts": 8, "crowd": 64, "conjunction": 3}.items():
            value = getattr(self, name)
            if name == "crowd" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{name} must be an integer from 1 to {most}, got {value!r}")
        if not isinstance(self.thresholds, bool):
            raise ValueError(f"thresholds must be true or false, got {self.thresholds!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the dials that are not at the paper's point."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(PAPER_POINT, name)}

    @property
    def tag(self) -> str:
        """Eight hex digits that name this point in world ids and streams; empty at the paper's point."""
        turned = self.to_dict()
        if not turned:
            return ""
        return hashlib.blake2b(json.dumps(turned, sort_keys=True).encode(), digest_size=4).hexdigest()

    @property
    def levels(self) -> int:
        """Levels of attributes: drivers, their responses, and for deeper chains what those drive in turn."""
        return max(2, self.hops - 2)


PAPER_POINT = Dials()


@dataclass(frozen=True)
class WorldSpec:
    """One split of one world: all that the tables of the benchmark depend on, validated once.

    Attributes
    ----------
    scale : str
        A name of `SCALES`.
    split : str
        A name of `QUESTION_SPLITS`; ``heldout`` has a world of its own, the other splits share one.
    seed : int
        World seed, from 0 to 2**63 - 1. The published benchmark is seed 0.
    version : str
        A name of `VERSIONS`.
    dials : Dials
        Where the world departs from the paper's; only from version 1.1 on.

    Raises
    ------
    ValueError
        For an unknown name, a bad seed, or turned dials in version 1.0.
    """

    scale: str = "paper"
    split: str = "train"
    seed: int = 0
    version: str = VERSION
    dials: Dials = PAPER_POINT

    def __post_init__(self) -> None:
        check_name("scale", self.scale, SCALES)
        check_name("split", self.split, QUESTION_SPLITS)
        check_seed(self.seed)
        check_name("version", self.version, VERSIONS)
        if self.version == "1.0" and self.dials != PAPER_POINT:
            raise ValueError(
                f"version 1.0 has no dials, got {self.dials.to_dict()}; use version {VERSIONS[-1]}"
            )

    @property
    def generator(self) -> str:
        """Version of the generator as builds and runs write it down, e.g. "1.1.0"."""
        return f"{self.version}.0"

    @property
    def drawn(self) -> WorldSpec:
        """The spec whose tables these are: all splits of ``full`` but train are those of ``paper``."""
        return replace(self, scale="paper") if self.scale == "full" and self.split != "train" else self

    def num_rows(self, config: str) -> int:
        """Return the number of rows of one configuration, a sub-task or ``"rules"``."""
        check_name("configuration", config, CONFIGS)
        scale = SCALES[self.drawn.scale]
        if config == "rules":
            check_name("split of rules", self.split, RULE_SPLITS)
            return scale.rule_count()
        return scale.train[config] if self.split == "train" else scale.evaluation[self.split]


def num_rows(
    config: str,
    split: str,
    scale: str = "paper",
    seed: int = 0,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
) -> int:
    """Return the number of rows of one split of one configuration (a sub-task name or ``"rules"``)."""
    return WorldSpec(scale, split, seed, version, dials).num_rows(config)
