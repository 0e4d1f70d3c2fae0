"""Who deletes `dynarule.plus` keeps the paper's method and its relatives."""

import subprocess
import sys
from pathlib import Path

import pytest

TINY = next(Path(__file__).parents[3].glob("benchmarks/**/models/tiny"))
PROGRAM = """
import sys
sys.modules["dynarule.plus"] = None  # any import of it, or of what is in it, fails
import torch
from transformers import AutoModelForCausalLM
from dynarule import (DynaRuleConfig, RuleBank, encoder_of, generate, load_adapter, load_tokenizer, prepare_search,
    question_prompts)
from dynarule.memory import TrainingMemory

base, folder = sys.argv[1:]
config = DynaRuleConfig.from_pretrained(folder)
tokenizer = load_tokenizer(folder if config.search_id is not None else base)
model = AutoModelForCausalLM.from_pretrained(base)
if config.search_id is not None:
    prepare_search(model, tokenizer, config.search_token)
model = load_adapter(model, folder, config=config)
rules = [f"If A is a {name} cat, it has 3 wet crests." for name in ("tiny", "feral", "rustic")]
bank = RuleBank.from_texts(rules, None, encoder_of(config.encoder, model, tokenizer))
(answer,) = generate(
    model, tokenizer, bank, question_prompts(tokenizer, ["How many wet crests has a feral cat?"]), max_new_tokens=30
)
assert answer.text and (config.confidence_layer is None or answer.trace[0].ids[0] == "1"), answer
TrainingMemory(model)
assert not [name for name, module in sys.modules.items() if name.startswith("dynarule.plus") and module]
"""


@pytest.mark.parametrize("method", ["dynarule", "srki", "kblam"])
def test_the_papers_methods_answer_without_it(method):
    folder = TINY / f"{method}-nl"
    subprocess.run([sys.executable, "-c", PROGRAM, TINY / "base", folder], check=True, timeout=300)
