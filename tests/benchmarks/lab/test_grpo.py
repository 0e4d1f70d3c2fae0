"""Training by reward: what a model asks for stands in its text as the environment's words, and no loss is on them."""

import json
from pathlib import Path

import grpo
import pytest
import torch
from grpo import SETTINGS, Lookups, Rollout, instances, policy_loss
from ruleworld_data.environments import EnvConfig, Episode
from rwbench.models import model_template
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_committed_curve():
    """Reward with its interval, and searches an episode, at every evaluation of both trainings."""
    record = json.loads((ROOT / "benchmarks/results/grpo/curve.json").read_text())
    page = (ROOT / "ruleworld-data/docs/environments.md").read_text()
    for name, title in (("grpo", "GRPO"), ("supervised", "golden episodes")):
        for row in record["curves"][name]:
            reward = f"{row['reward']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
            cells = [
                title if row["step"] else "the model as it is",
                str(row["step"]),
                f"{row['minutes']:.1f}",
                reward,
            ]
            assert f"| {' | '.join([*cells, format(row['searches'], '.1f')])} |" in page, cells


@pytest.mark.parametrize("requests", [1, SETTINGS["max_searches"] + 1])
def test_a_request_is_answered_and_one_too_many_ends_the_episode(requests, tokenizer):
    config, template = EnvConfig(**SETTINGS, seed=5), model_template("tiny")
    ((_, record),) = instances(config, 1, template)
    lookups = Lookups(tokenizer, [Episode(record)], template.request)
    line = tokenizer("[Search] A is completely rude\n", add_special_tokens=False)["input_ids"]
    said, row = line * requests + tokenizer("[Step 1]")["input_ids"], [0]
    while (said or lookups.waiting[0]) and row[-1] != tokenizer.eos_token_id:
        scores = torch.zeros(1, len(tokenizer))
        lookups(torch.tensor([row]), scores)
        row.append(int(scores.argmax()) if torch.isinf(scores).any() else said.pop(0))
    brought = Episode(record).search("A is completely rude") + "\n\n"
    text = tokenizer.decode(row[1:])
    assert text.startswith("[Search] A is completely rude\n" + brought)
    assert lookups.episodes[0].searches == min(requests, SETTINGS["max_searches"])
    assert text.endswith("<end>" if requests > 1 else "[Step 1]")
    assert sum(lookups.own[0]) == len(line) * requests + (requests == 1)


def test_the_loss_raises_what_earned_more_and_leaves_the_environments_words_alone(model, monkeypatch):
    monkeypatch.setattr(grpo, "GROUP", 2)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    done = [Rollout([5, 6], [7, 8, 9], [1, 0, 1], 1.0, 1), Rollout([5, 6], [10, 11], [1, 1], 0.0, 0)]

    def log_of(rollout):
        ids = torch.tensor([rollout.prompt + rollout.ids])
        logs = base(ids).logits[0, 1:-1].log_softmax(-1)[range(len(rollout.ids)), rollout.ids]
        return (logs * torch.tensor(rollout.own)).sum().item()

    before = [log_of(rollout) for rollout in done]
    loss = policy_loss(base, done)
    assert loss.item() == pytest.approx(-(before[0] - before[1]) * 0.5**0.5 / 4, rel=1e-3)
    loss.backward()
    with torch.no_grad():
        for weight in base.parameters():
            weight -= 0.01 * weight.grad
    after = [log_of(rollout) for rollout in done]
    assert after[0] > before[0] and after[1] < before[1]


def test_two_steps_and_what_goes_on_is_what_was_not_killed(tmp_path, monkeypatch):
    """The bundled model, on as little as can be."""
    for name, value in {"STEPS": 2, "EVERY": 1, "TEST": 2, "PROMPTS": 1, "GROUP": 2, "TOKENS": 24}.items():
        monkeypatch.setattr(grpo, name, value)
    grpo.main(tmp_path / "whole")

    real = grpo.policy_loss

    def killed_at_the_second(*args):
        monkeypatch.setattr(grpo, "policy_loss", lambda *_: exit())
        return real(*args)

    monkeypatch.setattr(grpo, "policy_loss", killed_at_the_second)
    with pytest.raises(SystemExit):
        grpo.main(tmp_path / "parts")
    monkeypatch.setattr(grpo, "policy_loss", real)
    grpo.main(tmp_path / "parts")
    curves = [json.loads((tmp_path / name / "curve.json").read_text()) for name in ("whole", "parts")]
    assert curves[0] == curves[1] and [row["step"] for row in curves[0]["curve"]] == [0, 1, 2]
    ours, theirs = (AutoModelForCausalLM.from_pretrained(tmp_path / n / "model") for n in ("whole", "parts"))
    assert all(torch.equal(w, theirs.state_dict()[name]) for name, w in ours.state_dict().items())
