"""Tiny random models of the three families, and a random bank."""

import pytest
import torch

FAMILIES = ("qwen2", "qwen3", "llama")
WIDTH = 20


def make_model(family: str, dtype: torch.dtype = torch.float32, **changes):
    """A random model whose weights are large enough that attention is not uniform."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    config_class, model_class, extra = {
        "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
        "llama": (LlamaConfig, LlamaForCausalLM, {}),
    }[family]
    settings = {
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 95,
        "eos_token_id": 96,
    }
    torch.manual_seed(0)
    model = model_class(config_class(**(settings | extra | changes))).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model.to(dtype).requires_grad_(False)


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="session")
def tiny_model():
    """The function that makes a tiny model of a family."""
    return make_model


@pytest.fixture
def bank():
    from dynarule import RuleBank

    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(30, WIDTH, generator=generator) for _ in range(2))
    return RuleBank(keys, values, [f"r{i}" for i in range(30)], [f"rule {i}" for i in range(30)])
