"""The PEFT method: the same projections as the plain path, saved, reloaded, switched and switched off."""

import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from dynarule import (
    RuleAdapter,
    RuleMemory,
    attach,
    dynarule_config,
    generate,
    kblam_config,
    load_adapter,
    save_adapter,
)

pytest.importorskip("peft")
from dynarule.peft_method import NAME, DynaRuleConfig, DynaRuleLayer, register, rule_adapter
from peft import AutoPeftModelForCausalLM, PeftConfig, PeftModel, get_peft_model

WIDTH, SEARCH = 20, 7
IDS = torch.tensor([[11, 12, 13, SEARCH, 14], [21, 22, 23, 24, 25]])
QUESTION = torch.arange(5)[None].expand(2, 5) < 3
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")


@pytest.fixture
def base(family, tiny_model, tmp_path):
    """Makes the same base model again and again, from a folder."""
    tiny_model(family).save_pretrained(tmp_path / "base")
    return lambda **kwargs: AutoModelForCausalLM.from_pretrained(tmp_path / "base", **kwargs)


def config(tied=False, **changes):
    rows = [SEARCH] if tied else {"embed_tokens": [SEARCH], "lm_head": [SEARCH]}
    memory = dynarule_config(WIDTH, confidence_layer=2, top_k=5)
    return DynaRuleConfig.of(memory, trainable_token_indices=rows, encoder="tiny@1", **changes)


def read(model, bank, adapter=None):
    memory = RuleMemory(adapter or rule_adapter(model), bank, SEARCH)
    memory.question_mask_BT = QUESTION
    with attach(model, memory):
        return model(IDS).logits


def train(model, bank, steps=2):
    """A few steps that move every adapter weight and the row of <search>."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    for _ in range(steps):
        logits = read(model, bank)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        optimizer.step()


def test_it_is_the_plain_adapter(base, bank):
    torch.manual_seed(3)
    plain_model = base()
    plain = RuleAdapter(plain_model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    torch.manual_seed(3)
    tuned = get_peft_model(base(), DynaRuleConfig.of(plain.config))
    view = rule_adapter(tuned)
    assert view.config == plain.config
    assert {n: p.shape for n, p in view.layers.named_parameters()} == {
        n: p.shape for n, p in plain.layers.named_parameters()
    }
    view.layers.load_state_dict(plain.layers.state_dict())
    with torch.no_grad():
        assert torch.equal(read(tuned, bank), read(plain_model, bank, plain))


@pytest.mark.parametrize("tied", [True, False])
def test_training_changes_the_adapter_and_one_row(family, tied, bank, tiny_model):
    model = tiny_model(family, tie_word_embeddings=tied)
    before = {name: p.clone() for name, p in model.named_parameters()}
    tuned = get_peft_model(model, config(tied))
    projections = {n: p.clone() for n, p in tuned.named_parameters() if "dynarule_" in n}
    train(tuned, bank)
    for name, p in tuned.named_parameters():
        if name in projections:
            assert not torch.equal(p, projections[name]), name
    matrices = [(tuned.get_input_embeddings(), before["model.embed_tokens.weight"])]
    if not tied:
        matrices.append((tuned.get_output_embeddings(), before["lm_head.weight"]))
    for matrix, old in matrices:
        assert torch.equal(matrix.token_adapter.base_layer.weight, old)  # the matrix itself is frozen
        delta = matrix.token_adapter.trainable_tokens_delta["default"]
        assert delta.shape == (1, old.shape[1])
        assert not torch.equal(delta[0], old[SEARCH])
    frozen = {n for n, p in tuned.named_parameters() if not p.requires_grad}
    assert not any("dynarule_" in n for n in frozen)
    assert any("mlp" in n for n in frozen)


def test_it_comes_back_from_disk(base, bank, tmp_path):
    tuned = get_peft_model(base(), config())
    train(tuned, bank)
    with torch.no_grad():
        before = read(tuned, bank)
    tuned.save_pretrained(tmp_path / "adapter")
    files = {p.suffix for p in (tmp_path / "adapter").iterdir()}
    assert files == {".safetensors", ".json", ".md"}
    found = PeftConfig.from_pretrained(str(tmp_path / "adapter"))
    assert isinstance(found, DynaRuleConfig)
    assert found.memory == tuned.peft_config["default"].memory
    reloaded = PeftModel.from_pretrained(base(), tmp_path / "adapter", adapter_name="mine")
    automatic = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"))
    with torch.no_grad():
        for model in (reloaded, automatic):
            assert torch.equal(read(model, bank), before)
            assert rule_adapter(model).encoder == "tiny@1"
            assert not any(p.requires_grad for p in model.parameters())
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter", is_trainable=True)
    assert any("dynarule_" in n for n, p in again.named_parameters() if p.requires_grad)


@torch.no_grad()
def test_late_layers_that_share_what_was_kept_come_back_from_disk(base, bank, tmp_path):
    memory = dynarule_config(WIDTH, confidence_layer=2, first_layer=1, shared_after=True, top_k=5)
    tuned = get_peft_model(base(), DynaRuleConfig.of(memory, encoder="tiny@1"))
    assert sum(isinstance(m, DynaRuleLayer) for m in tuned.modules()) == 3
    tuned.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter")
    assert again.peft_config["default"].memory == memory
    assert torch.equal(read(again, bank), read(tuned, bank))
    plain = RuleAdapter(base(), memory)
    plain.layers.load_state_dict(rule_adapter(tuned).layers.state_dict())
    assert torch.equal(read(tuned, bank), read(base(), bank, plain))


@torch.no_grad()
def test_switched_off_it_is_the_base_bit_for_bit(base, bank):
    plain = base()
    expected = plain(IDS).logits
    tuned = get_peft_model(base(), config())
    for projection in rule_adapter(tuned).layers.parameters():
        projection += 0.1
    tuned.get_input_embeddings().token_adapter.trainable_tokens_delta["default"] += 1
    assert not torch.equal(read(tuned, bank), expected)
    with tuned.disable_adapter():
        assert torch.equal(tuned(IDS).logits, expected)
        assert torch.equal(read(tuned, bank), expected)  # rules attached or not
    assert not torch.equal(read(tuned, bank), expected)
    unloaded = tuned.unload()
    assert torch.equal(unloaded(IDS).logits, expected)
    assert not any(isinstance(m, DynaRuleLayer) for m in unloaded.modules())


@torch.no_grad()
def test_several_adapters_are_switched(base, bank, tmp_path):
    tuned = get_peft_model(base(), config())
    first = read(tuned, bank)
    rows = {"embed_tokens": [SEARCH], "lm_head": [SEARCH]}
    tuned.add_adapter("third", DynaRuleConfig.of(kblam_config(WIDTH), trainable_token_indices=rows))
    assert torch.equal(read(tuned, bank), first)
    stale = rule_adapter(tuned)
    tuned.set_adapter("third")
    view = rule_adapter(tuned)
    assert (view.name, sorted(view.layers), view.config.top_k) == ("third", ["0", "3"], None)
    third = read(tuned, bank)
    assert not torch.equal(third, first)
    with pytest.raises(ValueError, match="changed from 'default' to 'third'"):
        read(tuned, bank, stale)
    tuned.save_pretrained(tmp_path / "both")
    other = PeftModel.from_pretrained(base(), tmp_path / "both" / "third", adapter_name="x")
    assert torch.equal(read(other, bank), third)
    tuned.set_adapter("default")
    assert torch.equal(read(tuned, bank), first)
    tuned.delete_adapter("third")
    assert torch.equal(read(tuned, bank), first)


@torch.no_grad()
def test_it_generates_and_saves_as_a_plain_adapter(bank, tiny_model, tiny_tokenizer, tmp_path):
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer(search=True)
    tuned = get_peft_model(model, DynaRuleConfig.of(dynarule_config(WIDTH, confidence_layer=1, top_k=3)))
    view = rule_adapter(tuned)
    (answer,) = generate(tuned, tokenizer, (view, bank), ["w11 w12"], max_new_tokens=4)
    assert answer.trace[0].layer == 1
    save_adapter(tmp_path, view, tuned)
    plain = tiny_model("qwen2")
    loaded = load_adapter(plain, tmp_path)
    (same,) = generate(plain, tokenizer, (loaded, bank), ["w11 w12"], max_new_tokens=4)
    assert same.token_ids == answer.token_ids


@torch.no_grad()
def test_it_stays_in_the_dtype_of_the_base(tiny_model, bank):
    tuned = get_peft_model(tiny_model("qwen3", torch.bfloat16), config())
    assert rule_adapter(tuned)[0].k.weight.dtype == torch.bfloat16
    assert read(tuned, bank.to("cpu", torch.bfloat16)).dtype == torch.bfloat16


def test_wrong_settings_and_bases_are_refused(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="encoder_dim must be a positive integer, got 0"):
        DynaRuleConfig()
    with pytest.raises(ValueError, match="confidence_layer 9 is not among the model's layers 0 to 3"):
        get_peft_model(tiny_model("llama"), DynaRuleConfig.of(dynarule_config(WIDTH, confidence_layer=9)))
    with pytest.raises(ValueError, match="has no DynaRule adapter"):
        rule_adapter(tiny_model("llama"))
    with pytest.raises(ValueError, match="has no q_proj"):
        get_peft_model(tiny_model("llama"), DynaRuleConfig.of(kblam_config(WIDTH), target_modules=["mlp"]))
    late = DynaRuleConfig.of(dynarule_config(WIDTH, first_layer=2), layers_to_transform=[0, 1])
    with pytest.raises(ValueError, match=r"\[0, 1\] does not follow from first_layer=2, every=1 on 4 layers"):
        get_peft_model(tiny_model("llama"), late)
    get_peft_model(tiny_model("llama"), config()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="another base model"):
        PeftModel.from_pretrained(tiny_model("llama", num_hidden_layers=3), tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch"):
        PeftModel.from_pretrained(tiny_model("llama", hidden_size=64), tmp_path)


def test_registering_twice_changes_nothing():
    from peft import PeftType

    register()
    assert [t for t in PeftType if t.value == NAME] == [PeftType(NAME)]


def test_the_plain_path_never_imports_peft():
    code = (
        "import sys, dynarule, dynarule.adapter_io, dynarule.generation, dynarule.memory.confidence\n"
        "assert 'peft' not in sys.modules and 'dynarule.peft_method' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
