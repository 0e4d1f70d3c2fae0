"""An adapter is a PEFT adapter: trained, saved, reloaded, switched, switched off, and refused where it does not fit."""

import copy
import json
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from dynarule.adapter import DynaRuleLayer
from dynarule.base_model import BaseModel, weights_hash
from dynarule.training.recipe import Recipe
from dynarule.training.rule_model import RuleModel
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig, TextIteratorStreamer, pipeline

from dynarule import (
    DynaRuleConfig,
    RuleAdapter,
    RuleMemory,
    attach,
    dynarule_config,
    generate,
    kblam_config,
    load_adapter,
)

from .conftest import WIDTH, random_bank

SEARCH = 7
IDS = torch.tensor([[11, 12, 13, SEARCH, 14], [21, 22, 23, 24, 25]])
QUESTION = torch.arange(5)[None].expand(2, 5) < 3
UNTIED = {"embed_tokens": [SEARCH], "lm_head": [SEARCH]}
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")


@pytest.fixture(params=["qwen2", "qwen3"])
def base(request, tiny_model, tmp_path):
    """Makes the same base model again and again, from a folder."""
    tiny_model(request.param).save_pretrained(tmp_path / "base")
    return lambda **kwargs: AutoModelForCausalLM.from_pretrained(tmp_path / "base", **kwargs)


def config(rows=UNTIED, **changes):
    settings = {"confidence_layer": 2, "top_k": 5, "encoder": "tiny@1"} | changes
    return dynarule_config(WIDTH, trainable_token_indices=rows, **settings)


def read(model, bank, adapter=None):
    memory = RuleMemory(adapter or model, bank, SEARCH)
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


def moved(model, **changes):
    """An adapter with every weight moved away from where it starts."""
    tuned = get_peft_model(model, config(**changes))
    generator = torch.Generator().manual_seed(7)
    for parameter in RuleAdapter(tuned).parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator).to(parameter) * 0.1
    return tuned


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_rows_that_attach_puts_in_place_leave_again(tied, bank, tiny_model):
    """Within `attach` they stand in the matrix, or each forward would copy all of it; after it, and off, the base's."""
    model = tiny_model("qwen2", tie_word_embeddings=tied)
    tuned = get_peft_model(model, config([SEARCH] if tied else UNTIED))
    for name, row in tuned.named_parameters():
        if "tokens_delta" in name:
            row += 0.5
    matrix = tuned.get_input_embeddings().token_adapter.base_layer.weight
    before, beside = matrix.clone(), tuned(IDS).logits
    memory = RuleMemory(tuned, bank, SEARCH)
    with attach(tuned, memory):
        assert torch.equal(matrix[SEARCH], before[SEARCH] + 0.5)
        with tuned.disable_adapter():
            tuned(IDS)
        assert torch.equal(matrix, before)
    assert torch.equal(matrix, before) and torch.equal(tuned(IDS).logits, beside)
    with torch.enable_grad(), attach(tuned, memory):
        assert torch.equal(matrix, before)  # what is trained gets its gradient


def test_it_comes_back_from_disk(base, bank, tmp_path):
    tuned = get_peft_model(base(), config())
    train(tuned, bank)
    with torch.no_grad():
        before = read(tuned, bank)
    tuned.save_pretrained(tmp_path / "adapter")
    found = PeftConfig.from_pretrained(str(tmp_path / "adapter"))
    assert isinstance(found, DynaRuleConfig)
    saved = tuned.peft_config["default"].to_dict() | {"inference_mode": True}
    assert found.to_dict() == saved
    values = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (values["layer_convention"], values["confidence_layer"]) == ("0-based", 2)
    reloaded = PeftModel.from_pretrained(base(), tmp_path / "adapter", adapter_name="mine")
    automatic = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"))
    with torch.no_grad():
        for model in (reloaded, automatic):
            assert torch.equal(read(model, bank), before)
            assert model.active_peft_config.encoder == "tiny@1"
            assert not any(p.requires_grad for p in model.parameters())
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter", is_trainable=True)
    assert any("dynarule_" in n for n, p in again.named_parameters() if p.requires_grad)
    into = RuleAdapter(base(), dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    into.load(tmp_path / "adapter")
    with torch.no_grad():
        assert torch.equal(read(into.model, bank), before)


@torch.no_grad()
def test_switched_off_it_is_the_base_bit_for_bit(base, bank):
    plain = base()
    expected = plain(IDS).logits
    tuned = moved(base())
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
    tuned.add_adapter("third", kblam_config(WIDTH, trainable_token_indices=UNTIED))
    assert torch.equal(read(tuned, bank), first)
    stale = RuleAdapter(tuned)
    tuned.set_adapter("third")
    view = RuleAdapter(tuned)
    assert (view.name, sorted(view.layers), view.config.top_k) == ("third", ["0", "3"], None)
    third = read(tuned, bank)
    assert not torch.equal(third, first)
    with pytest.raises(ValueError, match="changed from 'default' to 'third'"):
        read(tuned, bank, stale)
    view.save(tmp_path / "third")
    other = PeftModel.from_pretrained(base(), tmp_path / "third", adapter_name="x")
    assert torch.equal(read(other, bank), third)
    tuned.set_adapter("default")
    assert torch.equal(read(tuned, bank), first)
    tuned.delete_adapter("third")
    assert torch.equal(read(tuned, bank), first)


# An adapter fits the base it was trained for, and no other.


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {}, "model_type qwen2, this one has llama"),
        ("qwen2", {"num_hidden_layers": 3}, "num_layers 4, this one has 3"),
        ("qwen2", {"head_dim": 8}, "query_size 48, this one has 32"),
        ("qwen2", {"tie_word_embeddings": True}, "tied False, this one has True"),
    ],
)
def test_another_base_is_refused(family, changes, message, tiny_model, tmp_path):
    moved(tiny_model("qwen2")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        PeftModel.from_pretrained(tiny_model(family, **changes), tmp_path)


def test_a_base_is_known_by_its_weights_in_any_dtype(tiny_model, tmp_path):
    moved(tiny_model("qwen2")).save_pretrained(tmp_path)
    for dtype in (torch.bfloat16, torch.float16):
        PeftModel.from_pretrained(tiny_model("qwen2", dtype), tmp_path)

    def other(name="o_proj"):
        model = tiny_model("qwen2")
        getattr(model.model.layers[3].self_attn, name).weight[:, 0] *= 1.02  # a fine-tune, of one layer
        return model

    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        with pytest.raises(
            ValueError, match=r"has the same shape but weights .* load the base model that the"
        ):
            PeftModel.from_pretrained(other(name), tmp_path)
    with pytest.raises(ValueError, match="has the same shape but weights"):
        RuleAdapter(other(), dynarule_config(WIDTH, confidence_layer=2)).load(tmp_path)
    path = tmp_path / "adapter_config.json"
    old = json.loads(path.read_text())
    assert len(old["base"].pop("weights_hash")) == 16
    path.write_text(json.dumps(old))
    PeftModel.from_pretrained(other(), tmp_path)  # converted without a hash: its shape is all that is known


SETTINGS = {
    "encoder": ({"encoder": "minilm@1"}, {"encoder": "mpnet@2"}),
    "every": ({"every": 2}, {}),  # the file lacks layers, which would stay as they were made
    "confidence_layer": ({"confidence_layer": 1}, {}),
    "update_scope": ({"update_scope": "none"}, {}),
    "search_heads": ({"search_heads": 2}, {"search_heads": 3}),
    "lookahead": ({"search_heads": 2, "reading": "tokens"}, {"search_heads": 2, "lookahead": 1}),
}


@pytest.mark.parametrize(("name", "two"), SETTINGS.items(), ids=SETTINGS)
def test_weights_of_another_setting_are_not_loaded(name, two, tiny_model, tmp_path):
    theirs, ours = (dynarule_config(WIDTH, **({"confidence_layer": 2} | changes)) for changes in two)
    RuleAdapter(tiny_model("qwen2"), theirs).save(tmp_path)
    adapter = RuleAdapter(tiny_model("qwen2"), ours)
    before = {name: value.clone() for name, value in adapter.named_parameters()}
    values = [getattr(config, name, None) for config in (theirs, ours)]
    with pytest.raises(ValueError, match=f"with {name} {values[0]!r}, this adapter has {values[1]!r}"):
        adapter.load(tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in adapter.named_parameters())


def test_a_fresh_adapter_takes_what_a_stage_before_it_filled_in(tiny_model, tmp_path):
    """As where a training goes on in another process: what follows ``<search>`` is known from texts alone."""
    settings = {"confidence_layer": 2, "search_place": "premise"}
    RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH, **settings, search_cues=[3, 5])).save(tmp_path)
    ours = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH, **settings))
    ours.load(tmp_path)
    assert ours.config.search_cues == [3, 5]


def test_an_adapter_opened_with_a_tokenizer_has_the_search_that_was_trained(
    tiny_model, tiny_tokenizer, tmp_path
):
    RuleAdapter(tiny_model("qwen2"), config([90])).save(tmp_path)
    load_adapter(tiny_model("qwen2"), tmp_path, tokenizer := tiny_tokenizer())
    assert tokenizer("w5 <search>")["input_ids"] == [5, 90]
    with pytest.raises(ValueError, match="'<search>' at id 80, the adapter was trained with id 90"):
        load_adapter(tiny_model("qwen2"), tmp_path, tiny_tokenizer(words=80))


def test_an_adapter_that_reads_otherwise_gives_its_search(tiny_model, bank, tmp_path):
    """And its encoder, so that a bank of another one is refused from then on."""
    search = {"confidence_layer": 2, "search_heads": 2}
    tokens = {"first_layer": 2, "reading": "tokens", "encoder": "minilm@1", "min_support": 0.5}
    theirs = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH, **search, **tokens))
    for weight in theirs.parameters():
        weight.data += 0.1
    theirs.save(tmp_path)
    ours = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH, **search))
    before = {name: value.clone() for name, value in ours.named_parameters()}
    ours.load(tmp_path)
    given = dict(theirs.named_parameters())
    for name, value in ours.named_parameters():
        assert torch.equal(value, given.get(name, before[name]))
    assert given.keys() < before.keys() and (ours.config.encoder, ours.config.min_support) == ("minilm@1", 0)


def test_transformers_opens_what_goes_beyond_the_paper(tiny_model, tmp_path):
    """PEFT made the configuration of a file without the settings that it did not know, and weights stayed random."""
    settings = {"confidence_layer": 1, "reading": "tokens", "lookahead": 1}
    saved = get_peft_model(tiny_model("llama"), dynarule_config(WIDTH, **settings))
    saved.save_pretrained(tmp_path)
    opened = tiny_model("llama")
    opened.load_adapter(str(tmp_path))
    ours, theirs = (RuleAdapter(model).state_dict() for model in (saved, opened))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    values = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(values | {"unknown": 1}))
    with pytest.raises(ValueError, match=r"unknown keys \['unknown'\]; update dynarule"):
        tiny_model("llama").load_adapter(str(tmp_path))


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
    lora = LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    assert weights_hash(get_peft_model(model, lora)) == plain != ""
    own = tiny_model("qwen2")
    before = BaseModel.of(own)
    moved(own)
    assert BaseModel.of(own) == before  # nor do rules beside the blocks


# Files that are whole, and belong together.


@pytest.fixture
def folder(tiny_model, tmp_path):
    moved(tiny_model("qwen2")).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


PLACE = "base_model.model.model.layers.{}.self_attn.dynarule_projection.{}"
ROW = "base_model.model.lm_head.token_adapter.trainable_tokens_delta"
KEY = PLACE.format(1, "k.weight")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": torch.zeros(1)}, "extra"),
        ({PLACE.format(9, "k.weight"): torch.zeros(48, 20)}, "layers.9"),
        ({KEY: None}, "layers.1.*k.weight"),
        ({KEY: torch.zeros(20, 48)}, "layers.1.*k.weight"),
        ({KEY: None, KEY.replace(".model.model.", ".model."): torch.zeros(48, 20)}, "layers.1.*k.weight"),
        ({ROW: None}, "lm_head.*trainable_tokens_delta"),
        ({PLACE.format(1, "v.bias"): torch.full((48,), math.nan)}, r"v\.bias of layer 1 is not finite"),
        ({PLACE.format(1, "v.bias"): torch.full((48,), math.inf)}, r"v\.bias of layer 1 is not finite"),
        ({PLACE.format(1, "v.bias"): torch.full((48,), 1e30)}, r"v\.bias .* larger than fp16 holds \(1e\+30"),
        ({ROW: torch.full((1, 48), math.nan)}, r"lm_head\.token_adapter.* is not finite"),
    ],
)
def test_unknown_missing_misshapen_and_infinite_tensors_are_named(changes, message, folder, tiny_model):
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path) | changes
    save_file({name: value for name, value in tensors.items() if value is not None}, path)
    with pytest.raises(ValueError, match=message):
        load_adapter(tiny_model("qwen2"), folder)


def test_layers_that_read_what_another_found_hold_nothing(tiny_model, tmp_path):
    config = dynarule_config(WIDTH, 1, first_layer=1, shared_after=True, reading="tokens")
    get_peft_model(tiny_model("qwen2"), config).save_pretrained(tmp_path)
    names = load_file(tmp_path / "adapter_model.safetensors")
    assert {name.split(".self_attn.")[0].rsplit(".", 1)[-1] for name in names} == {"1"}
    RuleAdapter(PeftModel.from_pretrained(tiny_model("qwen2"), tmp_path))


def test_every_adapter_of_the_repository_opens():
    """What is said of an older file must stay true of those that were shipped."""
    files = (Path(__file__).parents[2] / "benchmarks").glob("**/adapter_config.json")
    folders = [path.parent for path in files if '"DYNARULE"' in path.read_text()]
    assert folders
    for folder in folders:  # its weights are compared with what the configuration asks for
        assert DynaRuleConfig.from_pretrained(folder).encoder


STRANGE = [
    json.loads(line) for line in Path(__file__).with_name("strange_configs.jsonl").read_text().splitlines()
]
"""What is put in the place of a configuration's values, of "base.x" those of its base, and what is said of it."""
STRANGE += [
    ({"layers_to_transform": list(range(100_000))}, "layers_to_transform"),
    ({"trainable_token_indices": list(range(100_000))}, "must be the one row of <search>"),
    ({"encoder": "x" * (1 << 20)}, "bytes: no adapter's"),
    (None, "damaged"),
]


def changed_config(values, changes):
    if changes is None:
        return [values]
    base = {name[5:]: value for name, value in changes.items() if name.startswith("base.")}
    rest = {name: value for name, value in changes.items() if not name.startswith("base.")}
    return values | {"base": values["base"] | base} | rest


def test_the_folder_of_a_stranger_takes_neither_memory_nor_time(folder, tiny_model):
    """One line, before anything of the size that it says is made."""
    path, model = folder / "adapter_config.json", tiny_model("qwen2")
    values = json.loads(path.read_text())
    began = time.process_time()
    for change, message in STRANGE:
        path.write_text(json.dumps(changed_config(values, change)))
        with pytest.raises(ValueError, match=message) as error:
            load_adapter(model, folder)
        assert len(str(error.value)) < 600
    assert time.process_time() - began < 20
    assert not [m for m in model.modules() if isinstance(m, DynaRuleLayer)]


def test_what_a_subclass_adds_is_its_own_matter():
    kind = make_dataclass("Shifted", [("shift", int, 0), ("other", Any, None)], bases=(DynaRuleConfig,))
    assert kind(encoder_dim=8, shift=-1).shift == -1


def test_files_that_are_missing_pickled_or_damaged_are_refused(folder, tiny_model):
    path, settings = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    whole = path.read_bytes()
    bodies = (b"", b"abc", whole[:100], whole[:-1], b"\xff" * 8, (1 << 63).to_bytes(8, "little") + b"{}")
    for body in (*bodies, b"\2" + bytes(7) + b"[]"):
        path.write_bytes(body)
        for load in (load_adapter, PeftModel.from_pretrained):
            with pytest.raises(ValueError, match="truncated or not safetensors"):
                load(tiny_model("qwen2"), folder)
    path.unlink()
    for load in (load_adapter, lambda model, folder: RuleAdapter(moved(model)).load(folder)):
        with pytest.raises(FileNotFoundError, match=r"has no adapter_model.safetensors"):
            load(tiny_model("qwen2"), folder)
    (folder / "adapter_model.bin").write_bytes(whole)
    for load in (load_adapter, PeftModel.from_pretrained):
        with pytest.raises(ValueError, match="is a pickle, which may run code"):
            load(tiny_model("qwen2"), folder)
    (folder / "adapter_model.bin").unlink()
    settings.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        DynaRuleConfig.from_pretrained(folder)
    settings.unlink()
    for missing in (folder, Path("owner/adapter")):  # a path is never a repository of the Hub
        with pytest.raises(FileNotFoundError, match="not an adapter folder"):
            DynaRuleConfig.from_pretrained(missing)


def test_the_same_adapter_is_the_same_bytes_as_readable_as_its_folder(tiny_model, tmp_path):
    adapter, saves = RuleAdapter(moved(tiny_model("qwen2"))), []
    for name in "ab":
        adapter.save(tmp_path / name)
        saves.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert saves[0] == saves[1]
    assert sorted(saves[0]) == [".lock", "adapter_config.json", "adapter_model.safetensors"]
    mode = (tmp_path / "a").stat().st_mode & 0o666
    assert (tmp_path / "a/adapter_model.safetensors").stat().st_mode & 0o777 == mode


# Above a quantised base.


class Packed(torch.nn.Module):
    """A layer of whole numbers under a name that no library has, as GPTQ's and AWQ's are."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.register_buffer("scale", linear.weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("packed", (linear.weight / self.scale).round().to(torch.int8))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.packed * self.scale, self.bias)


class Blind(Packed):
    def forward(self, x):
        return super().forward(x.detach())


class Broken(Packed):
    def forward(self, x):
        raise RuntimeError("no kernel for this device")


def eight_bits_alone(linear):
    """What a checkpoint of fp8 looks like when its scales are elsewhere."""
    linear.weight = torch.nn.Parameter(linear.weight.to(torch.float8_e4m3fn), requires_grad=False)
    return linear


def quantised(model, make):
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, make(getattr(layer.self_attn, name)))
    return model


def of_library(kind, folder):
    if kind == "torchao":
        pytest.importorskip("torchao")
        from torchao.quantization import Int8WeightOnlyConfig
        from transformers import TorchAoConfig

        settings = TorchAoConfig(Int8WeightOnlyConfig())
    else:
        pytest.importorskip("bitsandbytes")
        from transformers import BitsAndBytesConfig

        settings = BitsAndBytesConfig(**{f"load_in_{kind}": True}, bnb_4bit_compute_dtype=torch.float32)
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings)


@pytest.mark.parametrize(
    "kind", ["packed", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("torchao", "8bit", "4bit"))]
)
@pytest.mark.parametrize("ran", [False, True])
def test_rules_stand_beside_a_quantised_base(kind, ran, tiny_model, tiny_tokenizer, bank, tmp_path):
    """A new adapter, its training, saving and loading, before and after the base has run (and packed its weights)."""
    sizes = {"hidden_size": 64, "tie_word_embeddings": False}
    plain, tokenizer = tiny_model("qwen2", **sizes), tiny_tokenizer(search=True)
    plain.save_pretrained(tmp_path / "base")

    def base():
        if kind == "packed":
            return quantised(tiny_model("qwen2", **sizes), Packed)
        return of_library(kind, tmp_path / "base")

    model = base().eval()
    if ran:
        with torch.no_grad():
            expected = model(IDS).logits
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    for layer, projection in adapter.projections().items():
        own = plain.model.layers[layer].self_attn.q_proj
        apart = (projection.q.weight - own.weight).abs().max() / own.weight.abs().max()
        assert apart < (0.2 if kind == "4bit" else 0.02) and torch.equal(projection.q.bias, own.bias)
    if ran:
        with torch.no_grad(), adapter.model.disable_adapter():
            assert torch.equal(adapter.model(IDS).logits, expected)
    adapter.train_search(90)
    adapter.model.train()
    if kind != "4bit" or not ran:  # once it has answered on a CPU, bitsandbytes cannot train it
        train(adapter.model, bank)
        assert all(p.grad is not None for p in adapter.model.parameters() if p.requires_grad)
    adapter.model.eval()
    adapter.save(tmp_path / "adapter")
    loaded = base().eval()
    load_adapter(loaded, tmp_path / "adapter")
    answers = [
        generate(m, tokenizer, bank, ["w11 w12", "w13"], max_new_tokens=4) for m in (adapter.model, loaded)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            Broken,
            r"a quantised Broken, does not run here \(no kernel for this device\); load the base in bf16",
        ),
        (eight_bits_alone, "a quantised Linear, does not run here .* load the base in bf16"),
        (Blind, "no gradient passes the layers of this quantised base"),
    ],
)
def test_a_quantised_base_that_rules_cannot_use_is_refused(make, message, tiny_model, bank):
    model = quantised(tiny_model("qwen2"), make)
    with pytest.raises(ValueError, match=message):
        RuleModel(model, RuleAdapter(model, dynarule_config(WIDTH, 2)), bank, Recipe())


# What users of PEFT and of `generate` do: it works, with the answer of greedy decoding where it must, or is refused.


class Cell:
    """A base model, an adapter above it, and rules."""

    def __init__(self, make, tokenizer, bank, folder):
        self.make, self.tokenizer, self.bank, self.folder = make, tokenizer, bank, folder
        self.make().save_pretrained(folder / "base")
        RuleAdapter(self.tuned()).save(folder / "adapter", tokenizer)
        self.answer = self.ask()
        assert self.answer != self.plain(self.base())

    def base(self, **options):
        return AutoModelForCausalLM.from_pretrained(self.folder / "base", **options)

    def tuned(self, base=None):
        torch.manual_seed(3)
        return moved(base or self.base(), rows=None)

    def load(self, **options):
        return PeftModel.from_pretrained(self.base(), self.folder / "adapter", **options)

    def ask(self, model=None, ids=((11, 12, 13),), asked=None, **options):
        model = self.tuned() if model is None else model
        with attach(model, RuleMemory(model, self.bank, SEARCH)):
            return self.plain(model if asked is None else asked, ids, **options)

    def plain(self, model, ids=((11, 12, 13),), **options):
        options = {"max_new_tokens": 5, "do_sample": False} | options
        out = model.generate(input_ids=torch.tensor(ids), **options)
        return out.tolist() if isinstance(out, torch.Tensor) else out


def second(cell):
    model = cell.tuned()
    model.add_adapter("b", kblam_config(WIDTH))
    return model


def attached_call(cell, call):
    model = cell.tuned()
    with attach(model, RuleMemory(model, cell.bank, SEARCH)):
        return call(model)


def piped(cell, model, **options):
    pipe = pipeline("text-generation", model=model, tokenizer=cell.tokenizer, **options)
    cell.tokenizer.padding_side = "left"
    with attach(model, RuleMemory(model, cell.bank, SEARCH)):
        out = pipe(["w11 w12 w13", "w1 w2 w3 w4"], max_new_tokens=5, do_sample=False, return_tensors=True)
    return [out[0][0]["generated_token_ids"][-8:]]


def in_a_thread(call):
    """Run it in a thread of its own, as a streamer's reader has it; return or raise what it does."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def streamed_elsewhere(cell, model):
    streamer = TextIteratorStreamer(cell.tokenizer, timeout=60)
    try:
        return in_a_thread(lambda: cell.plain(model, streamer=streamer))
    finally:
        list(streamer)


def streamed(cell):
    streamer = TextIteratorStreamer(cell.tokenizer)
    rows = cell.ask(streamer=streamer)
    assert "".join(streamer).split() == [f"w{token}" for token in rows[0]]
    return rows


def with_scores(cell):
    out = cell.ask(return_dict_in_generate=True, output_scores=True, output_hidden_states=True)
    assert len(out.scores) == len(out.hidden_states) == 5
    return out.sequences.tolist()


def padded(cell):
    ids, mask = [[0, 11, 12, 13], [1, 2, 3, 4]], torch.tensor([[0, 1, 1, 1], [1] * 4])
    return [cell.ask(ids=ids, attention_mask=mask)[0][1:]]


def after(cell, call, *, within):
    """Go on with what was read within the block, once it has ended or another prompt was read."""
    model = cell.tuned()
    with attach(model, RuleMemory(model, cell.bank, SEARCH)):
        cache = model(IDS).past_key_values
        if within:
            return call(model, cache)
    return call(model, cache)


def go_on(model, cache):
    return model(IDS[:, -1:], past_key_values=cache)


def write_on(model, cache):
    return model.generate(input_ids=IDS, past_key_values=cache, max_new_tokens=2)


def twice(model, cache):
    cache.batch_repeat_interleave(2)
    return model(torch.tensor([[14]] * 4), past_key_values=cache)


def changed(cell, change):
    """Change a model in place, and ask it."""
    model = cell.tuned()
    change(model)
    return cell.ask(model)


def through_transformers(cell):
    model = cell.base()
    model.load_adapter(str(cell.folder / "adapter"))
    return cell.ask(model)


def answered(cell):
    (answer,) = generate(cell.tuned(), cell.tokenizer, cell.bank, ["w11 w12 w13"], max_new_tokens=5)
    return [[11, 12, 13, *answer.token_ids]]


def lora(cell):
    return get_peft_model(cell.base(), LoraConfig(target_modules=["q_proj"]))


def configured(cell, *, model):
    """Ask by position, of a configuration, or let the model's own count."""
    tuned, beams = cell.tuned(), GenerationConfig(num_beams=3)
    base = tuned.get_base_model()
    if model:
        base.generation_config, beams = beams, GenerationConfig()
    with attach(tuned, RuleMemory(tuned, cell.bank, SEARCH)):
        base.generate(torch.tensor([[11, 12, 13]]), beams, max_new_tokens=2)


class Switching:
    """Asks after the active adapter was changed."""

    def __init__(self, model):
        self.model = model

    def generate(self, **options):
        self.model.set_adapter("b")
        return self.model.generate(**options)


WORKS = {
    "unmerge_adapter": lambda c: changed(c, lambda model: model.unmerge_adapter()),
    "AutoModel": lambda c: c.ask(AutoModelForCausalLM.from_pretrained(c.folder / "adapter")),
    "model.load_adapter": through_transformers,
    "deepcopy": lambda c: c.ask(copy.deepcopy(c.tuned())),
    "adapter in halves": lambda c: changed(c, lambda model: RuleAdapter(model).half()),
    "torch.compile": lambda c: c.ask(torch.compile(c.tuned(), backend="eager")),
    "LoRA merged": lambda c: c.ask(c.tuned(lora(c).merge_and_unload())),
    "dynarule.generate": answered,
    "num_return_sequences": lambda c: c.ask(do_sample=True, top_k=1, num_return_sequences=2)[1:],
    "left padding": padded,
    "streamer": streamed,
    "all under inference_mode": lambda c: torch.inference_mode()(c.ask)(),
    "scores": with_scores,
    "pipeline": lambda c: piped(c, c.tuned(), batch_size=2),
    "pipeline of the base": lambda c: piped(c, c.tuned().get_base_model()),
    "the base's generate": lambda c: (m := c.tuned()) and c.ask(m, asked=m.get_base_model()),
    "a cache": lambda c: c.ask(past_key_values=DynamicCache()),
    "a cache by name": lambda c: c.ask(cache_implementation="dynamic"),
}
NOT_FOLLOWED = {
    "num_beams": 2,
    "prompt_lookup_num_tokens": 2,
    "use_cache": False,
    "guidance_scale": 2.0,
    "prefill_chunk_size": 2,
    "custom_generate": print,
}
REFUSED = {
    r"exactly one .* got \[\]": lambda c: changed(c, lambda model: model.delete_adapter("default")),
    "make a new RuleMemory": lambda c: (m := second(c)) and c.ask(m, asked=Switching(m)),
    r"cannot be merged; call unload\(\)": lambda c: c.tuned().merge_and_unload(),
    "save the adapter without safe_serialization": lambda c: c.tuned().save_pretrained(
        c.folder / "pickled", safe_serialization=False
    ),
    "low_cpu_mem_usage=True is not supported": lambda c: c.load(low_cpu_mem_usage=True),
    "adapter_names is not supported with rules": lambda c: c.ask(adapter_names=["default"]),
    "has a PEFT method already .* merge_and_unload": lambda c: c.tuned(lora(c)),
    "has a PEFT method already": lambda c: c.tuned(lora(c).get_base_model()),
    "has a PEFT method .* unload": lambda c: c.tuned(c.tuned()),
    "num_beams=3 is not": lambda c: (m := c.tuned()) and c.ask(m, asked=m.get_base_model(), num_beams=3),
    "num_beams=3 .* not supported with rules": lambda c: configured(c, model=False),
    "num_beams=3 is not supported with": lambda c: configured(c, model=True),
    "a StaticCache is not supported": lambda c: c.ask(cache_implementation="static"),
    "past_key_values holds an earlier turn": lambda c: after(c, write_on, within=True),
    "with the rules of the latest prompt of this memory": lambda c: after(
        c, lambda m, cache: m(IDS) and go_on(m, cache), within=True
    ),
    "of 4 rows holds no text": lambda c: after(c, twice, within=True),
    "no rule memory is attached any more": lambda c: after(c, go_on, within=False),
    "rules, and no rule memory is": lambda c: after(c, write_on, within=False),
    "of 2 rows holds no text": lambda c: attached_call(c, lambda m: go_on(m, c.base()(IDS).past_key_values)),
    "another thread has attached": lambda c: attached_call(c, lambda m: in_a_thread(lambda: m(IDS))),
    "call attach and the model in one thread": lambda c: attached_call(c, lambda m: streamed_elsewhere(c, m)),
    "attached cannot be copied or pickled": lambda c: attached_call(c, copy.deepcopy),
    "leave the block of `attach` first": lambda c: attached_call(c, pickle.dumps),
    "pad on the left": lambda c: c.ask(ids=[[11, 12], [1, 0]], attention_mask=torch.tensor([[1, 1], [1, 0]])),
    r"'flex_attention', .* sdpa or eager; call model\.set_attn_impl": lambda c: changed(
        c, lambda model: setattr(model.config, "_attn_implementation", "flex_attention")
    ),
    "was set to 'eager', which reads no rules": lambda c: attached_call(
        c, lambda m: m.set_attn_implementation("eager") or m(IDS)
    ),
    "needs input_ids": lambda c: attached_call(c, lambda m: m(inputs_embeds=torch.zeros(1, 2, 48))),
    "output_attentions=True is not supported with rules": lambda c: c.ask(
        return_dict_in_generate=True, output_attentions=True
    ),
    r"assistant_model=Qwen2ForCausalLM\( is not supported": lambda c: c.ask(assistant_model=c.base()),
} | {
    f"{name}=.* is not supported with rules": lambda c, option={name: value}: c.ask(**option)
    for name, value in NOT_FOLLOWED.items()
}


@pytest.fixture(scope="module")
def cell(tiny_model, tiny_tokenizer, tmp_path_factory):
    def base():
        model = tiny_model("qwen2", tie_word_embeddings=False)
        model.get_output_embeddings().weight[[0, 95, 96]] = 0  # it does not end by itself
        return model

    bank = random_bank([f"rule {i}" for i in range(30)])
    return Cell(base, tiny_tokenizer(search=True), bank, tmp_path_factory.mktemp("cell"))


@pytest.mark.parametrize("what", WORKS)
@pytest.mark.filterwarnings("error::FutureWarning", "ignore:.*is_gradient_checkpointing")
def test_what_users_do_gives_the_same_answer(what, cell):
    assert WORKS[what](cell) == cell.answer


@pytest.mark.parametrize("message", REFUSED)
@pytest.mark.filterwarnings("error::FutureWarning", "ignore:.*is_gradient_checkpointing")
def test_what_cannot_work_is_refused_in_a_sentence(message, cell):
    with pytest.raises(ValueError, match=message) as refused:
        REFUSED[message](cell)
    assert "\n" not in str(refused.value)
