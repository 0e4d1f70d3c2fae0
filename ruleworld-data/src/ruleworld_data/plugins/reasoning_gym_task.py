"""RuleWorld as a dataset of reasoning-gym: ``import ruleworld_data.plugins.reasoning_gym_task``, then as any other.

Importing this module registers ``ruleworld`` in reasoning-gym's registry, which has no entry points.
"""

from dataclasses import dataclass, field
from typing import Any

from ruleworld_data.environments import EnvConfig, instance, score
from ruleworld_data.plugins import tool
from ruleworld_data.questions import boxed

with tool("reasoning-gym", "reasoning-gym"):
    from reasoning_gym.factory import DATASETS, ProceduralDataset, register_dataset

NAME = "ruleworld"


@dataclass
class ReasoningGymConfig:
    """Options of `ruleworld_data.environments.EnvConfig` by the same names, and reasoning-gym's ``size``."""

    subtasks: list[str] = field(default_factory=lambda: list(EnvConfig().subtasks))
    scale: str = "tiny"
    dials: str = ""
    form: str = "nl"
    pool_size: int = 100
    rivals: float = 0.5
    seed: int | None = None
    size: int = 500

    def validate(self) -> None:
        """Raise a ValueError for what no world satisfies; reasoning-gym calls this."""
        self.environment(self.seed or 0)

    def environment(self, seed: int) -> EnvConfig:
        """Return the configuration of the environment."""
        values = {name: value for name, value in vars(self).items() if name != "size"}
        return EnvConfig.from_dict(values | {"seed": seed, "subtasks": tuple(self.subtasks)})


class RuleWorldDataset(ProceduralDataset):
    """Questions among a pool of rules; exact match is the score."""

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config, config.seed, config.size)
        self.environment = config.environment(self.seed)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return one item; the answer is what stands in the box."""
        made = instance(self.environment, idx)
        difficulty = {"subtask": made.metadata["subtask"], "pool_size": self.environment.pool_size}
        more = {
            "source_dataset": NAME,
            "source_index": idx,
            "difficulty": difficulty,
            "record": made.metadata,
        }
        return {"question": made.prompt, "answer": ", ".join(made.metadata["answers"]), "metadata": more}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        r"""Score an answer as it stands between ``<answer>`` tags, or a whole output with a ``\boxed{}``."""
        text = answer if isinstance(answer, str) else ""
        return score(text if r"\boxed" in text else boxed([text]), entry["metadata"]["record"]).reward


if NAME not in DATASETS:
    register_dataset(NAME, RuleWorldDataset, ReasoningGymConfig)
