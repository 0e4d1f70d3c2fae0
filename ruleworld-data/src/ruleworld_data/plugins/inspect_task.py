"""RuleWorld as a task of inspect_ai: ``inspect eval ruleworld_data/ruleworld -T subtask=multi_hop_3``.

inspect finds this module through the entry point of the installed package.
"""

from typing import Any

from ruleworld_data.plugins import TaskOptions, output_scores, prompt_rows, tool
from ruleworld_data.scoring import parse_boxed
from ruleworld_data.spec import read_fields

with tool("inspect_ai", "inspect"):
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import GenerateConfig
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState, generate


@scorer(metrics={"*": [mean(), stderr()]})
def ruleworld_em() -> Scorer:
    """Score with `ruleworld_data.scoring`: the paper's exact match, strict match, and outputs without a box."""

    async def score(state: TaskState, target: Target) -> Score:
        output = state.output.completion
        return Score(value={**output_scores(output, list(target))}, answer=parse_boxed(output))

    return score


@task
def ruleworld(subtask: str = "multi_hop_3", max_tokens: int = 512, **options: Any) -> Task:
    """Ask the questions of one sub-task, each with its pool of rules; answers have at most ``max_tokens``.

    Options are the fields of `ruleworld_data.plugins.TaskOptions`; a ValueError for an unknown name or a bad value.
    """
    samples = [
        Sample(
            id=row["id"],
            input=row["prompt"],
            target=row["answers"],
            metadata={name: row[name] for name in ("subtask", "world_id", "question", "rule_ids")},
        )
        for row in prompt_rows(subtask, read_fields(TaskOptions, options, "option"))
    ]
    return Task(
        dataset=MemoryDataset(samples, name=f"ruleworld {subtask}"),
        solver=generate(),
        scorer=ruleworld_em(),
        config=GenerateConfig(max_tokens=max_tokens, temperature=0.0),
    )
