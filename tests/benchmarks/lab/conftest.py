"""The scripts of the lab, which are not installed, and small random models to train."""

import sys
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def tokenizer():
    from rwbench.backends.local import load_tokenizer
    from rwbench.models import base_folder

    return load_tokenizer(base_folder("tiny"))


@pytest.fixture(scope="session")
def writer(tokenizer):
    from documents import Writer

    return Writer(tokenizer, "<step>", 0.15)


@pytest.fixture(scope="session")
def model(tokenizer, tmp_path_factory):
    """A random base as a model folder; no test changes it."""
    import torch
    from base import new_base

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("lab") / "random"
    new_base(SHAPE, tokenizer, 7).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
