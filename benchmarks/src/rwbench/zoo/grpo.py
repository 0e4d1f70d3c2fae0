"""Train a small language model by reward alone: GRPO (TRL) on environments of RuleWorld, on two cores.

``python -m rwbench.zoo.grpo --out runs/grpo`` trains the bundled base and writes its held-out reward before, during and
after, with intervals, and the same for supervised training on the golden answers with as many optimiser steps. The
held-out instances are of another seed: other worlds, other rules.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ruleworld_data.environments import EnvConfig, instance, read_config, score
from ruleworld_data.io import write_whole

TRAIN_SEED, TEST_SEED = 1, 2
TINY = Path(__file__).parent / "models" / "tiny" / "base"
DEFAULT = {
    "subtasks": ["multi_hop_2", "multi_hop_3"],
    "pool_size": 24,
    "reward": {"strict": 0.5, "exact": 0.0, "proved": 0.5},
}
Row = dict[str, Any]


def main(
    out: Annotated[Path, typer.Option("--out", help="Folder for the curve and the model.")],
    model: Annotated[Path, typer.Option("--model", help="Folder of a causal language model.")] = TINY,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimiser steps.")] = 150,
    every: Annotated[int, typer.Option("--every", min=1, help="Steps between evaluations.")] = 50,
    test: Annotated[int, typer.Option("--test", min=10, help="Held-out instances.")] = 300,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Prompts a step.")] = 16,
    group: Annotated[int, typer.Option("--group", min=2, help="Answers sampled for a prompt.")] = 8,
    rate: Annotated[float, typer.Option("--rate", help="Learning rate.")] = 2e-5,
    tokens: Annotated[int, typer.Option("--tokens", help="Longest answer.")] = 160,
    change: Annotated[list[str] | None, typer.Option("--set", help="Option of the environment.")] = None,
    supervised: Annotated[bool, typer.Option(help="Also train on golden answers.")] = True,
) -> None:
    """Train by reward, and write ``curve.json``."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    if not (model / "config.json").is_file():
        raise typer.BadParameter(f"no model in {model}; give a folder with config.json")
    settings = [f"{name}={json.dumps(value)}" for name, value in DEFAULT.items()]
    config = read_config(None, [*settings, f"seed={TRAIN_SEED}", *(change or [])])
    train = Dataset.from_list(_rows(config, steps * prompts))
    questions = _rows(replace(config, seed=TEST_SEED), test)
    curves: dict[str, list[Row]] = {}
    start = time.time()
    for method in ("grpo", "supervised") if supervised else ("grpo",):
        set_seed(TRAIN_SEED)
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
        learner = AutoModelForCausalLM.from_pretrained(model, dtype="float32", trust_remote_code=False)
        curve = [_evaluate(learner, tokenizer, questions, tokens, 0)]

        def measure(
            step: int, learner: Any = learner, tokenizer: Any = tokenizer, curve: Any = curve
        ) -> None:
            curve.append(_evaluate(learner, tokenizer, questions, tokens, step))
            print(json.dumps(curve[-1]), flush=True)

        print(method, json.dumps(curve[0]), flush=True)
        trainer = _trainer(method, learner, tokenizer, train, out, steps, prompts, group, rate, tokens)
        trainer.add_callback(_every(every, measure))
        trainer.train()
        curves[method] = curve
        logged = [entry for entry in trainer.state.log_history if "reward" in entry]
        sampled = [{"step": entry["step"], "reward": entry["reward"]} for entry in logged]
        if sampled:
            curves["sampled in training"] = sampled
        learner.save_pretrained(out / method)
        record = {"environment": config.to_dict(), "held_out_seed": TEST_SEED, "test": test, "steps": steps}
        record |= {"prompts": prompts, "group": group, "rate": rate, "hours": (time.time() - start) / 3600}
        write_whole(out / "curve.json", json.dumps(record | {"curves": curves}, indent=1) + "\n")


def _rows(config: EnvConfig, count: int) -> list[Row]:
    """Return instances as the base is asked: the rules one a line, a blank line, and the question."""
    rows = []
    for made in (instance(config, index) for index in range(count)):
        rules = made.prompt.partition("Rules:\n")[2].partition("\n\n")[0]
        prompt = f"{rules}\n\n{made.metadata['question']}\n"
        rows.append({"prompt": prompt, "completion": made.answer, "metadata": json.dumps(made.metadata)})
    return rows


def reward(completions: list[str], metadata: list[str], **_: Any) -> list[float]:
    """Score completions as TRL gives them, beside the column of records."""
    return [score(said, record).reward for said, record in zip(completions, metadata, strict=True)]


def _trainer(
    method: str, learner: Any, tokenizer: Any, train: Any, out: Path, steps: int, prompts: int, group: int, rate: float,
    tokens: int,
) -> Any:  # fmt: skip
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    common: Row = {
        "output_dir": str(out / "trainer"),
        "max_steps": steps,
        "learning_rate": rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 5,
        "logging_steps": 5,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "seed": TRAIN_SEED,
        "disable_tqdm": True,
    }
    if method == "supervised":
        rows = train.select_columns(["prompt", "completion"])
        options = SFTConfig(per_device_train_batch_size=prompts, max_length=None, **common)
        return SFTTrainer(learner, options, train_dataset=rows, processing_class=tokenizer)
    options = GRPOConfig(
        per_device_train_batch_size=prompts * group,
        num_generations=group,
        max_completion_length=tokens,
        temperature=1.0,
        beta=0.0,
        **common,
    )
    return GRPOTrainer(learner, reward, options, train_dataset=train, processing_class=tokenizer)


def _every(steps: int, do: Any) -> Any:
    from transformers import TrainerCallback

    class Every(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % steps == 0 or state.global_step == state.max_steps:
                do(state.global_step)

    return Every()


def _evaluate(learner: Any, tokenizer: Any, questions: list[Row], tokens: int, step: int) -> Row:
    """Answer held-out instances greedily; the 95 % interval is a bootstrap over instances."""
    import torch

    was, rewards, strict = learner.training, [], []
    learner.eval()
    with torch.no_grad():
        for first in range(0, len(questions), 50):
            batch = questions[first : first + 50]
            asked = tokenizer([row["prompt"] for row in batch], return_tensors="pt", padding=True)
            asked.pop("token_type_ids", None)
            done = learner.generate(**asked, max_new_tokens=tokens, do_sample=False)
            texts = tokenizer.batch_decode(done[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
            found = [score(text, row["metadata"]) for text, row in zip(texts, batch, strict=True)]
            rewards += [each.reward for each in found]
            strict += [each.strict for each in found]
    learner.train(was)
    draws = np.random.default_rng(0).integers(len(rewards), size=(2_000, len(rewards)))
    low, high = np.quantile(np.asarray(rewards)[draws].mean(axis=1), [0.025, 0.975])
    mean = float(np.mean(rewards))
    return {
        "step": step,
        "reward": mean,
        "low": float(low),
        "high": float(high),
        "strict": float(np.mean(strict)),
    }


if __name__ == "__main__":
    typer.run(main)
