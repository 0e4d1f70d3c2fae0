"""The model's own first layers as encoder: against the model's own hidden states, and what is refused."""

import pytest
import torch
from dynarule.bank.layer_encoder import LayerEncoder, parse_layers

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, encoder_of, open_encoder

TEXTS = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9", "w1 w2 w3 w4 w5 w7", "w1 w2 w3 w4 w5"]


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def model(request, tiny_model):
    return tiny_model(request.param)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2, 3])  # with 2, texts that begin alike share a batch
@pytest.mark.parametrize("layers", [1, 3, 4])
def test_it_is_the_mean_of_hidden_states_one_text_at_a_time(
    model, tiny_tokenizer, layers, batch, near, monkeypatch
):
    monkeypatch.setattr("dynarule.bank.layer_encoder.BATCH", batch)
    tokenizer = tiny_tokenizer()
    for layer in (model.model.norm, *(each.input_layernorm for each in model.model.layers)):
        layer.weight.uniform_(0.1, 3)
    got = LayerEncoder(model, tokenizer, layers)(TEXTS)
    for text, vector in zip(TEXTS, got, strict=True):
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        # hidden_states[layers] is what the next layer is given; the last one has been through the final norm.
        hidden = model(ids, output_hidden_states=True).hidden_states[layers][0]
        norm = model.model.layers[layers].input_layernorm if layers < 4 else torch.nn.Identity()
        mean = norm(hidden).mean(0)
        assert near(vector, mean / mean.norm())


def test_the_model_stays_as_it_was(model, tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    vectors = LayerEncoder(model, tokenizer)(TEXTS)
    assert model.training and not vectors.requires_grad and not vectors.is_inference()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert LayerEncoder(model, tokenizer)([]).shape == (0, model.config.hidden_size)


def test_the_fingerprint_is_of_the_layers_and_not_of_the_search_row(tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    one, two = (LayerEncoder(model, tokenizer, layers).fingerprint for layers in (1, 2))
    assert one != two and one.startswith("layers:1@")
    with torch.no_grad():
        model.get_input_embeddings().weight[5] += 1
    assert LayerEncoder(model, tokenizer, 1).fingerprint == one
    assert (
        LayerEncoder(model.bfloat16(), tokenizer, 1).fingerprint != one
    )  # rounded weights are other weights
    rounded = LayerEncoder(model, tokenizer, 1).fingerprint
    assert LayerEncoder(model.float(), tokenizer, 1).fingerprint == rounded
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] += 1
    assert LayerEncoder(model, tokenizer, 1).fingerprint == rounded
    assert LayerEncoder(model, tokenizer, 2).fingerprint != two


@pytest.mark.parametrize("part", ["mlp.up_proj.weight", "input_layernorm.weight", "self_attn.v_proj.weight"])
def test_whatever_changes_the_embeddings_changes_the_fingerprint(part, tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    before = LayerEncoder(model, tokenizer)
    with torch.no_grad():
        noise = 1 + torch.rand_like(model.model.layers[0].get_parameter(part))
        model.model.layers[0].get_parameter(part).mul_(noise)
    after = LayerEncoder(model, tokenizer)
    assert not torch.allclose(before(TEXTS), after(TEXTS)) and before.fingerprint != after.fingerprint


def test_a_lora_in_the_layers_is_another_encoder(tiny_model, tiny_tokenizer):
    peft = pytest.importorskip("peft")
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    before = LayerEncoder(model, tokenizer)
    expected = before(TEXTS)
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    tuned = LayerEncoder(peft.get_peft_model(model, lora), tokenizer)
    assert before.fingerprint != tuned.fingerprint and not torch.allclose(expected, tuned(TEXTS))


def test_a_fingerprint_finds_its_encoder(tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    encoder = open_encoder("layers:2", True, model, tokenizer)
    bank = RuleBank.from_texts(TEXTS, None, encoder)
    again = encoder_of(bank.encoder, model, tokenizer)
    assert again.fingerprint == bank.encoder and torch.equal(again(TEXTS), bank.keys_MP)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight += 1
    said = (
        r"the rules' encoder is 'layers:2@.*of this model, loaded in {}, are 'layers:2@.* in the same dtype"
    )
    with pytest.raises(ValueError, match=said.format("float32")):
        encoder_of(bank.encoder, model, tokenizer)
    with pytest.raises(ValueError, match=said.format("bfloat16")):
        encoder_of(bank.encoder, tiny_model("llama").to(torch.bfloat16), tokenizer)


def test_mistakes_say_what_to_do(tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    with pytest.raises(ValueError, match="layers must be 1 to 4, the model's, got 9"):
        LayerEncoder(model, tokenizer, 9)
    with pytest.raises(ValueError, match="must be a list of texts, got the one text 'w1 w2'"):
        LayerEncoder(model, tokenizer)("w1 w2")
    with pytest.raises(ValueError, match="text 1 has no tokens: ''"):
        LayerEncoder(model, tokenizer)(["w1", ""])
    with pytest.raises(ValueError, match="say which with --model"):
        open_encoder("layers:1")
    for name in ("layers:", "layers:0", "layers:x", "layers:-1"):
        with pytest.raises(ValueError, match="expected layers:N"):
            parse_layers(name)


def test_rules_may_be_encoded_while_the_model_reads_others(tiny_model, tiny_tokenizer):
    """The encoder's layers are its own: what is attached to the model later does not reach them."""
    model, tokenizer = tiny_model("qwen3"), tiny_tokenizer()
    encoder = LayerEncoder(model, tokenizer)
    bank = RuleBank.from_texts(TEXTS, None, encoder)
    adapter = RuleAdapter(model, dynarule_config(bank.encoder_dim, confidence_layer=1, top_k=2))
    with attach(model, RuleMemory(adapter, bank, 7)) as memory:
        assert torch.equal(encoder(TEXTS), bank.keys_MP) and memory.trace == []
        with pytest.raises(ValueError, match="leave the block of `attach`"):
            LayerEncoder(model, tokenizer)


def test_training_and_serving_encode_alike(tiny_model, tiny_tokenizer, near):
    """A model in bfloat16 and the same weights in fp32 give the same embeddings, not rounded ones."""
    model, tokenizer = tiny_model("llama").bfloat16(), tiny_tokenizer()
    serving = LayerEncoder(model, tokenizer, 2)
    served = serving(TEXTS)
    training = LayerEncoder(model.float(), tokenizer, 2)
    assert serving.fingerprint == training.fingerprint
    assert near(served, training(TEXTS)) and served.dtype == torch.float32
