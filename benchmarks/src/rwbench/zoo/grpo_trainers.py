"""The trainers of `rwbench.zoo.grpo`: TRL's, as a small model on one core needs them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.environments import score

if TYPE_CHECKING:
    from .rollouts import RolloutFunction

__all__ = ["METHODS", "Amount", "reward", "trainer_of"]

METHODS = ("grpo", "supervised")


@dataclass(frozen=True)
class Amount:
    """How much is trained on, and how fast; ``mark`` begins a line that asks for rules, "" where all are shown."""

    steps: int
    every: int
    prompts: int
    group: int
    rate: float
    supervised_rate: float
    tokens: int
    seed: int
    mark: str = ""


def reward(
    completions: list[str], metadata: list[str], searches: list[int] | None = None, **_: Any
) -> list[float | None]:
    """Score completions as TRL gives them, beside the column of records and the searches of each rollout."""
    made = searches or [0] * len(metadata)
    rows = zip(completions, metadata, made, strict=True)
    return [score(said, record, asked).reward for said, record, asked in rows]


def trainer_of(
    method: str,
    learner: Any,
    tokenizer: Any,
    train: list[dict[str, Any]],
    out: Path,
    amount: Amount,
    roll: RolloutFunction | None = None,
) -> Any:
    """Return a method's trainer of a model.

    Rows are of prompt, golden completion and metadata; supervised training on searches has golden episodes, as many a
    step as GRPO samples.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    common: dict[str, Any] = {
        "output_dir": str(out / "trainer"),
        "max_steps": amount.steps,
        "lr_scheduler_type": "linear",
        "warmup_steps": 5,
        "logging_steps": 5,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        # Processors without such arithmetic take many times as long.
        "bf16": False,
        # The model is small: memory is there, time is not.
        "gradient_checkpointing": False,
        "seed": amount.seed,
        "disable_tqdm": True,
    }
    rows = Dataset.from_list(train)
    if method == "supervised":
        if "input_ids" not in rows.column_names:
            rows = rows.select_columns(["prompt", "completion"])
        golden = SFTConfig(
            per_device_train_batch_size=amount.prompts * (amount.group if amount.mark else 1),
            completion_only_loss=True,
            learning_rate=amount.supervised_rate,
            max_length=None,
            **common,
        )
        return SFTTrainer(learner, golden, train_dataset=rows, processing_class=tokenizer)
    options = GRPOConfig(
        per_device_train_batch_size=amount.prompts * amount.group,
        learning_rate=amount.rate,
        num_generations=amount.group,
        max_completion_length=amount.tokens,
        temperature=1.0,
        beta=0.0,
        **common,
    )
    return GRPOTrainer(
        learner, reward, options, train_dataset=rows, processing_class=tokenizer, rollout_func=roll
    )
