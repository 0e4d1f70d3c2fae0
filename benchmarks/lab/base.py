"""A small base of one's own: a Llama with biases in its attention, and first weights from which lookups emerge.

It is no Qwen2, which has the same biases, because transformers reads every tokenizer beside a ``qwen2`` configuration
as Qwen's own. Its tokenizer is that of the model in the box: one token for each word of RuleWorld 1.1.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from ruleworld_data.world import load_vocabulary
from transformers import LlamaConfig, LlamaForCausalLM

EMBEDDING_STD = 0.02
OWN_SHARE = 0.5  # standard deviation of a form's own part of its embedding, relative to the part of its stem
LOOK_BACK_SIZE = 6.0
FREE_HEADS = 2  # heads of the first layer that begin without a distance of their own


def new_base(shape: dict[str, int], tokenizer: Any, seed: int) -> LlamaForCausalLM:
    """Return a random base; forms of one word (``▁royal``, ``Royal``, ``_royal``) begin near to each other."""
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    vocab_size = -(-len(tokens) // 64) * 64  # spare rows: `<search>` takes one
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(**shape, **special, vocab_size=vocab_size, tie_word_embeddings=True, attention_bias=True)
    )
    model.generation_config.do_sample = False
    stems = _stems(tokens)
    number = {stem: i for i, stem in enumerate(dict.fromkeys(stems))}
    rows = torch.tensor([number[stem] for stem in stems])
    with torch.no_grad():
        shared = torch.randn(len(number), model.config.hidden_size)[rows]
        own = torch.randn(len(rows), model.config.hidden_size)
        mixed = (shared + OWN_SHARE * own) / (1 + OWN_SHARE**2) ** 0.5
        model.model.embed_tokens.weight[: len(rows)] = EMBEDDING_STD * mixed
    _look_back(model)
    return model


def _stems(tokens: list[str]) -> list[str]:
    """Return what each token shares with its other forms: plural and singular, verb forms and their base."""
    terms = load_vocabulary()
    forms: dict[str, str] = {}
    for verb in (*terms.actions, *terms.minus, *terms.plus):
        for form in (verb.base, verb.third, verb.past, verb.gerund, verb.participle):
            forms.setdefault(form, verb.base)
    for singular, plural in zip(terms.attributes, terms.attribute_plurals, strict=True):
        forms.setdefault(plural.split()[-1], singular.split()[-1])
    words = [token.replace("▁", "").lstrip("_").lower() for token in tokens]
    return [
        forms.get(word, word) if re.fullmatch("[a-z]{2,}", word) else word if word.isdigit() else token
        for token, word in zip(tokens, words, strict=True)
    ]


@torch.no_grad()
def _look_back(model: LlamaForCausalLM) -> None:
    """Set the biases of the first layer's heads so that head i begins by looking i + 1 tokens back.

    Lookup by content needs, before all else, states that know the tokens before them. The rotary scores of two
    constant vectors depend on the distance alone, so the biases can say it at once; without it, no lookup had emerged
    after 4.8 million tokens.
    """
    config: Any = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    width = config.hidden_size // heads
    pairs = width // 2
    frequency = config.rope_parameters["rope_theta"] ** -(torch.arange(pairs) * 2 / width)
    size = LOOK_BACK_SIZE * torch.exp2(-torch.arange(pairs) / 4)  # high frequencies tell neighbours apart
    attention: Any = model.model.layers[0].self_attn
    back = torch.arange(1, heads - FREE_HEADS + 1).unsqueeze(1) * frequency
    rotated = torch.cat((size * back.cos(), size * -back.sin()), dim=1)
    attention.q_proj.bias.view(heads, width)[: len(rotated)] = rotated
    attention.k_proj.bias.view(kv_heads, width)[:] = torch.cat((size, torch.zeros(pairs)))
