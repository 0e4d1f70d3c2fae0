"""Bases: a training that is killed goes on as one that was not, and what it writes can be used."""

import json
from dataclasses import replace

import documents
import gates
import pytest
import torch
import train
from base import new_base
from rwbench.models import model_template
from train import Phase, Recipe, read_recipe
from transformers import AutoModelForCausalLM

from .conftest import LAB, SHAPE

MIXTURE = documents.Mixture(terse=0.2, recital=0.2, questions=0.2, requests=0.4, beside=2)
QUICK = Recipe((Phase("one", 1, MIXTURE), Phase("two", 2, MIXTURE, rate=(1.0, 0.0))), shape=SHAPE, warmup=2)
QUICK = replace(QUICK, batch_tokens=512, block_tokens=1500, adam_rate=1e-2)


def weights_of(training):
    return {name: weight.detach().float() for name, weight in training.weights.items()}


def test_a_training_that_was_killed_ends_as_one_that_was_not(tmp_path, monkeypatch):
    recipe, whole = QUICK, train.train(QUICK, tmp_path / "whole")
    block, out = train.Training.block, tmp_path / "parts"
    monkeypatch.setattr(train, "SAVE_SECONDS", 0.0)
    for killed_at in (1, 2):

        def killed(self, number, made, killed_at=killed_at):
            if number == killed_at:
                raise KeyboardInterrupt
            return block(self, number, made)

        monkeypatch.setattr(train.Training, "block", killed)
        with pytest.raises(KeyboardInterrupt):
            train.train(recipe, out)
        with (out / "log.jsonl").open("a") as log:
            log.write('{"block": 9, "lost": true}\n{"bl')  # trained, and killed before it was saved
    monkeypatch.setattr(train.Training, "block", block)
    with pytest.raises(ValueError, match="another recipe"):
        train.train(replace(recipe, seed=1), out)
    parts = train.train(recipe, out, processes=1)
    assert all(torch.equal(weight, weights_of(whole)[name]) for name, weight in weights_of(parts).items())
    logs = [[json.loads(line) for line in (tmp_path / f / "log.jsonl").open()] for f in ("whole", "parts")]
    assert [[entry["loss"] for entry in log] for log in logs] == 2 * [[entry["loss"] for entry in logs[0]]]
    assert logs[0][-1]["loss"] < logs[0][0]["loss"] and [entry["block"] for entry in logs[1]] == [1, 2, 3]


def test_a_base_is_written_as_transformers_loads_it(tmp_path):
    train.train(QUICK, tmp_path)
    folder = tmp_path / "model"
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    assert model_template(str(folder)).remove == ("<step>",) and json.loads(
        (folder / "training.json").read_text()
    )


def test_a_step_without_a_finite_gradient_is_skipped_and_logged(tmp_path):
    training = train.Training(QUICK, tmp_path, "cpu")
    with torch.no_grad():
        training.model.model.norm.weight[0] = float("nan")
    before = weights_of(training)["model.layers.0.mlp.up_proj.weight"].clone()
    entry = training.block(0, documents.draw_block(training.writer, 0, 0, MIXTURE, 800))
    assert entry["skipped"] > 0
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
