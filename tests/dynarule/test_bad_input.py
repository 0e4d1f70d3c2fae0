"""Bad input of every kind: a clear error, or a behaviour that is written down here."""

import math
from dataclasses import replace

import pytest
import torch
from dynarule.attention import AttendedRules
from transformers import AutoConfig, AutoModelForCausalLM

from dynarule import (
    RuleAdapter,
    RuleBank,
    RuleMemory,
    attach,
    dynarule_config,
    generate,
    kblam_config,
    srki_config,
)

from .conftest import forcing

WIDTH, SEARCH = 20, 90
IDS = torch.tensor([[11, 12, 13, 14]])


def some(bank, start, stop):
    part = slice(start, stop)
    return RuleBank(
        bank.keys_MP[part].clone(), bank.values_MP[part].clone(), bank.ids[part], bank.texts[part]
    )


def test_an_unsupported_family_is_named():
    """Gemma caps its scores, which rules would escape."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 8)
    sizes |= {"num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gemma2", **sizes, **heads))
    message = r"is of model type 'gemma2', .* supported type: llama, mistral, qwen2, qwen3"
    with pytest.raises(ValueError, match=message):
        RuleAdapter(model, dynarule_config(WIDTH))


def test_a_bank_of_another_encoder_is_refused(ready, bank):
    _, _, adapter = ready()
    bank.encoder = "bge-m3@1"
    RuleMemory(adapter, bank)  # an adapter that does not know its encoder takes any of its width
    adapter.config.encoder = "minilm@2"
    with pytest.raises(
        ValueError, match=r"'bge-m3@1', the adapter was trained with 'minilm@2'; build the bank"
    ):
        RuleMemory(adapter, bank)
    bank.encoder = "minilm@2"
    RuleMemory(adapter, bank)


@pytest.mark.parametrize("change", [{}, {"num_hidden_layers": 3}])
def test_a_model_that_does_not_hold_the_adapter_is_refused(change, ready, bank, tiny_model):
    """Even a twin: the hooks would read projections that its own adapter, if it has one, does not train."""
    _, _, adapter = ready()
    other = tiny_model("qwen2", **change)
    with (
        pytest.raises(ValueError, match="the adapter of another model"),
        attach(other, RuleMemory(adapter, bank)),
    ):
        pass
    assert other.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match=r"Qwen2ForCausalLM has no DynaRule adapter; load one with"):
        RuleMemory(other, bank)


# A bank that changes in the middle of a generation: what is kept stays, the next <search> sees the change.


@torch.no_grad()
def test_rules_added_or_removed_are_seen_at_the_next_search(ready, bank):
    model, tokenizer, _adapter = ready()

    def run(change):
        live = some(bank, 0, 20)
        steps = forcing(1, 3, then=lambda length: change(live) if length == 2 else None)
        return generate(model, tokenizer, live, ["w11 w12"], max_new_tokens=6, logits_processor=[steps])[0]

    same = run(lambda live: None)
    best = same.trace[2].ids[0]
    removed = run(lambda live: live.remove([best]))
    assert [r.ids for r in removed.trace[:2]] == [r.ids for r in same.trace[:2]]
    assert removed.token_ids[:4] == same.token_ids[:4]  # what was kept is read until the next search
    assert removed.trace[2].ids[:4] == same.trace[2].ids[1:]
    row = bank.ids.index(best)
    own = some(bank, row, row + 1)
    other = [f"{text}, in other words" for text in own.texts]
    twin = RuleBank(own.keys_MP, own.values_MP, [f"twin-{best}"], other)  # scores as the best one does
    added = run(lambda live: live.add(twin))
    assert [r.ids for r in added.trace[:2]] == [r.ids for r in same.trace[:2]]
    assert {*added.trace[2].ids} == {best, f"twin-{best}", *same.trace[2].ids[1:4]}


@torch.no_grad()
def test_a_bank_emptied_or_filled_in_the_middle(ready, bank):
    model, tokenizer, adapter = ready()
    live = some(bank, 0, 6)
    steps = forcing(2, then=lambda length: live.remove(list(live.ids)) if length == 1 else None)
    (answer,) = generate(model, tokenizer, live, ["w11"], max_new_tokens=5, logits_processor=[steps])
    assert [r.step for r in answer.trace] == [0]  # nothing to search: the rules kept at prefill stay
    assert len(answer.token_ids) == 5
    live = RuleBank(torch.zeros(0, WIDTH), torch.zeros(0, WIDTH), [], [])
    steps = forcing(2, then=lambda length: live.add(some(bank, 0, 6)) if length == 1 else None)
    memory = RuleMemory(adapter, live, SEARCH)
    (answer,) = generate(model, tokenizer, memory, ["w11"], max_new_tokens=5, logits_processor=[steps])
    assert answer.trace == ()  # no rules when the question was read: they count from the next question on
    (answer,) = generate(model, tokenizer, memory, ["w11"], max_new_tokens=2)
    assert len(answer.trace[0].ids) == 5


@torch.no_grad()
def test_a_bank_shrunk_below_k_for_some_rows_is_refused(ready, bank):
    model, tokenizer, _adapter = ready()
    live = some(bank, 0, 6)

    def process(ids, scores):
        if ids.shape[1] == 3:
            live.remove(["r0", "r1", "r2"])
            scores = scores.clone()
            scores[0] = -torch.inf
            scores[0, SEARCH] = 0
        return scores

    with pytest.raises(ValueError, match="keep different numbers of rules; keep at least top_k rules"):
        generate(model, tokenizer, live, ["w11 w12", "w13 w14"], logits_processor=[process])
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(("top_k", "allowed"), [(5, 4), (None, 29)])
def test_rules_that_are_not_allowed_are_never_kept_for_want_of_others(top_k, allowed, ready, bank):
    model, _, adapter = ready()
    config = replace(adapter.config, top_k=top_k)
    for width, row in ((30, allowed), (31, 31), (1, 1)):
        memory = RuleMemory(adapter, bank, config=config, allowed_BM=torch.arange(width)[None] < row)
        with pytest.raises(ValueError, match="set a smaller top_k"), attach(model, memory):
            model(IDS)
    memory = RuleMemory(adapter, bank, allowed_BM=torch.ones(1, 30))
    with pytest.raises(ValueError, match="allowed_BM must be boolean"), attach(model, memory):
        model(IDS)


def test_a_mask_that_does_not_say_what_is_padding_is_refused(ready, bank):
    model, _, adapter = ready()
    length = IDS.shape[1]
    mask_B1TT = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    with (
        pytest.raises(ValueError, match=r"must be \(rows, tokens\)"),
        attach(model, RuleMemory(adapter, bank)),
    ):
        model(IDS, attention_mask=mask_B1TT)


def test_a_memory_searches_where_its_adapter_can(ready, bank):
    _, _, adapter = ready()
    with pytest.raises(ValueError, match=r"must be one that holds rules .*got 99"):
        RuleMemory(adapter, bank, config=replace(adapter.config, confidence_layer=99))


@torch.no_grad()
def test_what_is_the_question_is_said_of_one_text_alone(ready, bank):
    model, tokenizer, adapter = ready()
    expected = generate(model, tokenizer, bank, ["w11 w12"], max_new_tokens=4)
    memory = RuleMemory(adapter, bank, SEARCH)
    memory.question_mask_BT = torch.tensor([[True, False]])
    with attach(model, memory):
        model(IDS[:, :2])
    assert generate(model, tokenizer, memory, ["w11 w12"], max_new_tokens=4) == expected


# KBLaM and SR-KI as settings: what the published methods say.


@torch.no_grad()
def seen_rules(model, adapter, bank, ids=IDS):
    """Rules that each layer's attention gets, and the shift added to their scores."""
    found: dict[int, AttendedRules] = {}
    memory = RuleMemory(adapter, bank, SEARCH)
    plain = memory.attended

    def spy(layer, hidden, block):
        rules = plain(layer, hidden, block)
        if rules is not None:
            found[layer] = rules
        return rules

    memory.attended = spy
    memory.question_mask_BT = torch.arange(ids.shape[1])[None] < 4
    with attach(model, memory):
        model(ids)
    return found


def test_kblam_holds_its_rules_in_every_third_layer_and_shifts_by_log_c_minus_log_of_their_number(
    tiny_model, bank
):
    """All of them, and by nothing, as published, unless the settings say otherwise."""
    for config, count, shift in (
        (kblam_config(WIDTH), 30, 0.0),
        (kblam_config(WIDTH, 100.0), 30, math.log(100 / 30)),
        (kblam_config(WIDTH, 100.0, top_k=8), 8, math.log(100 / 8)),
    ):
        model = tiny_model("llama", num_hidden_layers=7)
        found = seen_rules(model, RuleAdapter(model, config), bank)
        assert sorted(found) == [0, 3, 6]
        assert {rules.key_BHRD.shape[2] for rules in found.values()} == {count}
        assert [rules.shift for rules in found.values()] == pytest.approx([shift] * 3)


def test_srki_selects_once_in_every_layer_and_never_again(tiny_model, tiny_tokenizer, bank):
    assert srki_config(WIDTH).top_k == 100
    model = tiny_model("qwen2")
    model.get_output_embeddings().weight[[0, 96]] = 0
    ids = torch.tensor([[11, 12, 13, 14, SEARCH, 15]])
    # the layer of its retrieval loss
    adapter = RuleAdapter(model, srki_config(WIDTH, confidence_layer=2, top_k=6))
    found = seen_rules(model, adapter, bank, ids)
    assert sorted(found) == [0, 1, 2, 3]
    assert {rules.key_BHRD.shape[2] for rules in found.values()} == {6}
    assert all(rules.visible_BTR is None and rules.shift == 0 for rules in found.values())
    options = {"max_new_tokens": 4, "logits_processor": [forcing(1)]}
    (answer,) = generate(model, tiny_tokenizer(), bank, ["w11"], **options)  # needs no <search>
    assert [(r.step, r.layer) for r in answer.trace] == [(0, 2)]
