"""The three laws: no rules is the base model, attention is one softmax, generation is the full forward."""

import itertools
import math
from functools import partial

import pytest
import torch
from dynarule.attention import AttendedRules, rule_attention
from dynarule.attention_interface import NAMES, attention_forward, register
from dynarule.kernels import attend, fused_attention, merged_attention, plain_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kernels

SEARCH = 7
WIDTH = 20
DTYPES = (torch.float32, torch.bfloat16)


def batch():
    """Three rows, the second left-padded by four, without <search>."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(10, 90, (3, 9), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, :4], mask[1, :4] = 0, 0
    return ids, mask


def answers(ids, mask, search=((0, 1), (0, 5), (1, 3), (2, 0))):
    """The batch with ten more tokens, some of them <search>."""
    generator = torch.Generator().manual_seed(3)
    more = torch.randint(10, 90, (len(ids), 10), generator=generator)
    for row, position in search:
        more[row, position] = SEARCH
    question = torch.zeros(len(ids), ids.shape[1] + 10, dtype=torch.bool)
    question[:, : ids.shape[1]] = True
    return torch.cat([ids, more], 1), torch.cat([mask, torch.ones_like(more)], 1), question


WHOLE, PIECES = [19], [9, *[1] * 10]  # at once; prefill, then one token at a time through the cache


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@torch.no_grad()
def test_without_rules_the_model_is_the_base_model_bit_for_bit(
    family, dtype, attention, bank, tiny_model, in_pieces
):
    """As loaded: with and without padding, at once and token by token."""
    model = tiny_model(family, dtype)
    model.set_attn_implementation(attention)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    ids, mask = batch()
    full, full_mask, _ = answers(ids, mask)

    def outputs():
        return [
            model(ids, attention_mask=mask).logits,
            model(ids[:1]).logits,
            model(full).logits,
            in_pieces(model, full, full_mask, PIECES),
        ]

    before = outputs()
    empty = RuleBank(torch.zeros(0, WIDTH), torch.zeros(0, WIDTH), [], [])
    with attach(model, RuleMemory(adapter, empty, SEARCH)):
        assert all(map(torch.equal, outputs(), before))
    with attach(model, RuleMemory(adapter, bank.to("cpu", dtype), SEARCH)):
        assert not any(map(torch.equal, outputs(), before))
    assert all(map(torch.equal, outputs(), before))
    assert model.config._attn_implementation == attention


def attention_case(tokens, masked, visible, shared, shift, heads, dtype=torch.float32):
    """Arguments of `rule_attention` for two rows that have read 5 tokens and 6 rules, and the text each token sees.

    Rules have so many ``heads`` of the query's four.
    """
    generator = torch.Generator().manual_seed(5)
    random = partial(torch.randn, generator=generator, dtype=dtype)
    query, key, value = random(2, 4, tokens, 8), random(2, 2, 5, 8), random(2, 2, 5, 8)
    text_BTS = torch.ones(tokens, 5, dtype=torch.bool).tril(5 - tokens).expand(2, tokens, 5).clone()
    if masked != "causal":
        text_BTS[1, :, 0] = False  # a pad
    hidden = {"float": torch.finfo(dtype).min, "infinite": -torch.inf}.get(masked, 0.0)
    added = torch.zeros(text_BTS.shape, dtype=dtype).masked_fill(~text_BTS, hidden)
    mask = {"causal": None, "bool": text_BTS[:, None]}.get(masked, added[:, None])
    seen = torch.rand(2, tokens, 6, generator=generator) > 0.4 if visible else None
    if seen is not None:
        seen[..., 0] = True
    held = 1 if shared else 2
    rules = AttendedRules(
        random(2, 4, tokens, 8), random(held, heads, 6, 8), random(held, heads, 6, 8), seen, shift
    )
    return (query, key, value, mask, rules, 8**-0.5), text_BTS


BY_RULE = torch.linspace(-3, 1, 12).view(2, 1, 1, 6)
SHIFTS = (0.0, math.log(100) - math.log(6), BY_RULE)
MASKS, EITHER = ("causal", "bool", "float", "infinite"), (False, True)
CASES = list(itertools.product((1, 3, 5), MASKS, EITHER, EITHER, SHIFTS, (4, 2)))


def test_the_equation_is_one_softmax_over_what_a_token_sees():
    """Token by token and head by head, in float64: what is masked is left out instead of added to."""
    for tokens, masked, visible, shared, shift, heads in CASES:
        arguments, text_BTS = attention_case(tokens, masked, visible, shared, shift, heads, torch.float64)
        query, key, value, _, rules, scale = arguments
        seen_BTR = rules.visible_BTR
        if seen_BTR is None:
            seen_BTR = torch.ones(2, tokens, 6, dtype=torch.bool)
        expected = torch.empty_like(query)
        for b, h, t in itertools.product(*map(range, query.shape[:3])):
            held, seen, text = b % len(rules.key_BHRD), seen_BTR[b, t], text_BTS[b, t]
            added = shift[b, 0, 0, seen] if isinstance(shift, torch.Tensor) else shift
            of_rules = rules.key_BHRD[held, h * heads // 4, seen] @ rules.query_BHTD[b, h, t] * scale + added
            of_text = key[b, h // 2, text] @ query[b, h, t] * scale
            values = torch.cat([rules.value_BHRD[held, h * heads // 4, seen], value[b, h // 2, text]])
            expected[b, h, t] = torch.cat([of_rules, of_text]).softmax(0) @ values
        torch.testing.assert_close(rule_attention(*arguments), expected)


@pytest.mark.parametrize("way", [rule_attention, plain_attention, fused_attention, merged_attention, attend])
def test_every_way_to_attend_is_the_equation(way, near):
    for case in CASES:
        (*text, mask, rules, scale), _ = attention_case(*case)
        if way is plain_attention and len(rules.key_BHRD) == 1:  # it is for rows with rules of their own
            continue
        tensors = (rules.query_BHTD, rules.key_BHRD, rules.value_BHRD)
        wide = AttendedRules(*(tensor.double() for tensor in tensors), rules.visible_BTR, rules.shift)
        expected = rule_attention(*(tensor.double() for tensor in text), mask, wide, scale)
        assert near(way(*text, mask, rules, scale), expected, units=8), case


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("way", [plain_attention, fused_attention, merged_attention])
def test_every_way_to_attend_has_the_gradients_of_the_equation(way, shift, masked, near):
    generator = torch.Generator().manual_seed(6)
    random = partial(torch.randn, generator=generator, dtype=torch.float64, requires_grad=True)
    text = [random(2, 4, 40, 8), random(2, 2, 40, 8), random(2, 2, 40, 8)]
    rules = [random(2, 4, 40, 8), random(2, 4, 7, 8), random(2, 4, 7, 8)]
    causal = torch.ones(40, 40, dtype=torch.bool).tril().expand(2, 1, 40, 40).clone()
    seen = torch.ones(2, 40, 7, dtype=torch.bool)
    if masked:
        causal[1, :, :, :3] = False  # the first rows see no text at all, as left padding does
        seen[0, 20:, 2] = False
        seen[0, :5] = False
    asked = AttendedRules(*rules, seen if masked else None, shift)
    arguments = (*text, causal if masked else None, asked, 0.3)
    out, expected = way(*arguments), rule_attention(*arguments)
    assert near(out, expected, units=1000)
    weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad((out * weight).sum(), [*text, *rules])
    wanted = torch.autograd.grad((expected * weight).sum(), [*text, *rules])
    for one, other in zip(found, wanted, strict=True):
        assert near(one, other, units=1000)


@pytest.mark.parametrize("way", [merged_attention, attend])
@pytest.mark.parametrize("shift", [0.5, torch.tensor([0.5, 0, -1, 2, 0, 0, 3])])
def test_halves_have_the_gradients_of_their_numbers(way, shift):
    """Each is off by what rounding the output to eight bits changes, and comes back as halves."""
    generator = torch.Generator().manual_seed(7)
    parts = [torch.randn(2, 4, n, 8, generator=generator).bfloat16() for n in (40, 40, 40, 40, 7, 7)]

    def gradients(way, dtype):
        leaves = [part.to(dtype).requires_grad_() for part in parts]
        out = way(*leaves[:3], None, AttendedRules(*leaves[3:], None, shift), 0.3)
        return torch.autograd.grad(out.square().sum(), leaves)

    wanted = gradients(rule_attention, torch.float64)
    for one, other in zip(gradients(way, torch.bfloat16), wanted, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one - other).norm() < 0.02 * other.norm()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
def test_a_single_token_is_attended_without_a_copy_of_the_cache(dtype, monkeypatch):
    """As a fused kernel makes one, of all keys and values in every layer."""
    monkeypatch.setattr(kernels, "fused_attention", None)
    query, key, value, *rules = (torch.randn(2, 4, n, 8, dtype=dtype) for n in (1, 40, 40, 1, 7, 7))
    asked = AttendedRules(*rules, None, 0.0)
    out = attend(query, key, value, None, asked, 0.3)
    torch.testing.assert_close(out, rule_attention(query, key, value, None, asked, 0.3), atol=0.02, rtol=0.02)


def test_queries_that_rope_widens_under_autocast_attend():
    """A float32 model under bf16 autocast: RoPE leaves queries and keys in float32, values are halves."""
    generator = torch.Generator().manual_seed(8)
    query, key, value, *rules = (torch.randn(2, 4, n, 8, generator=generator) for n in (40, 40, 40, 40, 7, 7))
    asked = AttendedRules(*(part.bfloat16() for part in rules), None, 0.0)
    out, _ = attention_forward(None, None, query, key, value.bfloat16(), None, 0.3, attended_rules=asked)
    expected = rule_attention(query, key, value, None, AttendedRules(*rules, None, 0.0), 0.3)
    assert (out.transpose(1, 2) - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(("before", "masked"), [("sdpa", False), ("sdpa", True), ("eager", True)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("merge_from", [1, 64])
@torch.no_grad()
def test_a_token_that_sees_no_rule_is_the_base_model_s_bit_for_bit(
    merge_from, dtype, before, masked, tiny_model, monkeypatch
):
    monkeypatch.setattr("dynarule.kernels.MERGE_MIN_TOKENS", merge_from)
    register()
    generator = torch.Generator().manual_seed(7)
    random = partial(torch.randn, generator=generator, dtype=dtype)
    query, rule_query = (random(2, 4, 33, 8) for _ in range(2))
    key, value = (random(2, 2, 33, 8) for _ in range(2))
    seen = torch.ones(2, 33, 6, dtype=torch.bool)
    seen[0, :20] = False
    rules = AttendedRules(rule_query, random(2, 4, 6, 8), random(2, 4, 6, 8), seen)
    mask = None
    if masked:
        mask = ALL_MASK_ATTENTION_FUNCTIONS[NAMES[before]](
            batch_size=2, q_length=33, kv_length=33, allow_is_causal_skip=False, dtype=dtype
        )
    module = tiny_model("llama").model.layers[0].self_attn
    plain = ALL_ATTENTION_FUNCTIONS.get_interface(before, eager_attention_forward)
    base = plain(module, query, key, value, mask, scaling=8**-0.5)[0]
    ours, _ = ALL_ATTENTION_FUNCTIONS[NAMES[before]](
        module, query, key, value, mask, scaling=8**-0.5, attended_rules=rules
    )
    assert torch.equal(ours[0, :20], base[0, :20])
    assert not torch.isclose(ours[0, 20:], base[0, 20:]).all(-1).any()


@pytest.mark.parametrize(
    ("merge_from", "dtype"), [(1, torch.float32), (32, torch.float32), (1, torch.bfloat16)]
)
@torch.no_grad()
def test_cached_generation_is_the_full_forward_through_searches(
    family, dtype, merge_from, bank, tiny_model, monkeypatch, near, in_pieces
):
    monkeypatch.setattr("dynarule.kernels.MERGE_MIN_TOKENS", merge_from)
    model = tiny_model(family, dtype)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    adapter[2].v.weight.mul_(4)  # what a <search> changes stands out of bf16's rounding
    memory = RuleMemory(adapter, bank.to("cpu", dtype), SEARCH)
    full, mask, question = answers(*batch())
    with attach(model, memory):
        stepwise = in_pieces(model, full, mask, PIECES)
        told = sorted((r.row, r.step, r.layer, tuple(r.ids)) for r in memory.trace)
        memory.question_mask_BT = question
        at_once = in_pieces(model, full, mask, WHOLE)
        told_at_once = sorted((r.row, r.step, r.layer, tuple(r.ids)) for r in memory.trace)
        memory.search_token_id = None
        without = in_pieces(model, full, mask, WHOLE)
    real = mask.bool()
    if dtype == torch.float32:
        assert near(stepwise[real], at_once[real])
        assert told == told_at_once
    else:
        # bf16 rounds differently in the two shapes: how far, against what a <search> that changes no rules is off.
        searched = ((full == SEARCH) & ~question).cumsum(-1) > 0
        error_BT, omitted_BT = ((a - at_once).float().abs().mean(-1) for a in (stepwise, without))
        assert error_BT[real].mean() < omitted_BT[searched].mean() / 3
        for row in range(len(full)):
            assert error_BT[row, searched[row]].mean() < omitted_BT[row, searched[row]].mean() / 2
    assert [r[:3] for r in told] == [(row, step, 2) for row, n in enumerate((3, 2, 2)) for step in range(n)]


@torch.no_grad()
def test_layers_after_the_confidence_layer_can_read_what_it_keeps(bank, tiny_model, near, in_pieces):
    """The same rules through projections of their own; token by token as at once; nothing before the first layer."""
    model = tiny_model("qwen2")
    config = dynarule_config(WIDTH, confidence_layer=1, first_layer=1, shared_after=True, top_k=5)
    adapter = RuleAdapter(model, config)
    assert sorted(adapter.layers) == [str(layer) for layer in range(1, adapter.num_layers)]
    memory = RuleMemory(adapter, bank, SEARCH)
    full, mask, question = answers(*batch())
    with attach(model, memory):
        stepwise = in_pieces(model, full, mask, PIECES)
        last = {}
        for each in memory.trace:
            assert each.layer == 1
            last[each.row] = each.ids
        place = {name: i for i, name in enumerate(bank.ids)}
        for row, ids in last.items():
            rows = [place[name] for name in ids]
            for layer in range(1, adapter.num_layers):
                value = adapter[layer].heads(adapter[layer].values(bank.values_MP[rows]))
                assert near(memory._kept[layer][1][row], value)
        memory.question_mask_BT = question
        at_once = in_pieces(model, full, mask, WHOLE)
    assert near(stepwise[mask.bool()], at_once[mask.bool()])


@torch.no_grad()
def test_keeping_all_rules_is_not_pruning_whenever_rows_search(bank, tiny_model, near, in_pieces):
    """All rows share one copy until one of them searches alone; what is read stays all the rules."""
    full, mask, question = answers(*batch())
    results = []
    for top_k in (None, len(bank), len(bank) + 50):
        model = tiny_model("qwen2")  # with the same weights, and so the same adapter
        adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=top_k))
        for pieces in (WHOLE, PIECES):
            memory = RuleMemory(adapter, bank, SEARCH)
            memory.question_mask_BT = question[:, : pieces[0]]
            with attach(model, memory):
                results.append(in_pieces(model, full, mask, pieces)[mask.bool()])
    assert all(near(results[0], other) for other in results[1:])
