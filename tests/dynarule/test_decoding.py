"""A key-value cache that is not copied at each token, beside the one of transformers."""

import copy
from types import SimpleNamespace

import pytest
import torch
from dynarule.decoding import ROOM, growing_cache
from transformers import DynamicCache, LlamaConfig, Qwen2Config, Qwen3NextConfig

from dynarule import generate

PROMPTS = ["w11 w12 w13", "w20"]


def test_each_batch_has_a_growing_cache_unless_a_call_names_another(bank, ready):
    model, tokenizer, _ = ready()
    caches = []
    model.register_forward_pre_hook(
        lambda _module, _args, given: caches.append(given["past_key_values"]), with_kwargs=True
    )

    def ask(**options):
        caches.clear()
        return generate(model, tokenizer, bank, PROMPTS, max_new_tokens=4, batch_size=1, **options)

    usual = ask()
    assert {type(each.layers[0]) for each in caches} == {type(growing_cache(model).layers[0])}
    assert len({id(each) for each in caches}) == 2
    assert ask(cache_implementation="dynamic") == usual
    model.generation_config.cache_implementation = "dynamic"
    assert ask() == usual
    assert {type(each.layers[0]) for each in caches} == {type(DynamicCache(config=model.config).layers[0])}


@pytest.mark.parametrize("tokens", [1, ROOM - 1, ROOM + 2])
def test_a_growing_cache_holds_what_transformers_own_does(tokens):
    """Whatever is appended, repeated, chosen, taken back or copied in between, from both sides of its room."""
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=2, hidden_size=8)
    own, theirs = growing_cache(SimpleNamespace(config=config)), DynamicCache(config=config)
    generator = torch.Generator().manual_seed(tokens)

    def append(rows, count):
        for layer in range(2):
            new = torch.randn(2, rows, 2, count, 4, generator=generator)
            for ours, right in zip(own.update(*new, layer), theirs.update(*new, layer), strict=True):
                assert torch.equal(ours, right)

    append(1, 3)
    append(1, tokens)
    first, kept = copy.deepcopy(own), own.layers[1].keys.clone()
    for each in (own, theirs):
        each.batch_repeat_interleave(3)
    append(3, 1)
    append(3, tokens)
    for each in (own, theirs):
        each.reorder_cache(torch.tensor([2, 0, 1]))
    append(3, 1)
    for each in (own, theirs):
        each.batch_select_indices(torch.tensor([0, 2]))
    append(2, 1)
    for each in (own, theirs):
        each.crop(-2)
    append(2, 1)
    assert own.get_seq_length() == theirs.get_seq_length() == 2 * tokens + 5
    first.update(*torch.zeros(2, 1, 2, 1, 4), 1)  # a copy goes its own way
    assert torch.equal(first.layers[1].keys[..., :-1, :], kept)
    assert not torch.equal(own.layers[1].keys[:1, :, : kept.shape[-2] + 1], first.layers[1].keys)


def test_layers_that_keep_more_than_keys_and_values_get_no_cache_of_ours():
    config = Qwen3NextConfig(num_hidden_layers=4, hidden_size=8, num_attention_heads=2, num_key_value_heads=1)
    assert growing_cache(SimpleNamespace(config=config)) is None


def test_layers_with_a_window_are_those_of_transformers():
    config = Qwen2Config(num_hidden_layers=2, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    kinds = [type(layer) for layer in DynamicCache(config=config).layers]
    whole, window = growing_cache(SimpleNamespace(config=config)).layers
    assert kinds[0] is not kinds[1] and type(window) is kinds[1] and isinstance(whole, kinds[0])
