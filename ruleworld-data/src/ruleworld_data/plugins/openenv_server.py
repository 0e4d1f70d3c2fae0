"""RuleWorld as an environment of OpenEnv: ``uvicorn ruleworld_data.plugins.openenv_server:app``."""

from typing import Any
from uuid import uuid4

from ruleworld_data.environments import EnvConfig, Episode, instance
from ruleworld_data.plugins import tool

with tool("openenv", "openenv"):
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State


class RuleWorldAction(Action):
    """A turn of the model: its text, which ends in ``<search>words</search>`` or is the answer."""

    text: str


class RuleWorldObservation(Observation):
    """What the model reads: the prompt, or the rules that it searched for; ``metadata`` has the parts of the reward."""

    text: str = ""


class RuleWorldEnvironment(Environment):
    """One episode at a time; ``reset(seed=index, config={...})`` begins the instance of that index."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._episode: Episode | None = None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> RuleWorldObservation:
        """Begin the instance of an index, ``seed``: 0 if it is not given.

        ``config`` has options of `EnvConfig`; by default rules are looked up with tags.
        """
        config = EnvConfig.from_dict({"access": "tags"} | dict(options.get("config") or {}))
        made = instance(config, seed or 0)
        self._episode = Episode(made.metadata)
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return RuleWorldObservation(text=made.prompt, reward=None, done=False)

    def step(self, action: RuleWorldAction, timeout_s: float | None = None, **_: Any) -> RuleWorldObservation:
        """Take a turn of the model."""
        if self._episode is None:
            raise ValueError("no episode has begun; call reset first")
        self._state.step_count += 1
        text, result = self._episode.step(action.text)
        more = {"searches": self._episode.searches} | (result._asdict() if result else {})
        reward = result.reward if result else None
        return RuleWorldObservation(text=text, reward=reward, done=result is not None, metadata=more)

    @property
    def state(self) -> State:
        """Id and turns of the episode."""
        return self._state


app = create_app(RuleWorldEnvironment, RuleWorldAction, RuleWorldObservation, env_name="ruleworld")
