"""Who deletes `dynarule.plus` keeps the paper's method and its relatives."""

import subprocess
import sys
from pathlib import Path

TINY = next(Path(__file__).parents[3].glob("benchmarks/**/models/tiny"))
PROGRAM = """
import sys
sys.modules["dynarule.plus"] = None  # any import of it, or of what is in it, fails
import torch
from transformers import AutoModelForCausalLM
from dynarule import (DynaRuleConfig, RuleBank, encoder_of, generate, load_adapter, load_tokenizer, prepare_search,
    question_prompts)
from dynarule.memory import TrainingMemory

base, *folders = sys.argv[1:]
for folder in folders:
    config = DynaRuleConfig.from_pretrained(folder)
    tokenizer = load_tokenizer(folder if config.search_id is not None else base)
    model = AutoModelForCausalLM.from_pretrained(base)
    if config.search_id is not None:
        prepare_search(model, tokenizer, config.search_token)
    model = load_adapter(model, folder, config=config)
    rules = [f"If A is a {name} cat, it has 3 wet crests." for name in ("tiny", "feral", "rustic")]
    bank = RuleBank.from_texts(rules, None, encoder_of(config.encoder, model, tokenizer))
    prompts = question_prompts(tokenizer, ["How many wet crests has a feral cat?"])
    (answer,) = generate(model, tokenizer, bank, prompts, max_new_tokens=8)
    assert answer.text and (config.confidence_layer is None or answer.trace[-1].ids[0] == "1"), answer
    TrainingMemory(model)
assert not [name for name, module in sys.modules.items() if name.startswith("dynarule.plus") and module]
"""


def test_the_papers_methods_answer_without_it():
    folders = [TINY / f"{method}-nl" for method in ("dynarule-premise", "kblam")]
    subprocess.run([sys.executable, "-c", PROGRAM, TINY / "base", *folders], check=True, timeout=300)
