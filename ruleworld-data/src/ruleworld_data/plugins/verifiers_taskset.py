"""RuleWorld as a taskset of verifiers: its id is ``ruleworld-taskset``, the name of a module that imports this one."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import Field

from ruleworld_data.environments import EnvConfig, Episode, instance, score
from ruleworld_data.plugins import tool

with tool("verifiers", "verifiers"):
    import verifiers.v1 as vf


class RuleWorldTasksetConfig(vf.TasksetConfig):
    """``options`` are those of `EnvConfig`: ``{"subtasks": ["multi_hop_3"], "pool_size": 1000}``."""

    options: dict[str, Any] = Field(default_factory=dict)


class RuleWorldData(vf.TaskData):
    """An instance: its prompt, and the record that it is scored by."""

    record: dict[str, Any]


class SearchState(vf.State):
    """What the search tool counts."""

    searches: int = 0


class RuleSearch(vf.Toolset[vf.ToolsetConfig, SearchState]):
    """The search tool of one rollout."""

    TOOL_PREFIX = None

    async def setup_task(self, task: RuleWorldData) -> None:
        """Begin the instance."""
        self.episode = Episode(task.record)

    @vf.tool
    async def search(self, query: str) -> str:
        """Look up the rules that share most words with a query: a few words, such as a state or a place."""
        self.episode.searches = self.state.searches
        rules = self.episode.search(query)
        self.state.searches = self.episode.searches
        return rules


class RuleWorldTask(vf.Task[RuleWorldData, SearchState, vf.TaskConfig]):
    """A question whose rules are looked up."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        """Return the search tool, one for each rollout."""
        return [RuleSearch(vf.ToolsetConfig())]

    @vf.reward
    async def ruleworld(self, trace: Any) -> float:
        """Score the last reply after the searches made."""
        return score(trace.last_reply, self.data.record, trace.state.searches).reward

    async def validate(self, runtime: Any) -> bool:
        """Say whether the golden answer scores 1."""
        made = instance(EnvConfig.from_dict(self.data.record["config"]), self.data.record["index"])
        return score(made.answer, self.data.record).reward == 1.0


class RuleWorldTaskset(vf.Taskset[RuleWorldTask, RuleWorldTasksetConfig]):
    """Instances without end, whose rules are looked up."""

    INFINITE = True

    def load(self) -> Iterator[Any]:
        """Yield the instances in order."""
        config = EnvConfig.from_dict({"access": "tool"} | self.config.options)
        if config.access != "tool":
            raise ValueError(
                f"access must be 'tool', for the taskset's own search tool, got {config.access!r}"
            )
        for index in count():
            made = instance(config, index)
            data = RuleWorldData(id=made.metadata["id"], prompt=made.prompt, record=made.metadata)
            yield RuleWorldTask(data, self.config.task)


__all__ = ["RuleWorldTaskset"]
