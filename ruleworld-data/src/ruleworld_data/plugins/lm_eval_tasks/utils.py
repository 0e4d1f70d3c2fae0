"""Functions that the task files name: questions in, scores out."""

from __future__ import annotations

from typing import Any


def questions(subtask: str, **options: Any) -> dict[str, Any]:
    """Return the data of one task; lm-eval passes ``--metadata`` and its model arguments as options."""
    from datasets import Dataset
    from ruleworld_data.plugins.prompts import Setting, prompt_rows

    return {"test": Dataset.from_list(prompt_rows(subtask, Setting.from_options(options)))}


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Score one output."""
    from ruleworld_data.scoring import score_output

    score = score_output(results[0], doc["answers"])
    return {
        "exact_match": score.exact_match,
        "strict_match": score.strict_match,
        "missing_box": float(score.missing_box),
    }
