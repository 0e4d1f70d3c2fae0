"""RuleWorld as an environment of skyrl-gym: one turn, or turns with ``<search>words</search>``.

Register it where the trainer's workers are started: ``ruleworld_data.plugins.skyrl_environment.register()``.
"""

import json
from collections.abc import Iterable
from typing import Any

from ruleworld_data.environments import EnvConfig, Episode, instance
from ruleworld_data.plugins import tool

with tool("skyrl-gym", "skyrl"):
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

NAME = "ruleworld"


def rows(config: EnvConfig, indexes: Iterable[int]) -> list[dict[str, Any]]:
    """Return instances as rows of SkyRL's datasets; ``access="tags"`` of the configuration asks for searches."""
    return [
        {
            "data_source": NAME,
            "prompt": [{"role": "user", "content": one.prompt}],
            "env_class": NAME,
            "reward_spec": {"method": "rule", "ground_truth": json.dumps(one.metadata)},
            "max_turns": 1 if config.access == "prompt" else config.max_searches + 1,
        }
        for one in (instance(config, index) for index in indexes)
    ]


class RuleWorldEnv(BaseTextEnv):
    """One episode; the reward comes at its end."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        try:
            record = extras["reward_spec"]["ground_truth"]
        except (KeyError, TypeError):
            raise ValueError(
                "a row needs reward_spec.ground_truth, a record of ruleworld_data; make rows with "
                "ruleworld_data.plugins.skyrl_environment.rows"
            ) from None
        self.episode = Episode(record)
        self.max_turns = int(extras.get("max_turns") or 1)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take a turn of the model: a search, or the answer; the last turn is the answer."""
        self.turns += 1
        last = self.turns >= self.max_turns
        text, result = ("", self.episode.score(action)) if last else self.episode.step(action)
        return BaseTextEnvStepOutput(
            observations=[] if result else [{"role": "user", "content": text}],
            reward=result.reward if result else 0.0,
            done=result is not None,
            metadata={"searches": self.episode.searches} | (result._asdict() if result else {}),
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return the searches that were made."""
        return {"searches": self.episode.searches}


def register() -> None:
    """Make the environment known to skyrl-gym as ``ruleworld``."""
    skyrl_gym.register(id=NAME, entry_point=f"{__name__}:{RuleWorldEnv.__name__}")
