"""Efficiency: tiny shapes; what is timed is the right computation, files resume, mistakes are named."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from dynarule.bank import ExactIndex
from ruleworld_data.io import Progress
from rwbench.cli.app import app
from rwbench.efficiency.conditions import InjectedRules
from rwbench.efficiency.figure import draw
from rwbench.efficiency.search import MappedKeys, fitted_slope, search_times
from rwbench.efficiency.serving import floors, measure
from rwbench.efficiency.settings import (
    METHODS,
    PLUS,
    TOGETHER,
    Cell,
    RecallSettings,
    SearchSettings,
    ServingSettings,
    TrainingSettings,
    grid,
)
from rwbench.efficiency.tables import (
    recall_markdown,
    search_markdown,
    serving_markdown,
    targets,
    training_markdown,
)
from rwbench.efficiency.timing import ratios, spread
from rwbench.efficiency.training import make_batch, training_cost
from rwbench.efficiency.workload import SHAPES, random_model, random_rows
from typer.testing import CliRunner

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, kblam_config

RESULTS = Path(__file__).parents[3] / "benchmarks/results/efficiency"
TINY = ServingSettings(shape="tiny", encoder_dim=16, top_k=5, repeats=2, new_tokens=3, prompt_tokens=8)


def measured(tmp_path, cells, settings=TINY):
    return measure(
        settings, cells, tmp_path / "out", tmp_path / "cache", Progress("cells", len(cells)), apart=False
    )


@pytest.fixture(scope="module")
def model():
    return random_model(SHAPES["tiny"], "cpu", torch.float32)


def test_a_model_has_its_shape_and_reads_its_prompt(model):
    shape = SHAPES["tiny"]
    layer = shape.hidden * (2 * shape.hidden + 2 * shape.kv_heads * 8 + 3 * shape.ffn + 2)
    biases = shape.hidden + 2 * shape.kv_heads * 8
    total = shape.layers * (layer + biases) + shape.vocab * shape.hidden + shape.hidden
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    one, other = (model(torch.tensor([[token, 5, 6]])).logits[0, -1] for token in (1, 2))
    assert torch.isfinite(one).all() and not torch.allclose(one, other)


def test_random_rows_are_unit_vectors_of_a_key_and_the_first_of_a_longer_file(tmp_path):
    long, short = (random_rows(tmp_path, count, 16, "fp32", 3) for count in (400, 30))
    assert torch.equal(long[:30], short)
    assert torch.allclose(long.norm(dim=1), torch.ones(400), atol=1e-6)
    assert not torch.allclose(short, random_rows(tmp_path, 30, 16, "fp32", 4))
    assert random_rows(tmp_path, 30, 16, "fp16", 3).dtype == torch.float16
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence((3, 0))))
    first = stream.standard_normal(16, dtype=np.float32)
    assert np.allclose(long[0].numpy(), first / np.linalg.norm(first))


@torch.no_grad()
def test_injected_rules_are_what_a_memory_without_top_k_attends_to(model, tmp_path):
    adapter = RuleAdapter(model, kblam_config(16, every=1)).requires_grad_(False)
    keys, values = (random_rows(tmp_path, 30, 16, "fp32", key) for key in (0, 1))
    bank = RuleBank(keys, values, [str(i) for i in range(30)], [f"x{i}" for i in range(30)])
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with attach(model, InjectedRules(adapter, keys, values)):
        injected = model(ids).logits
    with attach(model, RuleMemory(adapter, bank)):
        expected = model(ids).logits
    assert torch.allclose(injected, expected, atol=1e-5)
    assert not torch.allclose(injected, model(ids).logits, atol=1e-3)


def test_every_method_is_measured_and_its_bytes_are_counted(tmp_path):
    cells = grid(tuple(METHODS), (0, 20))
    table = measured(tmp_path, cells)
    found = {(cell["method"], cell["rules"]): cell for cell in table["cells"]}
    assert set(found) == {(cell.method, cell.rules) for cell in cells}
    assert all(cell["status"] == "ok" for cell in found.values())
    ours = found["dynarule", 20]
    assert ours["bytes_per_rule"] == {"embeddings": 2 * 16 * 4, "1/sigma": 2 * 4}
    assert ours["ttft_ms"]["n"] == 2 and ours["decode_ms"]["n"] == 6 and ours["search_ms"]["n"] == 2
    assert ours["index"] == "exact" and ours["select_ms"]["median"] > 0
    plus = found["dynarule-plus", 20]
    assert plus["bytes_per_rule"] == {"embeddings": 2 * 16 * 4} and plus["search_ms"]["n"] == 2
    assert plus["cold_ttft_ms"]["median"] > plus["ttft_ms"]["median"]  # sixteen rules are read first
    again = found["dynarule-plus-together", 20]  # a set is read whenever it is found
    assert again["ttft_ms"]["median"] > plus["ttft_ms"]["median"] and "cold_ttft_ms" not in again
    assert found["prompting", 20]["prompt_tokens"] == 8 + 20 * 14
    assert found["inject-all", 20]["bytes_per_rule"] == {"keys and values": 2 * 2 * 32 * 4}
    assert found["inject-third", 20]["bytes_per_rule"] == {"keys and values": 2 * 32 * 4}
    text = serving_markdown(table)
    assert "| DynaRule | 20 |" in text and " cold)" in text and "not measured" in text


def test_rules_may_share_what_is_embedded(tmp_path):
    """As RuleWorld's do: an embedding for each premise and each conclusion, and for a rule which of them it has."""
    cells = [Cell(name, 20) for name in ("dynarule-plus", "dynarule", "inject-all")]
    table = measured(tmp_path, cells, replace(TINY, premises=3, conclusions=5))
    plus, ours, injected = (cell["bytes_per_rule"] for cell in table["cells"])
    embeddings = (3 + 5) * 16 * 4 / 20 + 2 * 4
    assert plus == {"embeddings": embeddings} and ours["embeddings"] == embeddings
    assert injected == {"keys and values": 2 * 2 * 32 * 4}
    assert "of 3 different premises and 5 different conclusions" in serving_markdown(table)
    (alone,) = measured(tmp_path / "own", cells[:1], replace(TINY, premises=20, conclusions=21))["cells"]
    assert alone["bytes_per_rule"] == {"embeddings": 2 * 16 * 4}


def test_a_table_of_before_a_setting_goes_on_with_its_default(tmp_path):
    cells = [Cell("dynarule-plus", 20), Cell("dynarule", 20)]
    table = measured(tmp_path, cells[:1])
    del table["settings"]["premises"]
    (tmp_path / "out/serving.json").write_text(json.dumps(table))
    with pytest.raises(ValueError, match="measured with premises 0"):
        measured(tmp_path, cells, replace(TINY, premises=3))
    assert len(measured(tmp_path, cells)["cells"]) == 2


def test_the_cost_is_that_of_the_recipe():
    """Reading and searching as the recipe has it, but for words, which random rules have not; its width is another."""
    for name, expected in (("plus", PLUS), ("plus-smollm2", PLUS | TOGETHER)):
        recipe = tomllib.loads((Path(__file__).parents[3] / f"benchmarks/adapters/{name}.toml").read_text())
        found = recipe["memory"] | {key: recipe[key] for key in ("confidence_layer", "top_k")}
        found.pop("word_weight", None)
        assert {"score_limit": None} | found == expected


def test_a_second_run_measures_only_what_is_missing(tmp_path):
    first = measured(tmp_path, [Cell("dynarule", 20)])
    both = measured(tmp_path, [Cell("dynarule", 20), Cell("dynarule", 30)])
    assert both["cells"][0] == first["cells"][0]
    assert [cell["rules"] for cell in both["cells"]] == [20, 30]
    with pytest.raises(ValueError, match=r"was measured with repeats 2; give the same options"):
        measured(tmp_path, [Cell("dynarule", 20)], replace(TINY, repeats=3))


def test_cells_that_cannot_run_say_why():
    shaped = ServingSettings()
    assert "140,072 tokens do not fit the context of 32,768" in Cell("prompting", 10_000).obstacle(shaped)
    assert "17.2 GB, allowed are 8" in Cell("inject-all", 100_000).obstacle(shaped)
    assert Cell("dynarule", 1_000_000).obstacle(shaped) is None


def test_targets_are_judged_on_the_medians():
    def cell(rules, ttft, decode):
        return {
            "method": "dynarule",
            "rules": rules,
            "status": "ok",
            "ttft_ratio": {"median": ttft},
            "decode_ratio": {"median": decode},
            "bytes_per_rule": {"embeddings": 3072.0, "1/sigma": 96.0} if rules else {},
        }

    table = {"settings": asdict(ServingSettings()), "cells": [cell(0, 1.0, 1.0), cell(10_000, 1.3, 1.1)]}
    verdicts = [(target["value"], target["met"]) for target in targets(table)]
    assert verdicts == [(1.3, True), (None, None), (1.1, False), (3168.0, True)]
    table["cells"].append(cell(1_000_000, 2.2, 1.0))
    table["cells"][-1]["bytes_per_rule"]["index codes and ids"] = 408.0
    assert [target["met"] for target in targets(table)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("cpu-qwen2-0.5b/serving", serving_markdown),
        ("cpu-qwen2-0.5b-million/serving", serving_markdown),
        ("cpu-qwen2-0.5b-plus/serving", serving_markdown),
        ("cpu-qwen2-0.5b-ruleworld/serving", serving_markdown),
        ("cpu-training/training", training_markdown),
        ("cpu-recall/recall-100000", recall_markdown),
    ],
)
def test_committed_tables_are_those_of_the_committed_results(name, markdown):
    table = json.loads((RESULTS / f"{name}.json").read_text())
    assert markdown(table) + "\n" == (RESULTS / f"{name}.md").read_text()
    if "targets" in table:
        assert table["targets"] == targets(table)


def test_floors_are_bytes_over_bandwidth():
    found = floors(ServingSettings(), {"status": "ok", "index": "exact", "rules": 10_000}, 10.0)
    # 24 layers x 10,000 x 384 x 4 bytes; Qwen2-0.5B has 494,032,768 parameters, of which 80,640 are biases and norms.
    assert found["select_floor_ms"] == pytest.approx(24 * 10_000 * 384 * 4 / 10e9 * 1e3, rel=1e-3)
    assert found["base_decode_floor_ms"] == pytest.approx(494_032_768 * 4 / 10e9 * 1e3, rel=1e-3)


def test_spread_and_ratios():
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == {"median": 3.0, "q25": 2.0, "q75": 4.0, "n": 5}
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_a_training_step_is_compared_with_one_that_sees_no_rules():
    settings = TrainingSettings(
        shape="tiny", encoder_dim=16, rules=60, top_k=10, batch=3, tokens=24, repeats=2
    )
    with_rules, without = (make_batch(settings, rules) for rules in (60, 0))
    assert torch.equal(with_rules["input_ids"], without["input_ids"])
    assert len(without["pool_M"]) == 0 and (without["gold_BSG"] == -1).all()
    assert len(set(with_rules["gold_BSG"].flatten().tolist())) == 3 * 3 * 2
    searched = with_rules["input_ids"].gather(1, with_rules["search_BS"])
    assert (searched == SHAPES["tiny"].vocab - 1).all()
    found = training_cost(settings)
    forward, backward, update = (
        found["with"][part]["median"] for part in ("forward", "backward", "optimizer")
    )
    assert min(forward, backward, update) > 0 and found["ratio"]["n"] == 2
    assert {"operation", "without", "with"} == set(found["profile"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serving", "--shape", "qwen9"], "shape must be one of qwen2-0.5b"),
        (["serving", "--rules", "ten"], "--rules must be whole numbers separated by commas, got 'ten'"),
        (["serving", "--methods", "rag"], "method must be one of dynarule"),
        (["serving", "--methods", "prompting", "--rules", "0"], "name nothing to measure"),
        (["serving", "--embeddings", "int8"], "embeddings must be one of fp32, fp16, got 'int8'"),
        (["training", "--rules", "10"], "raise --rules or lower --batch"),
        (["recall", "--rules", "10"], "Recall@100 needs 100 rules, got 10"),
    ],
)
def test_mistakes_are_named(words, message, tmp_path):
    result = CliRunner().invoke(app, ["efficiency", *words, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_that_is_not_ours_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "serving.json").write_text("[]")
    with pytest.raises(ValueError, match=r"is not a results file; delete it or choose another --out"):
        measured(tmp_path, [Cell("dynarule", 20)])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_line_in_the_figure(method, tmp_path):
    ratio = {"median": 1.2, "q25": 1.1, "q75": 1.3}
    cell = {"method": method, "rules": 20, "status": "ok", "ttft_ratio": ratio, "decode_ratio": ratio}
    draw({"cells": [cell]}, tmp_path / "serving.svg")
    assert METHODS[method] in (tmp_path / "serving.svg").read_text()


def test_the_command_writes_table_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("rwbench.efficiency.serving._run", lambda work, apart, *args: work(*args))
    words = [
        "efficiency",
        "serving",
        "--shape",
        "tiny",
        "--encoder-dim",
        "16",
        "--rules",
        "0,20",
        "--repeats",
        "1",
    ]
    words += ["--methods", "dynarule", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    table = json.loads(result.stdout)
    assert table == json.loads((tmp_path / "serving.json").read_text())
    assert table["environment"]["packages"]["torch"] and len(table["targets"]) == 4
    assert "time to first token" in (tmp_path / "serving.svg").read_text()
    assert "| DynaRule | 20 |" in (tmp_path / "serving.md").read_text()


def test_recall_of_indexes_on_a_tiny_world():
    import zlib
    from functools import cache

    from rwbench.efficiency.recall import index_recall

    @cache
    def vector(word):
        stream = np.random.Generator(np.random.Philox(zlib.crc32(word.encode())))
        return stream.standard_normal(32, dtype=np.float32)

    def encode(texts):
        """Bags of hashed words: alike where words are shared, as an encoder's are."""
        rows = np.zeros((len(texts), 32), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                rows[row] += vector(word)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    settings = RecallSettings(scale="tiny", rules=3_000, questions=100, training=300, train_steps=60)
    found = index_recall(settings, encode)
    assert found["real_rules"] + found["drawn_rules"] == 3_000 and found["queries"] == 100
    exact, *others = found["cells"]
    assert exact["recall"] == {"1": 1.0, "10": 1.0, "100": 1.0}
    assert all(cell["status"] == "not_run" or cell["recall"]["1"] > 0.8 for cell in others)
    assert found["gold_recall_at_1"] > 1 / 100


def test_the_search_that_is_timed_is_the_banks(tmp_path):
    rows = random_rows(tmp_path, 3_000, 16, "fp16", 0)
    names = [str(number) for number in range(3_000)]
    bank = RuleBank(rows, rows, names, names)
    asked = torch.randn(2, 16), torch.zeros(2), torch.ones(3_000), 7
    ours, banks = ExactIndex().search(MappedKeys(rows), *asked), ExactIndex().search(bank, *asked)
    assert all(torch.equal(one, other) for one, other in zip(ours, banks, strict=True))
    table = search_times(SearchSettings(encoder_dim=16, repeats=2, top_k=5), [3_000, 100], tmp_path)
    assert [cell["rules"] for cell in table["cells"]] == [100, 3_000]
    assert table["cells"][1]["megabytes"] == 3_000 * 16 * 2 / 1e6


def test_a_slope_is_that_of_the_line_in_logarithms():
    assert fitted_slope([(10, 0.5), (100, 2.0), (1_000, 20.0), (10_000, 200.0)]) == 1.0
    assert fitted_slope([(100, 4.0), (10_000, 40.0)]) == 0.5
    assert fitted_slope([(100, 0.1), (1_000, 2.0)]) is None


def test_the_page_says_what_dynarule_plus_costs():
    page = (RESULTS.parents[1] / "docs/efficiency.md").read_text(encoding="utf-8")
    page = " ".join(page[page.index("**DynaRule+** searches") :].split())
    table = json.loads((RESULTS / "cpu-qwen2-0.5b-plus/serving.json").read_text())
    cells = {cell["rules"]: cell for cell in table["cells"] if cell["method"] == "dynarule-plus"}
    few, many = cells[10_000], cells[100_000]

    def ratios_of(name):
        return [f"{cell[f'{name}_ratio']['median']:.2f}" for cell in (few, many)]

    def cold(cell):
        return f"{cell['cold_ttft_ms']['median'] / cell['base_ttft_ms']['median']:.2f}"

    first, later = ratios_of("ttft"), ratios_of("search")
    assert f"takes {first[0]} times that of the base among 10,000 rules and {first[1]} times among" in page
    assert (
        f"a further token {ratios_of('decode')[0]} times, a later search {later[0]} and {later[1]} times"
        in page
    )
    together = {cell["rules"]: cell for cell in table["cells"] if cell["method"] == "dynarule-plus-together"}
    few_ones, many_ones = (
        [f"{together[rules][f'{name}_ratio']['median']:.2f}" for name in ("ttft", "search", "decode")]
        for rules in (10_000, 100_000)
    )
    assert (
        f"takes {few_ones[0]} and {many_ones[0]} times, a later search {few_ones[1]} and {many_ones[1]} times a token, "
        f"a further token {few_ones[2]}." in page
    )
    assert f"new takes {cold(few)} times among 10,000 rules and {cold(many)} times among 100,000" in page


def test_the_page_on_scale_says_what_was_measured():
    """Its table of searches is that of the committed file, and so is the slope."""
    table = json.loads((RESULTS / "cpu-search/search.json").read_text())
    page = (RESULTS.parents[1] / "docs/scale.md").read_text(encoding="utf-8")
    assert " ".join(search_markdown(table).split()) in " ".join(page.split())  # however lines are broken
    assert table["cells"][-1]["rules"] == 4_936_113 and 0.8 < table["slope"] < 1.2


def test_the_page_on_scale_says_what_a_first_token_takes():
    """Rows of its table by number of rules; the settings are the numbers of RuleWorld's premises and conclusions."""
    table = json.loads((RESULTS / "cpu-qwen2-0.5b-ruleworld/serving.json").read_text())
    page = (RESULTS.parents[1] / "docs/scale.md").read_text(encoding="utf-8")
    cells = {(cell["method"], cell["rules"]): cell for cell in table["cells"]}
    sizes = (10_000, 100_000, 1_000_000, 4_936_113)
    plus, together = (
        [cells[name, size] for size in sizes] for name in ("dynarule-plus", "dynarule-plus-together")
    )

    def row(name, values):
        assert f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |" in page

    def ratios_of(found, name):
        return [cell[f"{name}_ratio"]["median"] for cell in found]

    row("first token", ratios_of(plus, "ttft"))
    first = {cell["rules"]: cell["ttft_ratio"]["median"] for cell in plus}
    later = {cell["rules"]: cell["search_ratio"]["median"] for cell in plus}
    assert "cost a first token a tenth more, and a later search 1.4 times as much" in page
    assert [round(each[4_936_113] / each[100_000], 1) for each in (first, later)] == [1.1, 1.4]
    cold = [cell["cold_ttft_ms"]["median"] / cell["base_ttft_ms"]["median"] for cell in plus]
    row("first token, its rules all new", cold)
    row("a later search", ratios_of(plus, "search"))
    row("a further token", ratios_of(plus, "decode"))
    row("rules read together: first token", ratios_of(together, "ttft"))
    row("rules read together: a later search", ratios_of(together, "search"))
    settings = table["settings"]
    assert (
        f"rules have {settings['premises']:,} premises and {settings['conclusions']:,} conclusions"
        in " ".join(page.split())
    )
    assert f"take {sum(plus[-1]['bytes_per_rule'].values()):.0f} bytes a rule" in " ".join(page.split())
