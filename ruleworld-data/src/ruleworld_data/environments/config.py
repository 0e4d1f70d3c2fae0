"""What an environment is made of: worlds, how rules are reached, and what the reward counts. Plain JSON, hashable."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self

from ..questions.skeletons import shares_of
from ..spec import (
    CHAINS,
    FORMS,
    SCALES,
    SUBTASKS,
    VERSION,
    Dials,
    WorldSizes,
    WorldSpec,
    check_count,
    check_name,
    check_seed,
    check_share,
    check_subtask,
    data_version,
    read_fields,
)

ACCESS = ("prompt", "tool", "tags")
"""How a model reaches the rules: all in the prompt, by calls of a search tool, by ``<search>words</search>``."""
_WORLD_QUESTIONS = {"tiny": 1_024, "paper": 16_384}
"""Questions of all sub-tasks that one world serves before the next is drawn."""


@dataclass(frozen=True)
class RewardWeights:
    """What a reward adds up; each part is from 0 to 1, and so is their weighted mean. 0 switches a part off.

    Attributes
    ----------
    exact : float
        The paper's exact match: the share of answers that are right.
    strict : float
        1 if all answers are right.
    steps : float
        The share of the proof's steps whose ``[Step k]`` line ends in what follows at that step.
    proved : float
        1 if all answers are right and all steps: what a guess at the end of a chain does not have.
    format : float
        1 for one box at the end with as many answers as are asked for, right or wrong.
    search_cost : float
        Taken off per search beyond one for each gold rule; never below 0.
    """

    exact: float = 1.0
    strict: float = 0.0
    steps: float = 0.0
    proved: float = 0.0
    format: float = 0.0
    search_cost: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_share(f"reward {name}", value)
        if not self.exact + self.strict + self.proved > 0:
            raise ValueError(
                "a reward must count right answers: give exact, strict or proved a weight above 0"
            )


@dataclass(frozen=True)
class EnvConfig:
    """An environment: a sequence of instances named by index, the same on every machine.

    Attributes
    ----------
    subtasks : tuple of str
        Sub-tasks that take turns; one beyond the paper's turns the dial that it needs (``multi_hop_6``).
    seed : int
        Names the sequence of worlds; none is the benchmark's. Two seeds share no world.
    scale : {"tiny", "paper"}
        About 2,000 or 100,235 rules a world.
    dials : str
        Where worlds depart from the paper's, as `ruleworld_data.spec.Dials.parse` reads it.
    version : {"1.1", "1.2"}
        Of the data: how rules and questions are worded, and which conventions the prompt states.
    form : {"nl", "fol"}
        How rules are written.
    access : {"prompt", "tool", "tags"}
        How the model reaches the rules, see `ACCESS`.
    pool_size : int
        Rules that an instance is asked against, the gold ones among them.
    rivals : float
        Share of the other rules that conclude about the same as a gold rule, as far as the world has such rules. At 0
        the one rule about what is asked for gives small pools away.
    top_k, max_searches : int
        Rules that one search finds, and searches that are answered.
    reward : RewardWeights

    Raises
    ------
    ValueError
        For a value that no world satisfies; the text names the dial and its limit.
    """

    subtasks: tuple[str, ...] = SUBTASKS
    seed: int = 0
    scale: str = "tiny"
    dials: str = ""
    version: str = VERSION
    form: str = "nl"
    access: str = "prompt"
    pool_size: int = 100
    rivals: float = 0.5
    top_k: int = 5
    max_searches: int = 16
    reward: RewardWeights = field(default_factory=RewardWeights)

    def __post_init__(self) -> None:
        if not isinstance(self.subtasks, str | list | tuple):
            raise ValueError(f"subtasks must be names in an order, as in a list, got {self.subtasks!r:.80}")
        names = (self.subtasks,) if isinstance(self.subtasks, str) else tuple(self.subtasks)
        dials = reduce(Dials.reaching, names, Dials.parse(self.dials))
        for name in names:
            check_subtask("sub-task", name, dials)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"subtasks must name one sub-task or more, each once, got {names!r}")
        object.__setattr__(self, "subtasks", names)
        object.__setattr__(self, "dials", str(dials))
        object.__setattr__(self, "version", data_version(self.version))
        if isinstance(self.reward, Mapping):
            object.__setattr__(self, "reward", read_fields(RewardWeights, self.reward, "reward part"))
        if not isinstance(self.reward, RewardWeights):
            raise ValueError(f"reward must be RewardWeights, or its parts by name, got {self.reward!r:.80}")
        check_seed(self.seed)
        check_name("scale", self.scale, _WORLD_QUESTIONS)
        check_name("form", self.form, FORMS)
        check_name("access", self.access, ACCESS)
        for name in ("pool_size", "top_k", "max_searches"):
            check_count(name, getattr(self, name), least=1)
        check_share("rivals", self.rivals)
        least, most = max(map(self._gold_rules, names)), sum(self.sizes.rule_counts().values())
        if not least <= self.pool_size <= most:
            raise ValueError(
                f"pool_size must be from {least}, the gold rules of a question, to {most}, the rules of a world of "
                f"scale {self.scale!r}, got {self.pool_size}"
            )

    def _gold_rules(self, subtask: str) -> int:
        """Most gold rules of a question."""
        kind, _, size = subtask.rpartition("_")
        if kind in ("multi_rule", "compare"):
            return int(size) * (1 + (kind == "compare"))
        return max(skeleton.n_rules for skeleton in shares_of(subtask, Dials.parse(self.dials)))

    @property
    def spec(self) -> WorldSpec:
        """What the worlds depend on, besides the sub-tasks."""
        return WorldSpec(self.scale, "heldout", self.seed, self.version, Dials.parse(self.dials))

    @property
    def sizes(self) -> WorldSizes:
        """Sizes of a world, dials turned."""
        return world_sizes(self.scale).turned(Dials.parse(self.dials))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON holds it."""
        return vars(self) | {"subtasks": list(self.subtasks), "reward": {**vars(self.reward)}}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Read `to_dict`'s result, or some of its fields; `ValueError` for a wrong name or value."""
        return read_fields(cls, values, "option of the environment")


def read_config(changes: Sequence[str]) -> EnvConfig:
    """Read a configuration from options written as ``name=value``; a value is JSON, or a word that needs no quotes.

    Raises
    ------
    ValueError
        If an option is none.
    """
    values: dict[str, Any] = {}
    for change in changes:
        name, mark, value = change.partition("=")
        if not mark:
            raise ValueError(f"an option is set as in --set pool_size=1000, got {change!r}")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return EnvConfig.from_dict(values)


def world_sizes(scale: str) -> WorldSizes:
    """Return the sizes of a world of a scale, at the paper's point; ``paper`` is the paper's subset."""
    subset: dict[str, Any] = {**(SCALES[scale].subset or {})}
    return replace(SCALES[scale].sizes, **subset)


def world_questions(spec: WorldSpec, subtasks: tuple[str, ...]) -> int:
    """Return how many questions of each sub-task one world serves."""
    count = max(1, _WORLD_QUESTIONS[spec.scale] // len(subtasks))
    scale = replace(spec.sized, subset=None)
    chains = [name for name in subtasks if name.startswith(CHAINS) and spec.dials.structure != Dials()]
    # A thin crowd has few chains.
    return min([count, *(max(50, scale.room(name, 1.0) // 10 * 10) for name in chains)])
