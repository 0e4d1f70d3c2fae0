"""Bases: a training that is killed goes on as one that was not, and what it writes can be used."""

import json
from dataclasses import replace
from statistics import fmean

import documents
import gates
import loop
import pytest
import torch
from base import new_base
from rwbench.models import model_template
from train import BaseTraining, Phase, Recipe, read_recipe
from transformers import AutoModelForCausalLM

from .conftest import LAB, SHAPE

MIXTURE = documents.Mixture(terse=0.2, recital=0.2, questions=0.2, requests=0.4, beside=2)
QUICK = Recipe((Phase("one", 1, MIXTURE), Phase("two", 2, MIXTURE, rate=(1.0, 0.0))), shape=SHAPE, warmup=2)
QUICK = replace(QUICK, batch_tokens=512, block_tokens=1000, adam_rate=1e-2)


def weights_of(training):
    return {name: weight.detach().float() for name, weight in training.weights.items()}


def test_a_training_that_was_killed_ends_as_one_that_was_not(tmp_path, monkeypatch):
    """And what it writes is a base as transformers loads it."""
    whole, step = BaseTraining(QUICK, tmp_path / "whole"), BaseTraining.step
    whole.run()
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)

    def killed(self):
        if self.at["block"] == 2:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(BaseTraining, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        BaseTraining(QUICK, tmp_path / "parts").run()
    monkeypatch.setattr(BaseTraining, "step", step)
    with pytest.raises(ValueError, match="another recipe"):
        BaseTraining(replace(QUICK, seed=1), tmp_path / "parts").run()
    parts = BaseTraining(QUICK, tmp_path / "parts")
    parts.run()
    assert all(torch.equal(weight, weights_of(whole)[name]) for name, weight in weights_of(parts).items())
    first, *_, last = map(json.loads, (tmp_path / "parts/log.jsonl").open())
    assert fmean(last["loss"].values()) < fmean(first["loss"].values()) and last["hours_left"] == 0
    folder = tmp_path / "whole/model"
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    assert model_template(str(folder)).remove == ("<step>",) and (folder / "training.json").is_file()


def test_a_step_without_a_finite_gradient_is_skipped(tmp_path):
    training = BaseTraining(QUICK, tmp_path)
    with torch.no_grad():
        training.model.model.norm.weight[0] = float("nan")
    before = weights_of(training)["model.layers.0.mlp.up_proj.weight"].clone()
    training.step()
    assert torch.equal(weights_of(training)["model.layers.0.mlp.up_proj.weight"], before)


def test_heads_of_the_first_layer_look_back_and_forms_of_a_word_are_near(tokenizer):
    """Measured on attention weights, at a place far enough from the start."""
    base = new_base(SHAPE | {"hidden_size": 256, "num_hidden_layers": 1}, tokenizer, 0)
    base.set_attn_implementation("eager")
    ids = torch.randint(4, 200, (1, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        (weights,) = base(ids, output_attentions=True).attentions
    for head in range(SHAPE["num_attention_heads"] - 2):
        assert weights[0, head, 25, 24 - head] > 0.8
    assert weights[0, -1, 25].max() < 0.2
    row = base.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids(["▁royal", "Royal", "▁cat"])]
    near, far = (torch.cosine_similarity(row[0], other, dim=0) for other in row[1:])
    assert near > 0.6 and far < 0.3


def test_the_recipe_in_the_repository_can_be_read():
    recipe = read_recipe(LAB.parent / "base/tiny.toml")
    assert len(recipe.blocks) * recipe.block_tokens > 5e6 and recipe.seed != gates.SEED
    with pytest.raises(ValueError, match="colour"):
        Recipe(recipe.phases, recipe.shape, colour=1)
