"""RuleWorld as tasks of lighteval: ``--custom-tasks "$(ruleworld plugin-path lighteval)"``, ``ruleworld:multi_hop_3``.

lighteval passes no options to tasks, so those of `ruleworld_data.plugins.TaskOptions` are read from the environment
variable ``RULEWORLD_LIGHTEVAL``, a JSON object such as ``{"pool_size": 1000}``.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ruleworld_data.plugins import METRICS, TaskOptions, ask, mean, output_scores, tool
from ruleworld_data.spec import SUBTASKS, splits_of

with tool("lighteval", "lighteval"):
    from lighteval.metrics.metrics_sample import SampleLevelComputation
    from lighteval.metrics.utils.metric_utils import SampleLevelMetricGrouping
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.lighteval_task import LightevalTaskConfig
    from lighteval.tasks.requests import Doc, SamplingMethod

VARIABLE = "RULEWORLD_LIGHTEVAL"


class RuleWorldScores(SampleLevelComputation):
    """The paper's exact match, strict match, and outputs without a box.

    Parameters
    ----------
    options : TaskOptions
        lighteval prints what a metric holds into the key of its cache of outputs: no two settings share theirs.
    """

    def __init__(self, options: TaskOptions) -> None:
        self.options = options

    def compute(self, doc: Doc, model_response: ModelResponse, **kwargs: Any) -> dict[str, float]:
        """Score one output."""
        return output_scores(model_response.final_text[0], doc.specific["answers"])


def read_options() -> TaskOptions:
    """Return the options of the environment.

    Raises
    ------
    ValueError
        If it is no JSON object, or names what lighteval's data, which is scale paper, seed 0, cannot be.
    """
    text = os.environ.get(VARIABLE, "{}")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f'{VARIABLE} is not JSON ({error}), got {text!r}; try {{"pool_size": 1000}}'
        ) from None
    if not isinstance(given, dict):
        raise ValueError(f'{VARIABLE} must be a JSON object such as {{"pool_size": 1000}}, got {text!r}')
    options, loaded = TaskOptions.pick(given, strict=True), TaskOptions()
    for name in ("scale", "world_seed", "data_version", "dials"):
        if (value := getattr(options, name)) != getattr(loaded, name):
            raise ValueError(
                f"lighteval loads scale paper, seed 0 of version {loaded.data_version}; {VARIABLE} asks for "
                f"{name} {value}. Leave it out, or use lm-eval or inspect for other worlds"
            )
    return options


def prompt(line: dict[str, Any], task_name: str) -> Doc:
    """Turn a row of ``load_dataset("ruleworld", subtask)`` into a question with its pool of rules."""
    row = line | ask(line, OPTIONS)
    return Doc(
        task_name=task_name,
        query=row["prompt"],
        choices=[row["target"]],
        gold_index=0,
        specific={name: row[name] for name in ("id", "answers", "rule_ids")},
    )


OPTIONS = read_options()
SCORES = SampleLevelMetricGrouping(
    metric_name=list(METRICS),
    higher_is_better=dict(METRICS),
    category=SamplingMethod.GENERATIVE,
    sample_level_fn=RuleWorldScores(OPTIONS),
    corpus_level_fn=dict.fromkeys(METRICS, mean),
)
TASKS_TABLE = [
    LightevalTaskConfig(
        name=f"ruleworld:{subtask}",
        prompt_function=prompt,
        hf_repo="ruleworld",
        hf_subset=subtask,
        hf_avail_splits=list(splits_of(OPTIONS.data_version)),
        evaluation_splits=[OPTIONS.split],
        few_shots_split=None,
        generation_size=512,
        stop_sequence=[],
        metrics=[SCORES],
        version=1,
    )
    for subtask in SUBTASKS
]
