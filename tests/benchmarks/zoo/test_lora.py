"""A pretrained model that is taught by LoRA: documents as it is asked, what is trained, resuming, joining."""

import json
import random
import re
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from ruleworld_data.questions import training_text
from rwbench.models import fingerprint, model_template
from rwbench.models.added import add_model
from rwbench.zoo.base import data
from rwbench.zoo.base.curriculum import LADDERS
from rwbench.zoo.base.data import DocumentStream
from rwbench.zoo.base.lora import LoraTrainer, TokenizerWriter, check_mark
from rwbench.zoo.base.model import new_base
from rwbench.zoo.base.plain import HELD_OUT, domains, plain_world
from rwbench.zoo.base.recipe import BaseRecipe, Lora, Mixture, Phase, Shape
from rwbench.zoo.base.ship import write_lora
from rwbench.zoo.base.tokenizer import STEP, build_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

ASKED = Mixture(questions=0.7, requests=0.3, asked=1)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return build_tokenizer(vocabulary, 2048)


@pytest.fixture
def pretrained(tmp_path, vocabulary, tokenizer):
    """Random weights stand for a pretrained model's."""
    folder = tmp_path / "pretrained"
    shape = Shape(hidden=32, layers=3, heads=4, kv_heads=2, feed_forward=48, positions=2048)
    new_base(shape, vocabulary, 7).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def recipe(model, **changes):
    values = {"name": "taught", "phases": (Phase("questions", 6000, ASKED),), "context_weight": 0.0}
    values |= {"block_tokens": 1500, "batch_tokens": 512, "adam_rate": 1e-2, "warmup": 2}
    return BaseRecipe(**values | changes, lora=Lora(str(model), STEP, rank=4, first_layer=1))


def test_a_document_is_the_prompt_as_it_is_asked_and_the_answer(tokenizer):
    """Token by token what the tokenizer makes of the whole prompt; the loss is on what the model writes alone."""
    writer = TokenizerWriter(tokenizer, STEP, 0.0)
    template = model_template("tiny")
    rules = ["If A is jealous, A will gain 2 fins.", "If A chases B, B will enter the desert."]
    steps = [{"nl": "The cat is jealous, so it gains 2 fins."}, {"nl": "It has 2."}]
    row = {
        "question": "How many fins does a cat have?",
        "steps": steps,
        "answers": ["2"],
        "subtask": "multi_hop_2",
    }
    document = writer.questions(rules, [row], "nl")
    asked = writer.encode(template.render("answer", "nl", row["question"], rules).text)
    said = writer.encode(training_text(row, "nl", STEP, opening=True))
    assert document.ids == [*asked, *said, tokenizer.eos_token_id]
    assert document.weights == [0.0] * len(asked) + [1.0] * (len(said) + 1)
    block = DocumentStream(writer, 1, 800).block(0, ASKED, {"questions": 2})
    assert all(0 < sum(each.weights) < len(each) for each in block)


def test_only_the_upper_layers_learn_and_a_killed_training_ends_alike(tmp_path, pretrained):
    plan = recipe(pretrained)
    whole = LoraTrainer(plan, None, tmp_path / "whole")
    before = {name: value.clone() for name, value in whole.model.state_dict().items()}
    assert whole.run(report=lambda _: None)
    changed = {n for n, value in whole.model.state_dict().items() if not torch.equal(value, before[n])}
    assert changed and all("lora_" in name and ".layers.0." not in name for name in changed)
    while not LoraTrainer(plan, None, tmp_path / "parts").run(seconds=0, report=lambda _: None):
        pass
    parts = LoraTrainer(plan, None, tmp_path / "parts")
    assert all(
        torch.equal(parts.model.state_dict()[name], whole.model.state_dict()[name]) for name in changed
    )


def test_in_bfloat16_it_learns_as_in_float32(tmp_path, pretrained):
    """What a CPU with instructions for it takes, on any: the loss of each block is about the same."""
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        trainer = LoraTrainer(recipe(pretrained), None, tmp_path / str(dtype))
        trainer.dtype = dtype
        assert trainer.run(report=lambda _: None)
        lines = (trainer.folder / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1][-1] < losses[1][0]


def test_what_was_taught_is_opened_by_peft_and_joined(tmp_path, pretrained, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan, folder = recipe(pretrained), tmp_path / "taught"
    LoraTrainer(plan, None, tmp_path / "run").run(report=lambda _: None)
    assert write_lora(plan, tmp_path / "run", folder)["adapter_model.safetensors"] > 1000
    told = "".join((folder / name).read_text() for name in ("README.md", "adapter_config.json"))
    assert str(tmp_path) not in told and "[More Information Needed]" not in told
    assert '"base_model_name_or_path": "pretrained"' in told and "`pretrained`, which read" in told
    ids = torch.randint(10, 400, (1, 12))
    model = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float32).eval()
    plain = model(ids).logits
    taught = PeftModel.from_pretrained(model, folder).eval()(ids).logits
    assert not torch.allclose(taught, plain, atol=1e-2)
    (folder / "mine-nl").mkdir()
    (folder / "mine-nl" / "adapter_config.json").write_text("{}")
    base = add_model(str(folder), "knows-rules") / "base"
    assert (base.parent / "mine-nl" / "adapter_config.json").is_file()  # an adapter that was trained on it
    # It was taught plain text, and a memory asks it as its tokenizer says.
    assert AutoTokenizer.from_pretrained(base).chat_template is None
    # Whether it was loaded offline is no part of a model, nor of its fingerprint.
    assert not json.loads((base / "tokenizer_config.json").read_text())["local_files_only"]
    joined = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)(ids).logits
    assert torch.allclose(joined, taught, atol=5e-2)
    assert model_template(str(base)).remove == (STEP,)
    other = AutoModelForCausalLM.from_pretrained(pretrained)
    torch.nn.init.normal_(other.model.layers[2].mlp.up_proj.weight)
    other.save_pretrained(pretrained)
    with pytest.raises(ValueError, match="was taught to a model with fingerprint"):
        add_model(str(folder), "another")
    # Pickled weights are not looked at, nor is a hub asked for those that are not there.
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model\.safetensors"):
        add_model(str(folder), "pickled")


def test_a_mark_that_is_no_special_token(tmp_path, pretrained):
    plan = recipe(pretrained)
    odd = BaseRecipe("odd", plan.phases, lora=Lora(str(pretrained), "[Step"))
    with pytest.raises(ValueError, match="mark must be a special token"):
        LoraTrainer(odd, None, tmp_path)


def test_a_mark_that_the_model_cannot_tell_from_another(tmp_path, pretrained):
    model = AutoModelForCausalLM.from_pretrained(pretrained)
    rows = model.get_output_embeddings().weight
    with torch.no_grad():
        rows[3] = 1.01 * rows[model.config.vocab_size // 2]
        rows[4] = 2.0 * rows[model.config.vocab_size // 2]
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    one, other = tokenizer.convert_ids_to_tokens([3, 4])
    tokenizer.add_special_tokens({"additional_special_tokens": [one, other]})
    check_mark(rows, other, tokenizer)
    with pytest.raises(ValueError, match=f"same row for 1 other tokens.*take one of .*{other}"):
        check_mark(rows, one, tokenizer)


def test_a_model_is_joined_to_the_last_bit_on_every_cpu(tmp_path, pretrained, monkeypatch):
    """Of a sum like this one, float32 keeps what the order of summing lets it keep."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float32)
    weight = model.model.layers[-1].self_attn.q_proj.weight
    with torch.no_grad():
        weight[0, 0] = 1.0
    model.save_pretrained(pretrained)
    plan, folder = recipe(pretrained), tmp_path / "taught"
    LoraTrainer(plan, None, tmp_path / "run").run(report=lambda _: None)
    write_lora(plan, tmp_path / "run", folder)
    file = folder / "adapter_model.safetensors"
    changes = load_file(file)
    down, up = (
        next(
            changes[name] for name in sorted(changes, reverse=True) if name.endswith(f"q_proj.{each}.weight")
        )
        for each in ("lora_A", "lora_B")
    )
    down[:, 0], up[0] = 1.0, 0.0
    up[0, :3] = torch.tensor([2.0**20, 2.0**-7, -(2.0**20)])  # alpha is twice the rank, so it counts twice
    save_file(changes, file, {"format": "pt"})
    joined = load_file(add_model(str(folder), "joined") / "base" / "model.safetensors")
    name = f"model.layers.{len(model.model.layers) - 1}.self_attn.q_proj.weight"
    assert joined[name][0, 0] == 1 + 2.0**-6


def test_a_training_goes_on_from_what_another_taught(tmp_path, pretrained):
    """It begins with the folder's weights, and its phase with the levels that it says."""
    first = recipe(pretrained)
    LoraTrainer(first, None, tmp_path / "first").run(report=lambda _: None)
    write_lora(first, tmp_path / "first", tmp_path / "taught")
    phase = Phase("beside", 3000, ASKED, least={"questions": 2})
    second = replace(recipe(pretrained), phases=(phase,))
    second = replace(second, lora=replace(second.lora, begin=str(tmp_path / "taught")))
    trainer = LoraTrainer(second, None, tmp_path / "second")
    written = load_file(tmp_path / "taught" / "adapter_model.safetensors")
    own = {name.replace(".default", ""): value for name, value in trainer._weights().items()}
    assert written.keys() == own.keys() and any(bool(value.any()) for value in written.values())
    assert all(torch.equal(own[name], value.float()) for name, value in written.items())
    assert all(value.dtype == torch.float32 for value in own.values())
    trainer.run(report=lambda _: None)
    lines = (tmp_path / "second" / "log.jsonl").read_text().splitlines()
    assert all(json.loads(line)["levels"]["questions"] >= 2 for line in lines)
    with pytest.raises(ValueError, match=r"has rank 4 in layers .*the recipe has rank 8"):
        LoraTrainer(replace(second, lora=replace(second.lora, rank=8)), None, tmp_path / "third")
    record = tmp_path / "taught" / "training.json"
    record.write_text(record.read_text().replace(fingerprint(pretrained), "0" * 12))
    with pytest.raises(ValueError, match="was taught to a model with fingerprint 000000000000"):
        LoraTrainer(second, None, tmp_path / "third")
    nowhere = replace(second, lora=replace(second.lora, begin="nowhere"))
    with pytest.raises(FileNotFoundError, match=r"begin = 'nowhere': nowhere has no adapter_config\.json"):
        LoraTrainer(nowhere, None, tmp_path / "third")


def test_plain_english_is_taught_from_domains_of_training_alone(monkeypatch):
    """Gold rules are in every document, others beside them as the level says; some documents ask for them."""

    class Seen:
        def __init__(self):
            self.listed, self.asked = [], []

        def questions(self, texts, rows, form):
            self.listed.append((texts, rows[0], form))
            return [0] * 100

        def requests(self, row, steps, form):
            self.asked.append((row, steps))
            return [0] * 100

    drawn = set()

    def world(draw, domain, rules):
        drawn.add(domain.name)
        return plain_world(draw, domain, rules)

    monkeypatch.setattr(data, "plain_world", world)
    writer = Seen()
    mixture = Mixture(questions=0.0, requests=0.3, plain=0.7)
    draw = random.Random(0)
    stream = DocumentStream(writer, 1, 800)
    for _ in range(120):
        stream._plain(draw, mixture, level=3)
    assert len(writer.listed) + len(writer.asked) == 120 and len(writer.asked) > 20
    for texts, row, form in writer.listed:
        assert form == "nl" and row["subtask"] == "plain"
        beside = len(texts) - len(row["gold_rule_ids"])
        assert 0 <= beside <= LADDERS["plain"][3]
        for step in row["steps"]:  # what a step concludes in words, some rule says of the subject
            value = re.findall(r"\d[\d:]*|$", step["nl"].rsplit(", so ", 1)[1])[0]
            assert any(value in text for text in texts)
    assert max(len(texts) for texts, _, _ in writer.listed) >= LADDERS["plain"][3]
    for row, steps in writer.asked:
        assert len(steps) == len(row["steps"])
        for ((request, found),) in steps:
            assert any(text.startswith(f"If {request}, ") for text in found)
    assert not set(HELD_OUT) & drawn and len(drawn) == len(domains()) - len(HELD_OUT)
