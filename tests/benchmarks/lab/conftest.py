"""The scripts of the lab, which are not installed, and small random models to train."""

import sys
from pathlib import Path

import pytest
import torch
from rwbench.backends.local import load_tokenizer
from rwbench.models import base_folder
from transformers import LlamaConfig, LlamaForCausalLM

LAB = Path(__file__).parents[3] / "benchmarks/lab"
sys.path.insert(0, str(LAB))
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 2048,
}


@pytest.fixture
def own(tmp_path):
    """A model folder with a random base, to put adapters into."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    tokenizer, folder = load_tokenizer(base_folder("tiny")), tmp_path / "own"
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    size = -(-len(tokenizer) // 64) * 64  # spare rows: `<search>` takes one
    LlamaForCausalLM(
        LlamaConfig(**SHAPE, **ids, vocab_size=size, tie_word_embeddings=True, attention_bias=True)
    ).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return folder
