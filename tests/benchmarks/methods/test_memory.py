"""KBLaM, SR-KI and DynaRule on random adapters: each question sees its own pool, and the trace is what was kept."""

import dataclasses
import hashlib
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dynarule.memory.serving import Retrieval
from peft import PeftModel
from rwbench.backends.local import Local
from rwbench.methods import Method
from rwbench.methods.memory import SRKI, Confidence, DynaRule, KBLaM
from rwbench.models import adapter_folder, reader
from rwbench.run.pools import pools_of
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples
from transformers import AutoModelForCausalLM, AutoTokenizer

from dynarule import (
    DynaRuleConfig,
    Generation,
    RuleAdapter,
    RuleBank,
    RuleMemory,
    dynarule_config,
    generate,
    kblam_config,
    measure_confidence,
    question_prompts,
    srki_config,
)

WIDTH = 24
METHODS = (KBLaM, SRKI, DynaRule)


class Hashed:
    """An encoder without a model: a text's hash, as a unit vector."""

    fingerprint = "hashed"

    def __call__(self, texts):
        rows = [np.frombuffer(hashlib.shake_256(t.encode()).digest(WIDTH), np.uint8) for t in texts]
        table = torch.tensor(np.array(rows, dtype=np.float32).reshape(-1, WIDTH)) - 127.5
        return table / table.norm(dim=-1, keepdim=True)


@pytest.fixture(scope="module")
def folder(save_model, workspace, tmp_path_factory):
    """A random base with a random adapter of each kind; the base writes <search> now and then."""
    words = [q.text for q in workspace.questions("multi_hop_2", "mini")]
    folder = save_model(tmp_path_factory.mktemp("memory") / "model", layers=4, words=words)
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    torch.manual_seed(1)
    row = tokenizer.convert_tokens_to_ids("<search>")
    for method, config in (
        ("kblam", kblam_config(WIDTH)),
        ("srki", srki_config(WIDTH, 2, top_k=10)),
        ("dynarule", dynarule_config(WIDTH, 3, top_k=10)),
    ):
        model = AutoModelForCausalLM.from_pretrained(folder / "base")
        config.encoder = "hashed"
        adapter = RuleAdapter(model, config)
        for parameter in adapter.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.5)
        if method == "dynarule":
            adapter.train_search(row)[-1].data *= 3  # a row that wins often enough to be searched with
        adapter.save(folder / method, tokenizer if method == "dynarule" else None)
    return folder


@pytest.fixture(autouse=True)
def hashed(monkeypatch):
    monkeypatch.setattr(reader, "encoder_of", lambda *_: Hashed())
    reader.load_reader.cache_clear()
    yield
    reader.load_reader.cache_clear()


def make(kind, folder, batch_size=4, **changes):
    return kind.of(Local.of(str(folder), batch_size=batch_size), "nl", max_new_tokens=12, **changes)


@pytest.fixture
def run(workspace, options, tmp_path):
    """A function that runs a method on some sub-tasks and returns the spec, its results and samples."""

    def do(method, *subtasks, size=100, scope="question", limit=None):
        spec = options.spec(method, "nl", size, scope)
        spec = dataclasses.replace(spec, subtasks=subtasks, limit=limit or spec.limit)
        results = run_spec(spec, workspace, tmp_path / "runs")
        assert results["n"]["failed"] == 0
        return spec, results, read_samples(tmp_path / "runs" / spec.run_id / "samples.jsonl")

    return do


def adapted(folder, name):
    """The base of a folder with one of its adapters, and the tokenizer: the reference that knows nothing of rwbench."""
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder / "base"), folder / name)
    return model, AutoTokenizer.from_pretrained(folder / "base")


def bank_of(pool):
    texts, ends = (pool.rules.texts(pool.ids, name) for name in ("nl", "conclusion_nl"))
    return RuleBank.from_texts(texts, ends, Hashed(), [str(i) for i in pool.ids])


def gold_of(sample):
    return [rule for step in sample["gold_rules"] for rule in step]


def test_a_memory_answers_no_request_and_gets_none(folder, run, monkeypatch, tmp_path):
    """The word that an answer begins with is called a request: in its place the answer begins a step."""
    method = make(DynaRule, folder)
    *_, before = run(method, "single_rule")
    shutil.rmtree(tmp_path / "runs")
    tokenizer = reader.load_reader(str(folder), adapter_folder(str(folder), "dynarule", "nl")).tokenizer
    request = tokenizer.decode([tokenizer(before[0]["output"])["input_ids"][0]])
    monkeypatch.setattr(Local, "template", dataclasses.replace(method.model.template, request=request))
    mark = min({*filter(str.isalpha, filter(str.isascii, tokenizer.get_vocab()))} - {request})
    monkeypatch.setattr(reader, "step_mark", lambda *_: mark)
    reader.load_reader.cache_clear()
    *_, after = run(method, "single_rule")
    asks = [sample["output"].startswith(request) for sample in before]
    assert any(asks)
    assert not any(sample["output"].startswith(request) for sample in after)
    for old, new, asked in zip(before, after, asks, strict=True):
        assert asked or request in old["output"] or new["output"] == old["output"]
        assert not asked or new["output"].startswith(mark)


@pytest.mark.parametrize(("kind", "kept"), [*((kind, None) for kind in METHODS), (DynaRule, 4)])
def test_batches_of_several_pools_equal_one_question_at_a_time(kind, kept, folder, workspace, run):
    """The reference has no masks: a bank of the question's own hundred rules, and `dynarule.generate`."""
    spec, results, samples = run(make(kind, folder, kept=kept), "single_rule", "multi_hop_2", "multi_rule_2")
    assert ("4 kept" in results["method"]["label"]) == (kept is not None)
    model, tokenizer = adapted(folder, kind.name)
    if kind is KBLaM:  # traced where DynaRule's confidence layer is
        model.active_peft_config.confidence_layer, model.active_peft_config.update_scope = 3, "none"
    if kept is not None:
        model.active_peft_config.top_k = kept
    search = tokenizer.convert_tokens_to_ids("<search>") if kind is DynaRule else None
    layer = {KBLaM: 3, SRKI: 2, DynaRule: 3}[kind]
    most = 0
    for pool in pools_of(spec, workspace):
        (question,) = pool.questions
        memory, prompt = RuleMemory(model, bank_of(pool), search), question.text + "\n"
        (wanted,) = generate(model, tokenizer, memory, [prompt], max_new_tokens=12)
        sample = next(s for s in samples if s["id"] == question.id)
        assert sample["output"] == wanted.text
        steps = [[int(i) for i in step.ids] for step in wanted.trace if step.layer == layer]
        assert sample["retrieved"] == steps
        usage = {name: sample["usage"][name] for name in ("retrievals", "completion_tokens", "prompt_tokens")}
        assert [*usage.values()] == [len(steps), len(wanted.token_ids), len(tokenizer(prompt)["input_ids"])]
        most = max(most, len(steps))
        if kind is DynaRule:  # a step that was not searched for counts 0, as in the paper; also if none was
            gold = question.gold_steps
            hits = [set(ids[: len(want)]) & set(want) for ids, want in zip(steps, gold, strict=False)]
            recall = sum(len(hit) / len(want) for hit, want in zip(hits, gold, strict=False)) / len(gold)
            assert sample["scores"]["step_recall@1"] == pytest.approx(recall)
        else:
            assert "step_recall@1" not in sample["scores"]
        if len(steps) > 1:
            assert [step["retrieved"] for step in sample["trace"]] == steps
            assert "".join(step["text"] or "" for step in sample["trace"]) == sample["output"]
    assert most > 1 if kind is DynaRule else most == 1


def test_an_adapter_that_reads_tokens_answers_with_them(folder, workspace, run, tmp_path):
    """The reference: a bank of the question's own hundred rules, a base as it is, and `dynarule.generate`."""
    tokens = shutil.copytree(folder, tmp_path / "tokens")
    config = dynarule_config(WIDTH, 2, top_k=10, reading="tokens", search_token="<search>", encoder="hashed")
    RuleAdapter(AutoModelForCausalLM.from_pretrained(folder / "base"), config).save(tokens / "srki")
    spec, _, samples = run(make(SRKI, tokens), "multi_hop_2")
    model, tokenizer = adapted(tokens, "srki")
    for pool in pools_of(spec, workspace):
        (question,) = pool.questions
        prompt = question_prompts(tokenizer, [question.text], "\n")
        (wanted,) = generate(model, tokenizer, bank_of(pool), prompt, max_new_tokens=12)
        sample = next(s for s in samples if s["id"] == question.id)
        assert sample["output"] == wanted.text
        assert sample["retrieved"] == [[int(i) for i in step.ids] for step in wanted.trace]


def test_an_answer_that_opens_with_search_finds_its_first_step_there(folder, workspace, options):
    """Nothing is read between the prompt and an opening <search>, so what the prompt found is no step's."""
    method = make(DynaRule, folder)
    (question, *_) = workspace.questions("multi_hop_2", "mini")
    trace = tuple(Retrieval(0, step, 3, [str(step)], ["rule"], [1.0]) for step in range(3))
    config = SimpleNamespace(search_place="before")
    reader = SimpleNamespace(search_text="<search>", question_tokens=list, config=config)

    def output(text, trace=trace):
        answer = Generation(text, trace, (1, 2))
        return method._output(question, answer, reader, 3, 10, {"retrieve": 0.0, "generate": 0.0})

    plain, opened = output("a <search>b <search>c"), output("<search>a <search>b")
    assert plain.retrieved == [[0], [1], [2]] and opened.retrieved == [[1], [2]]
    assert [(step["retrieved"], step["text"]) for step in opened.trace] == [([1], "a "), ([2], "b")]
    assert (plain.text, opened.text) == ("a b c", "a b")
    once = output("<search>a <search>b", trace[:1])  # a memory that keeps what the prompt found
    assert (once.retrieved, once.text) == ([[0]], "a b")
    config.search_place = "behind"
    behind = output("[1] a\n[2]<search> b\n[3]<search> c\n")
    assert [(*step["retrieved"], step["text"]) for step in behind.trace] == [
        (0, "[1] a\n"),
        (1, "[2] b\n"),
        (2, "[3] c\n"),
    ]
    assert behind.text == "[1] a\n[2] b\n[3] c\n"
    config.search_place = "premise"
    found = [["9"], ["1", "2", "3"], ["4", "1"], ["5"]]  # by the prompt, by two searches of one step, by one
    searches = tuple(Retrieval(0, step, 3, ids, ids, [1.0] * len(ids)) for step, ids in enumerate(found))
    premise = output("[1] a<search> b. c<search> d\n[2] e<search> f\n[A] g", searches)
    assert premise.retrieved == [[1, 4, 2, 3], [5]] and premise.text == "[1] a b. c d\n[2] e f\n[A] g"
    assert [step["text"] for step in premise.trace] == ["[1] a b. c d\n", "[2] e f\n[A] g"]


@pytest.mark.parametrize(
    ("kind", "changes", "held"),
    [
        *((kind, {"rules": "gold"}, "gold alone") for kind in METHODS),
        (KBLaM, {"rules": "without_gold"}, "others"),
        (KBLaM, {"correct_layer": 0}, "others"),
        (KBLaM, {"correct_layer": 3}, "all"),  # the layer that is traced
    ],
)
def test_gold_rules_are_in_memory_where_they_should_be(kind, changes, held, folder, run):
    """Alone, where a search keeps no more than there is; nowhere, and others in their place; in one layer."""
    for sample in run(make(kind, folder, **changes), "multi_rule_3")[2]:
        gold = set(gold_of(sample))
        for ids in sample["retrieved"]:
            assert set(ids) & gold == (set() if held == "others" else gold)
            assert (set(ids) == gold) == (held == "gold alone")
        if changes.get("rules") == "without_gold":
            assert len(sample["retrieved"][0]) == 100 and sample["scores"]["recall@10"] == 0


def test_attention_weighs_gold_rules_by_step(folder, run):
    for sample in run(make(KBLaM, folder), "multi_hop_3")[2]:
        (row,) = sample["measures"]["rule_attention"]
        gold = list(dict.fromkeys(gold_of(sample)))
        assert len(row) == len(gold) and 0 < sum(row) < 1
        ranks = [sample["retrieved"][0].index(rule) for rule in gold]
        assert [row[i] for i in np.argsort(ranks)] == sorted(row, reverse=True)
        steps = sample["measures"]["rule_attention_step"]
        assert all(rule in sample["gold_rules"][step] for rule, step in zip(gold, steps, strict=True))


def test_another_adapter_is_another_run(folder, workspace, options, tmp_path):
    method = dataclasses.replace(make(SRKI, folder), adapter="0" * 12)
    with pytest.raises(ValueError, match="is not the one that the run was made for"):
        run_spec(options.spec(method, "nl", 100, "question"), workspace, tmp_path)


def test_confidence_measures_each_layer_and_answers_nothing(folder, workspace, run):
    method = make(Confidence, folder)
    assert method.adapter == make(DynaRule, folder).adapter
    spec, _, (sample,) = run(method, "single_rule", limit=1)
    assert (sample["answers"], sample["retrieved"], sample["scores"]) == (None, None, {})
    assert sample["measures"]["rule_layers"] == [0, 1, 2, 3]
    (pool,) = pools_of(spec, workspace)
    with pytest.warns(UserWarning, match="noisy"):
        curve = measure_confidence(
            *adapted(folder, "dynarule"), bank_of(pool), [f"{pool.questions[0].text}\n"]
        )
    assert sample["measures"]["rule_entropy"] == pytest.approx(curve.mean, abs=1e-5)


@pytest.mark.parametrize(
    "confidence, first, every, traced", [(1, 2, 1, 2), (3, 2, 1, 3), (3, 0, 2, 2), (3, 1, 3, 1)]
)
def test_kblam_is_traced_in_a_layer_that_holds_rules(folder, tmp_path, confidence, first, every, traced):
    """At DynaRule's confidence layer, or the last before it, or the first there is."""
    shutil.copytree(folder / "base", tmp_path / "base")
    config = DynaRuleConfig(encoder_dim=WIDTH, first_layer=first, every=every, update_scope="none")
    config.save_pretrained(tmp_path / "kblam")
    dynarule_config(WIDTH, confidence, top_k=10).save_pretrained(tmp_path / "dynarule")
    model = Local(model=str(tmp_path))
    assert KBLaM.of(model, "nl").trace_layer == traced
    assert traced in config.layers(4)
    DynaRuleConfig(encoder_dim=WIDTH, every=3).save_pretrained(tmp_path / "kblam-other")
    assert KBLaM.of(model, "nl", variant="other").trace_layer == confidence - confidence % 3


def test_a_variant_is_another_adapter_of_the_method(folder, tmp_path):
    for part in ("base", "dynarule"):
        shutil.copytree(folder / part, tmp_path / part)
    usual, other = make(DynaRule, tmp_path), make(DynaRule, tmp_path, variant="seed-1")
    assert (
        other.missing() == f"an adapter in the folder {tmp_path}/dynarule-seed-1; see: dynarule train --help"
    )
    assert "variant" not in usual.to_dict()  # older runs keep their ids
    shutil.copytree(folder / "dynarule", tmp_path / "dynarule-seed-1-nl")
    config = tmp_path / "dynarule-seed-1-nl/adapter_config.json"
    config.write_text(config.read_text().replace('"top_k": 10', '"top_k": 3'))
    other = make(DynaRule, tmp_path, variant="seed-1")
    assert other.adapter != usual.adapter and other.label.endswith("seed 1")
    assert (usual.reader("nl").config.top_k, other.reader("nl").config.top_k) == (10, 3)
    assert Method.from_dict(other.to_dict()) == other
