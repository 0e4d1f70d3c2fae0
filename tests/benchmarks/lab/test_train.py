"""Bases and LoRA: a training that is killed goes on as one that was not, and what it writes can be used."""

import json
from dataclasses import replace

import documents
import gates
import pytest
import torch
import train
from base import new_base
from peft import PeftModel
from rwbench.models import model_template
from rwbench.models.added import add_model
from safetensors.torch import load_file, save_file
from train import Lora, Phase, Recipe, read_recipe
from transformers import AutoModelForCausalLM, AutoTokenizer

from .conftest import LAB, SHAPE

MIXTURE = documents.Mixture(terse=0.2, recital=0.2, questions=0.2, requests=0.2, plain=0.2, beside=2)
QUICK = Recipe((Phase("one", 1, MIXTURE), Phase("two", 2, MIXTURE, rate=(1.0, 0.0))), shape=SHAPE, warmup=2)
QUICK = replace(QUICK, batch_tokens=512, block_tokens=1500, adam_rate=1e-2)


def lora_of(model, **changes):
    return replace(
        QUICK, lora=Lora(**{"model": str(model), "mark": "<step>", "rank": 4, "first_layer": 1} | changes)
    )


def weights_of(training):
    return {name: weight.detach().float() for name, weight in training.weights.items()}


@pytest.mark.parametrize("kind", ["base", "lora"])
def test_a_training_that_was_killed_ends_as_one_that_was_not(kind, model, tmp_path, monkeypatch):
    recipe = QUICK if kind == "base" else lora_of(model)
    whole = train.train(recipe, tmp_path / "whole")
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
    assert kind == "base" or not any(
        ".layers.0." in name for name in whole.weights
    )  # only the upper ones learn


def test_a_base_is_written_as_transformers_loads_it_and_goes_through_its_gates(tmp_path, monkeypatch):
    train.train(QUICK, tmp_path)
    folder = tmp_path / "model"
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.bfloat16
    assert model_template(str(folder)).remove == ("<step>",) and json.loads(
        (folder / "training.json").read_text()
    )
    (tmp_path / "text").write_text("Tea is served at four.")
    monkeypatch.setattr(
        gates, "GATES", {"questions": {"questions": 1.0}, "plain": {"plain": 1.0, "held_out": True}}
    )
    gates.main(str(folder), 2000, tmp_path / "text")
    rows = json.loads((folder / "gates.json").read_text())
    assert {(row["gate"], row.get("form")) for row in rows} == {
        ("questions", "fol"),
        ("questions", "nl"),
        ("plain", "nl"),
        ("perplexity", None),
    }


def test_success_at_a_gate_is_what_greedy_decoding_writes(writer, model, monkeypatch):
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    document = writer.write([documents.Part("tiny cat:"), documents.Part(" hungry", 1.0, "terse")])
    written = base.generate(torch.tensor([document.ids[:-1]]), max_new_tokens=1, do_sample=False)[
        0, -1:
    ].tolist()
    for last, right in ((written, True), (document.ids[:1], False)):
        block = [document._replace(ids=document.ids[:-1] + last)]
        monkeypatch.setattr(gates, "draw_block", lambda *_, block=block: block)
        assert gates.success(base, writer, MIXTURE, 100) == {"terse": [right]}


def test_a_step_without_a_finite_gradient_is_skipped_and_logged(tmp_path):
    training = train.Training(QUICK, tmp_path, "cpu")
    with torch.no_grad():
        training.model.model.norm.weight[0] = float("nan")
    before = weights_of(training)["model.layers.0.mlp.up_proj.weight"].clone()
    entry = training.block(0, documents.draw_block(training.writer, 0, 0, MIXTURE, 800))
    assert entry["skipped"] > 0
    assert torch.equal(weights_of(training)["model.layers.0.mlp.up_proj.weight"], before)


def test_what_was_taught_is_joined_and_goes_on(model, tmp_path):
    """As PEFT opens it, and to the last bit on every CPU; another training begins with it."""
    train.train(lora_of(model), tmp_path)
    folder = tmp_path / "model"
    assert (
        str(tmp_path) not in (folder / "adapter_config.json").read_text()
        and not (folder / "README.md").exists()
    )
    ids = torch.randint(10, 400, (1, 12))
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    before = plain(ids).logits
    taught = PeftModel.from_pretrained(plain, folder).eval()(ids).logits
    assert not torch.allclose(taught, before, atol=1e-2)
    (folder / "mine-nl").mkdir()
    (folder / "mine-nl" / "adapter_config.json").write_text("{}")
    base = add_model(str(folder), "knows-rules") / "base"
    assert (base.parent / "mine-nl" / "adapter_config.json").is_file()  # an adapter that was trained on it
    assert AutoTokenizer.from_pretrained(base).chat_template is None  # it was taught plain text
    # whether it was loaded offline is no part of a model, nor of its fingerprint
    assert not json.loads((base / "tokenizer_config.json").read_text())["local_files_only"]
    joined = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)(ids).logits
    assert torch.allclose(joined, taught, atol=5e-2)

    changes = load_file(folder / "adapter_model.safetensors")
    again = train.Training(lora_of(model, begin=str(folder)), tmp_path, "cpu")
    own = {name.replace(".default", ""): weight for name, weight in weights_of(again).items()}
    assert own.keys() == changes.keys() and all(torch.equal(own[n], w.float()) for n, w in changes.items())

    down, up = (
        next(n for n in sorted(changes) if n.endswith(f"q_proj.{side}.weight"))
        for side in ("lora_A", "lora_B")
    )
    changes[down][:, 0], changes[up][0] = 1.0, 0.0
    changes[up][0, :3] = torch.tensor(
        [2.0**20, 2.0**-7, -(2.0**20)]
    )  # float32 keeps what its order of summing lets it
    save_file(changes, folder / "adapter_model.safetensors", {"format": "pt"})
    name = down.removeprefix("base_model.model.").replace("lora_A.", "")
    weight = load_file(add_model(str(folder), "summed") / "base/model.safetensors")[name][0, 0]
    first = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).state_dict()[name][0, 0]
    assert weight == (first + 2.0**-6).to(torch.bfloat16)  # alpha is twice the rank, so it counts twice

    record = folder / "training.json"
    record.write_text(record.read_text().replace(json.loads(record.read_text())["base"], "0" * 12))
    for use in (
        lambda: add_model(str(folder), "x"),
        lambda: train.open_lora(again.recipe, again.recipe.lora),
    ):
        with pytest.raises(ValueError, match="was taught to a model with fingerprint 000000000000"):
            use()
    # pickled weights are not looked at, nor is a hub asked for those that are not there
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model\.safetensors"):
        add_model(str(folder), "pickled")


def test_a_mark_that_the_model_cannot_tell_from_another(model):
    base, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    rows = base.get_output_embeddings().weight
    with torch.no_grad():
        rows[3] = 1.01 * rows[len(rows) // 2]
    twin = tokenizer.convert_ids_to_tokens(3)
    train.check_mark(rows, "<step>", tokenizer)
    for odd in (twin, "[Step"):
        with pytest.raises(ValueError, match=r"one of .*<step>.*, got"):
            train.check_mark(rows, odd, tokenizer)


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


@pytest.mark.parametrize("name", ["tiny", "smollm2-first", "smollm2"])
def test_the_recipes_in_the_repository_can_be_read(name):
    recipe = read_recipe(LAB.parent / f"base/{name}.toml")
    assert len(recipe.blocks) * recipe.block_tokens > 5e6 and recipe.seed != gates.SEED
    with pytest.raises(ValueError, match="colour"):
        Recipe(recipe.phases, colour=1)
    with pytest.raises(ValueError, match=r"must have a table \[shape\]"):
        train.open_base(Recipe(recipe.phases))
