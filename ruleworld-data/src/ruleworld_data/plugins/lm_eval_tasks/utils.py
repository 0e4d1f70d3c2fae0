"""Functions that the task files name: questions in, scores out."""

from typing import Any

from ruleworld_data.plugins import TaskOptions, output_scores, prompt_rows


def questions(subtask: str, **options: Any) -> dict[str, Any]:
    """Return the data of one task; lm-eval passes ``--metadata`` and its model arguments as options."""
    from datasets import Dataset

    return {"test": Dataset.from_list(prompt_rows(subtask, TaskOptions.pick(options)))}


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Score one output."""
    return output_scores(results[0], doc["answers"])
