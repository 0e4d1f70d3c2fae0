"""Adapters come back from disk as they were, and only into the base they were trained for."""

import json

import pytest
import torch
from dynarule.adapter_info import read_adapter_info, weights_hash
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from dynarule import (
    RuleAdapter,
    RuleMemory,
    attach,
    dynarule_config,
    kblam_config,
    load_adapter,
    prepare_search,
    save_adapter,
)

WIDTH = 20
IDS = torch.tensor([[11, 12, 13, 14], [21, 22, 23, 24]])


def trained(model, **config):
    """An adapter with every weight moved away from where it starts."""
    torch.manual_seed(5)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5, **config))
    generator = torch.Generator().manual_seed(7)
    for parameter in adapter.parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator).to(parameter) * 0.1
    adapter.encoder = "tiny@1"
    return adapter


@torch.no_grad()
def logits(model, adapter, bank):
    with attach(model, RuleMemory(adapter, bank)):
        return model(IDS).logits


def weights_file(folder):
    (path,) = folder.glob("*.safetensors")
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_a_loaded_adapter_gives_the_same_logits(
    family, tied, dtype, bank, tiny_model, tiny_tokenizer, tmp_path
):
    model, tokenizer = tiny_model(family, dtype, tie_word_embeddings=tied), tiny_tokenizer()
    row = prepare_search(model, tokenizer).id
    model.get_input_embeddings().weight[row] += 1
    model.lm_head.weight[row] += 2
    adapter = trained(model)
    bank = bank.to("cpu", dtype)
    before = logits(model, adapter, bank)
    saved = save_adapter(
        tmp_path / "a", adapter, model, search_token="<search>", tokenizer=tokenizer, curve={"mean": [1.0]}
    )
    fresh = tiny_model(family, dtype, tie_word_embeddings=tied)
    loaded = load_adapter(fresh, tmp_path / "a", AutoTokenizer.from_pretrained(tmp_path / "a"))
    assert torch.equal(logits(fresh, loaded, bank), before)
    assert torch.equal(fresh.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert torch.equal(fresh.lm_head.weight, model.lm_head.weight)
    assert loaded.config == adapter.config
    assert loaded.encoder == "tiny@1"
    assert read_adapter_info(tmp_path / "a") == saved
    values = json.loads((tmp_path / "a" / "adapter.json").read_text())
    assert values["layer_convention"] == "0-based"
    assert values["memory"]["confidence_layer"] == 2
    assert values["search"] == {"token": "<search>", "id": 90}
    assert values["curve"] == {"mean": [1.0]}


def test_without_a_token_no_row_is_saved_or_touched(bank, tiny_model, tmp_path):
    model = tiny_model("qwen2")
    save_adapter(tmp_path, RuleAdapter(model, kblam_config(WIDTH)), model)
    assert all(name.startswith("layers.") for name in load_file(weights_file(tmp_path)))
    fresh = tiny_model("qwen2")
    loaded = load_adapter(fresh, tmp_path)
    assert sorted(loaded.layers) == ["0", "3"]
    assert torch.equal(fresh.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_a_grown_vocabulary_is_asked_for(tiny_model, tiny_tokenizer, tmp_path):
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer(97)
    prepare_search(model, tokenizer)
    save_adapter(tmp_path, trained(model), model, search_token="<search>", tokenizer=tokenizer)
    fresh = tiny_model("qwen2")
    with pytest.raises(ValueError, match=r"vocabulary 98, this one has 97; call dynarule\.prepare_search"):
        load_adapter(fresh, tmp_path)
    prepare_search(fresh, AutoTokenizer.from_pretrained(tmp_path))
    load_adapter(fresh, tmp_path)
    assert torch.equal(fresh.get_input_embeddings().weight, model.get_input_embeddings().weight)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {}, "model_type qwen2, this one has llama"),
        ("qwen2", {"num_hidden_layers": 3}, "num_layers 4, this one has 3"),
        ("qwen2", {"hidden_size": 64}, "hidden_size 48, this one has 64"),
        ("qwen2", {"head_dim": 8}, "query_size 48, this one has 32"),
        ("qwen2", {"vocab_size": 120}, "vocabulary 97, this one has 120; load the base model"),
        ("qwen2", {"tie_word_embeddings": True}, "tied"),
    ],
)
def test_another_base_is_refused(family, changes, message, tiny_model, tiny_tokenizer, tmp_path):
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer()
    prepare_search(model, tokenizer)
    save_adapter(tmp_path, trained(model), model, search_token="<search>", tokenizer=tokenizer)
    other = tiny_model(family, **changes)
    before = other.get_input_embeddings().weight.clone()
    with pytest.raises(ValueError, match=message):
        load_adapter(other, tmp_path)
    assert torch.equal(other.get_input_embeddings().weight, before)


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_a_base_of_the_same_shape_with_other_weights_is_refused(name, tiny_model, tmp_path):
    model, other = tiny_model("qwen2"), tiny_model("qwen2")
    save_adapter(tmp_path, trained(model), model)
    getattr(other.model.layers[3].self_attn, name).weight[:, 0] *= 1.02  # a fine-tune, of one layer
    with pytest.raises(ValueError, match=r"has the same shape but weights .* load the base model that the"):
        load_adapter(other, tmp_path)
    load_adapter(tiny_model("qwen2"), tmp_path)
    path = tmp_path / "adapter.json"
    old = json.loads(path.read_text())
    assert len(old["base"].pop("weights_hash")) == 16
    path.write_text(json.dumps(old))
    load_adapter(other, tmp_path)  # saved before there was a hash: its shape is all that is known


@pytest.mark.parametrize("wrote", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("read", [torch.float32, torch.bfloat16, torch.float16])
def test_a_base_in_another_dtype_is_the_same_base(wrote, read, family, tiny_model, tmp_path):
    model = tiny_model(family, wrote)
    save_adapter(tmp_path, trained(model), model)
    assert read_adapter_info(tmp_path).base.weights_hash
    load_adapter(tiny_model(family, wrote).to(read), tmp_path)


def test_a_base_that_cannot_be_hashed_is_not(tiny_model):
    """Quantised, offloaded or sharded: no hash, so nothing is compared; LoRA beside the weights changes none."""
    model = tiny_model("qwen2")
    plain = weights_hash(model)
    block = model.model.layers[2].self_attn
    for weight in (
        torch.zeros(9, 1, dtype=torch.uint8),
        torch.empty(48, 48, device="meta"),
        torch.zeros(0),
        torch.zeros(48, 48).half(),
    ):
        kept, block.o_proj.weight = block.o_proj.weight, torch.nn.Parameter(weight, requires_grad=False)
        assert weights_hash(model) == ""
        block.o_proj.weight = kept
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    assert weights_hash(peft.get_peft_model(model, lora)) == plain != ""


def test_a_tokenizer_with_the_token_elsewhere_is_refused(tiny_model, tiny_tokenizer, tmp_path):
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer()
    prepare_search(model, tokenizer)
    save_adapter(tmp_path, trained(model), model, search_token="<search>", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="at id 80, the adapter was trained with id 90"):
        load_adapter(model, tmp_path, tiny_tokenizer(80, search=True))
    with pytest.raises(ValueError, match="has no token '<search>'"):
        load_adapter(model, tmp_path, tiny_tokenizer())


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_said_to_be(keep, tiny_model, tmp_path):
    model = tiny_model("qwen2")
    save_adapter(tmp_path, trained(model), model)
    path = weights_file(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="truncated"):
        load_adapter(model, tmp_path)


def test_unknown_missing_and_misshapen_tensors_are_named(tiny_model, tmp_path):
    model = tiny_model("qwen2")
    save_adapter(tmp_path, trained(model), model)
    path = weights_file(tmp_path)
    good = load_file(path)
    name = "layers.1.k.weight"
    for changed, said in (
        (good | {"extra": torch.zeros(1)}, "extra"),
        (good | {"layers.9.k.weight": good[name].clone()}, "9.k.weight"),
        ({n: t for n, t in good.items() if n != name}, "1.k.weight"),
        (good | {name: good[name].T.contiguous()}, "1.k.weight"),
        (good | {"search.input": torch.zeros(48)}, "search rows"),
    ):
        save_file(changed, path)
        with pytest.raises(ValueError, match=said):
            load_adapter(model, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2, this version reads 1"),
        ({"layer_convention": "1-based"}, "0-based"),
        ({"colour": "red"}, r"unknown keys \['colour'\]"),
        ({"memory": {"encoder_dim": 20, "depth": 3}}, r"unknown configuration keys \['depth'\]"),
        ({"base": {"name": "x"}}, "damaged"),
        ({"weights": "../adapter.safetensors"}, "of this folder"),
    ],
)
def test_a_wrong_json_is_refused(change, message, tiny_model, tmp_path):
    model = tiny_model("qwen2")
    save_adapter(tmp_path, trained(model), model)
    path = tmp_path / "adapter.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        load_adapter(model, tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        read_adapter_info(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="not an adapter folder"):
        read_adapter_info(tmp_path)


def test_an_interrupted_save_leaves_the_old_adapter(bank, tiny_model, tmp_path, monkeypatch):
    model = tiny_model("qwen2")
    old = trained(model)
    save_adapter(tmp_path, old, model)
    before = logits(model, old, bank)
    new = trained(model)
    new[0].k.weight.data += 1

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("json.dumps", killed)  # after the weights, before adapter.json
        save_adapter(tmp_path, new, model)
    assert torch.equal(logits(model, load_adapter(model, tmp_path), bank), before)
    save_adapter(tmp_path, new, model)
    assert torch.equal(logits(model, load_adapter(model, tmp_path), bank), logits(model, new, bank))
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_same_adapter_same_bytes_and_no_pickle(tiny_model, tmp_path):
    model = tiny_model("qwen2")
    for name in ("a", "b"):
        save_adapter(tmp_path / name, trained(model), model)
    files = [{p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("a", "b")]
    assert files[0] == files[1]
    assert sorted(name.split(".")[-1] for name in files[0]) == ["json", "safetensors"]
