"""A small training, for tests and for the processes that they start."""

import runpy
from pathlib import Path

import pytest
import torch
from dynarule.training import paper_recipe, train
from dynarule.training.data import target_text

from dynarule import RuleAdapter, RuleBank, dynarule_config

WIDTH, RULES = 12, 40
WORDS = ("fox", "owl", "cat", "dog", "wet", "sad", "old", "shy")
SHARED = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))


def make_rows(count=60):
    """Questions whose words name their rules; one in two has two steps."""
    rows = []
    for i in range(count):
        a, b = WORDS[i % 8], WORDS[(i // 8 + i) % 8]
        steps = [{"text": f"the {a} is {b} .", "rule_ids": [i % RULES]}]
        if i % 2:
            steps.append({"text": f"so it has {i % 7} .", "rule_ids": [(3 * i) % RULES, (i + 1) % RULES]})
        family = ("single_rule", "multi_rule", "multi_hop", "multi_hop")[i % 4]
        rows.append(
            {"question": f"is the {a} {b} {i} ?", "steps": steps, "answers": [str(i % 7)], "family": family}
        )
    return rows


def make_case(config=None):
    """Model, tokenizer, adapter, rows, bank."""
    rows = make_rows()
    tokenizer = SHARED["make_word_tokenizer"]([target_text(row) + row["question"] for row in rows])
    torch.manual_seed(0)
    model = SHARED["make_model"]("qwen2", num_hidden_layers=2, vocab_size=len(tokenizer) + 3)
    adapter = RuleAdapter(model, config or dynarule_config(WIDTH, confidence_layer=1, top_k=6))
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(RULES, WIDTH, generator=generator) for _ in range(2))
    bank = RuleBank(keys, values, [str(i) for i in range(RULES)], [f"rule {i}" for i in range(RULES)], "test")
    return model, tokenizer, adapter, rows, bank


def quick_recipe(method="dynarule", stage=2, **changes):
    """The paper's recipe, small and with a rate that moves something in four steps."""
    small = {"batch_size": 4, "accumulation": 2, "pool_size": 20, "max_steps": 4, "learning_rate": 1e-2}
    return paper_recipe(method, stage, **(small | changes))


def run(case, folder, recipe, **arguments):
    settings = {"use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    return train(*case, recipe, folder, **(settings | arguments))


@pytest.fixture
def case():
    return make_case()


_make_case, _run, quick = map(
    SHARED["as_fixture"], (make_case, run, quick_recipe), ("make_case", "run", "quick")
)
