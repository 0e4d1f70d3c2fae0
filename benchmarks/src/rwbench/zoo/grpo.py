"""Train a small language model by reward alone: GRPO (TRL) on environments of RuleWorld, on one core.

``python -m rwbench.zoo.grpo --out runs/grpo`` writes the held-out reward before, during and after, with
intervals, and the same for supervised training on the golden answers of the same instances. The held-out instances are
of another seed: other worlds, other rules. With ``--search`` the model has to look rules up, in whole episodes, and the
curve has its searches, sampled as well as greedy; supervised training has as many golden episodes as GRPO samples.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ruleworld_data.environments import EnvConfig, instance, read_config
from ruleworld_data.io import write_whole
from ruleworld_data.prompts import Template

from ..models import base_folder, fingerprint, model_template
from ..run.environment import environment
from .grpo_trainers import METHODS, Amount, trainer_of

TRAIN_SEED, TEST_SEED = 1, 2
APART = 64
"""Indexes between instances: a world serves a thousand, and a model would learn the rules of one by heart."""
DEFAULT = {
    "subtasks": ["single_rule"],
    "form": "fol",
    "pool_size": 8,
    "rivals": 1,
    "reward": {"strict": 0.5, "exact": 0.0, "proved": 0.5},
}
SEARCHED = {
    "subtasks": ["multi_hop_2"],
    "access": "tool",
    "pool_size": 50,
    "top_k": 3,
    "max_searches": 6,
    "reward": {"strict": 0.5, "exact": 0.0, "proved": 0.5, "search_cost": 0.1},
}
SAMPLED = {
    "reward": "reward",
    "alike": "frac_reward_zero_std",
    "tokens": "completions/mean_length",
    "cut": "completions/clipped_ratio",
    "entropy": "entropy",
}
"""Of the answers sampled in training: the curve's name -> TRL's. ``alike``: groups in which all earn the same."""
Row = dict[str, Any]


def main(
    out: Annotated[Path, typer.Option("--out", help="Folder for the curve and the models.")],
    model: Annotated[str, typer.Option("--model", help="A model's name, or its folder.")] = "tiny",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimiser steps.")] = 120,
    every: Annotated[int, typer.Option("--every", min=1, help="Steps between evaluations.")] = 30,
    test: Annotated[int, typer.Option("--test", min=10, help="Held-out instances.")] = 300,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Prompts a step.")] = 8,
    group: Annotated[int, typer.Option("--group", min=2, help="Answers sampled for a prompt.")] = 8,
    rate: Annotated[float, typer.Option("--rate", help="Learning rate of GRPO.")] = 1e-4,
    supervised_rate: Annotated[
        float, typer.Option("--supervised-rate", help="Of supervised training.")
    ] = 1e-4,
    tokens: Annotated[int, typer.Option("--tokens", help="Longest answer, with rules found.")] = 48,
    search: Annotated[bool, typer.Option("--search", help="Look rules up.")] = False,
    change: Annotated[list[str] | None, typer.Option("--set", help="Option of the environment.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", help="grpo, supervised; else both.")] = None,
) -> None:
    """Train by reward, and write ``curve.json``."""
    try:
        folder = base_folder(model)
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error)) from None
    methods = dict.fromkeys(method or METHODS)
    if strange := {*methods} - {*METHODS}:
        raise typer.BadParameter(f"--method is {' or '.join(METHODS)}, got {', '.join(sorted(strange))}")
    default = SEARCHED if search else DEFAULT
    settings = [f"{name}={json.dumps(value)}" for name, value in default.items()]
    try:
        config = read_config(None, [*settings, f"seed={TRAIN_SEED}", *(change or [])])
        template = model_template(model)
        if search and (not template.request or config.access != "tool"):
            raise ValueError(
                "--search needs access=tool and a model whose prompt.toml names its request, got access "
                f"{config.access!r} and request {template.request!r}; --model tiny has one"
            )
        train = _rows(config, steps * prompts, template)
        questions = _rows(replace(config, seed=TEST_SEED), test, template)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    out.mkdir(parents=True, exist_ok=True)
    amount = Amount(steps, every, prompts, group, rate, supervised_rate, tokens, TRAIN_SEED)
    if search:
        amount = replace(amount, mark=template.request)
    record = {"environment": config.to_dict(), "held_out_seed": TEST_SEED, "test": test, **asdict(amount)}
    record |= {"model": fingerprint(folder), "template": template.id, "made_on": environment(), "curves": {}}
    for each in methods:
        _train(each, folder, out, train, questions, amount, record)


def _rows(config: EnvConfig, count: int, template: Template) -> list[Row]:
    """Return instances as the model is asked; golden answers have its own marks before each step.

    No prompt stands twice, since an episode is known by its prompt: where rules are looked up, the question alone.
    """
    mark, rows = "".join(template.remove), dict[str, Row]()
    shown = config.access == "prompt"
    for number in itertools.count():
        if len(rows) == count:
            break
        made = instance(config, APART * number, template if shown else None)
        asked = made.metadata["question"]
        prompt = (
            made.prompt if shown else template.render("answer_without_rules", config.form, asked, ()).text
        )
        golden = made.answer.replace("[Step ", f"{mark}[Step ")
        row = {"prompt": prompt, "completion": golden, "metadata": json.dumps(made.metadata)}
        rows.setdefault(prompt, row)
    return list(rows.values())


def _train(
    method: str, model: Path, out: Path, train: list[Row], questions: list[Row], amount: Amount, record: Row
) -> None:
    """Train one model, and write its curve after each evaluation."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed

    from .evaluation import evaluate
    from .golden_episodes import golden_episodes
    from .rollouts import RolloutFunction

    set_seed(TRAIN_SEED)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=False)
    _check_words(model, tokenizer, questions)
    learner = AutoModelForCausalLM.from_pretrained(model, dtype="float32", trust_remote_code=False)
    curve: list[Row] = []
    record["curves"][method] = curve
    evaluating, begun = 0.0, time.process_time()

    def measure(step: int) -> None:
        nonlocal evaluating
        start = time.process_time()
        minutes = {"step": step, "minutes": round((start - begun - evaluating) / 60, 2)}
        curve.append(minutes | evaluate(learner, tokenizer, questions, amount.mark, amount.tokens))
        write_whole(out / "curve.json", json.dumps(record, indent=1) + "\n")
        print(method, json.dumps(curve[-1]), flush=True)
        evaluating += time.process_time() - start

    class Every(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % amount.every == 0 or state.global_step == state.max_steps:
                measure(state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "reward" in logs:
                seen = {name: round(logs[key], 4) for name, key in SAMPLED.items()}
                if roll is not None:
                    seen["searches"] = round(float(np.mean(roll.searches)), 4)
                    roll.searches.clear()
                record["curves"].setdefault("sampled", []).append({"step": state.global_step} | seen)
                print(json.dumps(record["curves"]["sampled"][-1]), flush=True)

    roll = None
    if amount.mark and method == "supervised":
        config, template = EnvConfig.from_dict(record["environment"]), model_template(str(model))
        golden = golden_episodes(config, itertools.count(0, APART), tokenizer, template)
        train = list(itertools.islice(golden, amount.steps * amount.prompts * amount.group))
    elif amount.mark:
        roll = RolloutFunction({row["prompt"]: row["metadata"] for row in train}, amount.mark, amount.tokens)
    measure(0)
    trainer = trainer_of(method, learner, tokenizer, train, out, amount, roll)
    trainer.add_callback(Every())
    trainer.train()
    learner.save_pretrained(out / method)
    tokenizer.save_pretrained(out / method)


def _check_words(model: Path, tokenizer: Any, questions: list[Row]) -> None:
    """Refuse a tokenizer that cannot read the questions, such as one made for other data."""
    for row in questions[:20]:
        if tokenizer.unk_token_id in tokenizer(row["prompt"])["input_ids"]:
            raise typer.BadParameter(
                f"the tokenizer in {model} lacks words of this version's worlds, in {row['prompt'][-80:]!r}; give a "
                "model made for them, such as tiny"
            )


if __name__ == "__main__":
    typer.run(main)
