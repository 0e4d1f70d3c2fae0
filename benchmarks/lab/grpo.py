"""Train a small model by reward alone: GRPO on an environment of RuleWorld in which it looks rules up.

    python benchmarks/lab/grpo.py --out runs/grpo

A group of episodes is sampled for each prompt, and the tokens of each are made likelier by how much more it earned than
its group. What a model asks for stands in its text as the environment's words, on which there is no loss.
``OUT/curve.json`` has the reward on held-out instances (another seed: other worlds), greedily answered.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from loop import read_checkpoint, write_checkpoint
from ruleworld_data.environments import EnvConfig, Episode, instance, read_config, score
from ruleworld_data.io import write_whole
from ruleworld_data.prompts import Template
from rwbench.models import base_folder, fingerprint, model_template
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor

STEPS, EVERY = 15, 5  # optimizer steps, and those between evaluations
PROMPTS, GROUP = 6, 8  # prompts a step, and episodes sampled for each
RATE, WARMUP = 3e-4, 5  # the learning rate rises for some steps, and falls to zero
TOKENS = 240  # longest episode, with the rules that it finds
TEST, AT_ONCE = 128, 64  # held-out instances, and how many are answered at once
TRAIN_SEED, TEST_SEED = 1, 2
APART = 64  # indexes between instances: a world serves a thousand, and a model would learn the rules of one by heart
SETTINGS = {
    "subtasks": ["multi_hop_2"],
    "access": "tool",
    "pool_size": 50,
    "top_k": 3,
    "max_searches": 6,
    "reward": {"strict": 0.5, "exact": 0.0, "proved": 0.5, "search_cost": 0.1},
}


class Rollout(NamedTuple):
    """What was written in one episode."""

    prompt: list[int]
    ids: list[int]  # all tokens that follow
    own: list[int]  # 1 where the model wrote the token, 0 where the environment did
    reward: float
    searches: int


def instances(config: EnvConfig, count: int, template: Template) -> list[tuple[str, str]]:
    """Return different questions as the model is asked, each with the record that scores its answers."""
    records: dict[str, str] = {}
    numbers = itertools.count(0, APART)
    while len(records) < count:
        record = instance(config, next(numbers)).metadata
        prompt = template.render("answer_without_rules", config.form, record["question"], ()).text
        records.setdefault(prompt, json.dumps(record))
    return list(records.items())


class Lookups(LogitsProcessor):
    """Answers requests while a batch is written: the rules found are forced, token by token, and a blank line.

    One request more than the environment answers ends the episode.
    """

    def __init__(self, tokenizer: Any, episodes: list[Episode], mark: str) -> None:
        self.tokenizer, self.episodes, self.mark = tokenizer, episodes, mark
        self.lines, self.waiting, self.own = ([list[int]() for _ in episodes] for _ in range(3))
        (self.line_end,) = tokenizer("\n", add_special_tokens=False)["input_ids"]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Force what the environment says, shape (rows, vocabulary)."""
        for row, last in enumerate(input_ids[:, -1].tolist()):
            own, line, waiting = self.own[row], self.lines[row], self.waiting[row]
            if own and own[-1]:
                line.append(last)
                if last == self.line_end:
                    waiting += self._answer(self.episodes[row], self.tokenizer.decode(line))
                    line.clear()
            own.append(0 if waiting else 1)
            if waiting:
                scores[row] = float("-inf")
                scores[row, waiting.pop(0)] = 0.0
        return scores

    def _answer(self, episode: Episode, line: str) -> list[int]:
        if not line.startswith(self.mark):
            return []
        if episode.searches >= episode.config.max_searches:
            return [self.tokenizer.eos_token_id]
        rules = episode.search(line.removeprefix(self.mark).strip()) + "\n\n"
        return list(self.tokenizer(rules, add_special_tokens=False)["input_ids"])


@torch.no_grad()
def rollouts(
    model: Any, tokenizer: Any, batch: list[tuple[str, str]], mark: str, sample: bool
) -> list[Rollout]:
    """Let a model answer, drawn at temperature 1 or greedily; ``mark`` begins a line that asks for rules."""
    prompts, episodes = [prompt for prompt, _ in batch], [Episode(record) for _, record in batch]
    encoded = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False).to(
        model.device
    )
    lookups = Lookups(tokenizer, episodes, mark)
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {}
    # a cache that grows is copied at each token: half of the time
    options |= {"do_sample": sample, "max_new_tokens": TOKENS, "cache_implementation": "static"}
    written = model.generate(**encoded, **options, logits_processor=[lookups])
    done, end = [], tokenizer.eos_token_id
    for row, ids in enumerate(written[:, encoded["input_ids"].shape[1] :].tolist()):
        ids = ids[: ids.index(end) + 1] if end in ids else ids
        prompt = encoded["input_ids"][row][encoded["attention_mask"][row] == 1].tolist()
        answer, searches = tokenizer.decode(ids, skip_special_tokens=True), episodes[row].searches
        reward = score(answer, batch[row][1], searches).reward
        done.append(Rollout(prompt, ids, lookups.own[row][: len(ids)], reward, searches))
    return done


def policy_loss(model: Any, done: list[Rollout]) -> Tensor:
    """Return the loss of one step on episodes just sampled, a group for each prompt: no ratio to clip, no reference."""
    rewards = torch.tensor([rollout.reward for rollout in done]).view(-1, GROUP)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    ids_BT = torch.zeros(len(done), max(len(r.prompt) + len(r.ids) for r in done), dtype=torch.long)
    weights_BT = torch.zeros(ids_BT.shape)
    for row, (rollout, advantage) in enumerate(zip(done, advantages, strict=True)):
        start, stop = len(rollout.prompt), len(rollout.prompt) + len(rollout.ids)
        ids_BT[row, :stop] = torch.tensor(rollout.prompt + rollout.ids)
        weights_BT[row, start:stop] = advantage * torch.tensor(rollout.own)
    ids_BT, weights_BT = ids_BT.to(model.device), weights_BT.to(model.device)
    logs_BTV = model(ids_BT).logits[:, :-1].float().log_softmax(-1)
    written_BT = logs_BTV.gather(2, ids_BT[:, 1:, None])[..., 0]
    return -(written_BT * weights_BT[:, 1:]).sum() / sum(sum(rollout.own) for rollout in done)


def summary(done: list[Rollout]) -> dict[str, float]:
    """Return means over episodes, and a 95 % interval of the reward."""
    rewards = np.array([rollout.reward for rollout in done])
    half = 1.96 * rewards.std(ddof=1) / len(rewards) ** 0.5
    row = {"reward": rewards.mean(), "low": rewards.mean() - half, "high": rewards.mean() + half}
    row["searches"] = np.mean([rollout.searches for rollout in done])
    return {name: round(float(value), 4) for name, value in row.items()}


def main(
    out: Annotated[
        Path, typer.Option(help="Folder of curve and model; if it holds a training, that goes on.")
    ],
    model: Annotated[str, typer.Option(help="A model that asks for rules, or its folder.")] = "tiny",
    change: Annotated[list[str] | None, typer.Option("--set", help="Option of the environment.")] = None,
) -> None:
    """Train by reward, and write ``curve.json``; the constants above say how much."""
    folder, template = base_folder(model), model_template(model)
    settings = [f"{name}={json.dumps(value)}" for name, value in SETTINGS.items()]
    config = read_config(None, [*settings, f"seed={TRAIN_SEED}", *(change or [])])
    if not template.request or config.access != "tool":
        raise typer.BadParameter("it needs access=tool and a model whose prompt.toml names its request")
    train = instances(config, STEPS * PROMPTS, template)
    held_out = instances(replace(config, seed=TEST_SEED), TEST, template)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", trust_remote_code=False)
    learner = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    torch.nn.Module.to(learner.eval(), "cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.AdamW(learner.parameters(), weight_decay=0.0)
    amounts = {"steps": STEPS, "prompts": PROMPTS, "group": GROUP, "rate": RATE, "tokens": TOKENS}
    recipe = {"environment": config.to_dict(), "model": fingerprint(folder)} | amounts
    out.mkdir(parents=True, exist_ok=True)
    path, done, weights = out / "state.safetensors", 0, dict(learner.named_parameters())
    curve: list[dict[str, float]] = []
    sampled: list[dict[str, float]] = []
    if path.is_file():
        done, curve, sampled = read_checkpoint(path, weights, [optimizer], recipe)

    def measure(step: int) -> None:
        answered: list[Rollout] = []
        for first in range(0, TEST, AT_ONCE):
            batch = held_out[first : first + AT_ONCE]
            answered += rollouts(learner, tokenizer, batch, template.request, sample=False)
        curve.append({"step": step} | summary(answered))
        print(json.dumps(curve[-1]), flush=True)
        record = recipe | {"curve": curve, "sampled": sampled}
        write_whole(out / "curve.json", json.dumps(record, indent=1) + "\n")
        write_checkpoint(path, weights, [optimizer], recipe, [step, curve, sampled])

    if not curve:
        measure(0)
    for step in range(done, STEPS):
        torch.manual_seed(step)  # a training that goes on draws what one that was not killed draws
        batch = [row for row in train[step * PROMPTS : (step + 1) * PROMPTS] for _ in range(GROUP)]
        episodes = rollouts(learner, tokenizer, batch, template.request, sample=True)
        policy_loss(learner, episodes).backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        for parameters in optimizer.param_groups:
            parameters["lr"] = RATE * min(1.0, (step + 1) / WARMUP) * (1 - step / STEPS)
        optimizer.step()
        optimizer.zero_grad()
        sampled.append({"step": step + 1} | summary(episodes))
        print(json.dumps(sampled[-1]), flush=True)
        if (step + 1) % EVERY == 0 or step + 1 == STEPS:
            measure(step + 1)
    learner.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")


if __name__ == "__main__":
    typer.run(main)
