"""The entropy curve, against loops over heads, tokens and rules."""

import math
import statistics

import pytest
import torch
from dynarule.memory.confidence import rule_entropy

from dynarule import (
    RuleAdapter,
    RuleBank,
    RuleMemory,
    attach,
    dynarule_config,
    kblam_config,
    measure_confidence,
)

WIDTH = 20
PROMPTS = ["w11 w12 w13", "w20", "w31 w32 w33 w34 w35 w36", "w41 w42"]
pytestmark = pytest.mark.filterwarnings("ignore:.*entropy curve is noisy")


def layer_inputs(model, adapter, bank, ids):
    """What each layer's attention block reads, with rules attached: {layer: (T, C)}."""
    seen, handles = {}, []
    for layer, decoder_layer in enumerate(model.model.layers):
        note = lambda _m, args, layer=layer: seen.__setitem__(layer, args[0][0])  # noqa: E731
        handles.append(decoder_layer.self_attn.q_proj.register_forward_pre_hook(note))
    with attach(model, RuleMemory(adapter, bank)):
        model(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return seen


def entropy_by_loops(model, adapter, bank, ids):
    """Mean entropy of one question in every layer, one head, token and rule at a time, in float64."""
    curve = []
    for layer, hidden_TC in sorted(layer_inputs(model, adapter, bank, ids).items()):
        if str(layer) not in adapter.layers:
            continue
        projection, block = adapter[layer], model.model.layers[layer].self_attn
        dim, values = block.head_dim, []
        key_MF = projection.k(bank.keys_MP)
        key_MF = torch.nn.functional.layer_norm(key_MF, key_MF.shape[-1:])
        for token in hidden_TC:
            query_F = projection.q(token)
            for head in range(len(query_F) // dim):
                query = query_F[head * dim : (head + 1) * dim]
                if hasattr(block, "q_norm"):
                    query = block.q_norm(query)
                scores = [
                    float(query @ key[head * dim : (head + 1) * dim]) / math.sqrt(dim) for key in key_MF
                ]
                total = sum(math.exp(s) for s in scores)
                values.append(-sum(math.exp(s) / total * (s - math.log(total)) for s in scores))
        curve.append(sum(values) / len(values))
    return curve


def mean_of_loops(model, adapter, banks, prompts, tokenizer):
    rows = zip(banks, prompts, strict=True)
    table = [entropy_by_loops(model, adapter, bank, tokenizer(p)["input_ids"]) for bank, p in rows]
    return list(zip(*table, strict=True))


@pytest.mark.parametrize("config", ["all", "third", "pruned"])
@torch.no_grad()
def test_the_curve_is_that_of_loops(family, config, bank, tiny_model, tiny_tokenizer, near):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    settings = {
        "all": dynarule_config(WIDTH),
        "third": kblam_config(WIDTH),
        "pruned": dynarule_config(WIDTH, top_k=4),
    }[config]
    adapter = RuleAdapter(model, settings)
    curve = measure_confidence(model, tokenizer, bank, PROMPTS, batch_size=3)
    columns = mean_of_loops(model, adapter, [bank] * 4, PROMPTS, tokenizer)
    banks = [bank, RuleBank(bank.keys_MP[:6], bank.values_MP[:6], bank.ids[:6], bank.texts[:6])]
    own = measure_confidence(model, tokenizer, banks, PROMPTS[:2])  # each question with a bank of its own
    expected = mean_of_loops(model, adapter, banks, PROMPTS[:2], tokenizer)
    assert near(own.mean, [statistics.mean(c) for c in expected]) and own.rules == 18
    assert curve.layers == ((0, 3) if config == "third" else (0, 1, 2, 3))
    assert near(curve.mean, [statistics.mean(c) for c in columns])
    assert near(curve.std, [statistics.stdev(c) for c in columns], scale=max(curve.mean))
    lowest = min(range(len(columns)), key=lambda i: statistics.mean(columns[i]))
    assert curve.confidence_layer == curve.layers[lowest]
    assert (curve.questions, curve.rules) == (4, 30)
    assert all(0 < value < math.log(30) for value in curve.mean)


@torch.no_grad()
def test_large_scores_do_not_overflow(bank, tiny_model, near, monkeypatch):
    projection = RuleAdapter(tiny_model("llama"), dynarule_config(WIDTH))[0]
    query = torch.randn(2, 4, 3, 12, generator=torch.Generator().manual_seed(3)) * 200
    keys = projection.keys(bank.keys_MP).unflatten(-1, (4, 12))
    scores = torch.einsum("bhtd,mhd->bhtm", query.double(), keys.double()) / math.sqrt(12)
    assert scores.max() > 100  # exp would overflow in fp32
    expected = torch.distributions.Categorical(logits=scores).entropy()
    for most in (1 << 26, 1):  # all tokens at once, and one at a time
        monkeypatch.setattr("dynarule.memory.confidence.MOST_WEIGHTS", most)
        entropy = rule_entropy(projection, query, bank.keys_MP)
        assert near(entropy, expected, units=8, scale=scores.abs().max())


def test_what_cannot_be_measured_is_refused(bank, tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("qwen2"), tiny_tokenizer()
    adapter = RuleAdapter(model, kblam_config(WIDTH))
    empty = RuleBank(torch.zeros(0, WIDTH), torch.zeros(0, WIDTH), [], [])
    for wrong, message in (
        ((bank, []), "no prompts"),
        ((empty, PROMPTS), "bank is empty"),
        (([bank], PROMPTS), "4 prompts but 1 banks"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_confidence(model, tokenizer, *wrong)
    adapter[3].q.weight.data[0, 0] = math.nan
    with (
        pytest.warns(UserWarning, match="4 questions: the entropy curve is noisy below 200"),
        pytest.raises(ValueError, match="layer 3 has rule scores that are not finite"),
    ):
        measure_confidence(model, tokenizer, bank, PROMPTS)
