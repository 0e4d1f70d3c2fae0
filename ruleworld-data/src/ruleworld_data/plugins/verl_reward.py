"""RuleWorld in verl: rows for its parquet files, and the reward function that its configuration points at.

``reward.custom_reward_function.path=$(ruleworld plugin-path verl)``, ``...name=compute_score``.
"""

import json
from collections.abc import Iterable
from typing import Any

from ruleworld_data.environments import EnvConfig, instance, score

DATA_SOURCE = "ruleworld"


def rows(config: EnvConfig, indexes: Iterable[int]) -> list[dict[str, Any]]:
    """Return instances as rows of verl's datasets; ``datasets.Dataset.from_list(...).to_parquet(...)`` writes them."""
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": one.prompt}],
            "ability": one.metadata["subtask"],
            "reward_model": {"style": "rule", "ground_truth": json.dumps(one.metadata)},
            "extra_info": {"index": one.metadata["index"], "id": one.metadata["id"]},
        }
        for one in (instance(config, index) for index in indexes)
    ]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """Return ``score``, which verl trains on, and the parts of the reward, which it logs.

    A ValueError if the ground truth is no record of this version.
    """
    parts = score(solution_str, ground_truth, int((extra_info or {}).get("searches") or 0))._asdict()
    return {"score": parts.pop("reward"), **parts}
