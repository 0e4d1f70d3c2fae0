"""Efficiency: tiny shapes; what is timed is the right computation, mistakes are named."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rwbench.efficiency.methods import METHODS, PLUS, TOGETHER, ProjectedRules, obstacle
from rwbench.efficiency.serving import measure, measure_cell, serving_markdown
from rwbench.efficiency.workload import Settings, random_model, random_rows

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, kblam_config

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RESULTS = BENCHMARKS / "results/efficiency"
TINY = Settings(shape="tiny", encoder_dim=16, top_k=5, repeats=2, new_tokens=3, prompt_tokens=8)


def measured(tmp_path, cells, settings=TINY):
    return measure(settings, cells, tmp_path / "serving.json", run=measure_cell)


@torch.no_grad()
def test_rules_that_are_projected_once_are_those_of_every_prompt(tmp_path):
    """And of every token after it."""
    model = random_model(TINY)
    adapter = RuleAdapter(model, kblam_config(16, every=1)).requires_grad_(False)
    keys, values = (random_rows(tmp_path / str(key), 30, 16, "fp32", key) for key in (0, 1))
    bank = RuleBank(keys, values, [str(i) for i in range(30)], [f"x{i}" for i in range(30)])

    def read(memory, ids):
        with attach(model, memory):
            done = model(ids, use_cache=True)
            return done.logits, model(ids[:, :1], past_key_values=done.past_key_values).logits

    once = ProjectedRules(adapter, bank)
    for ids in (torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[9, 2, 6]])):
        for ours, wanted in zip(read(once, ids), read(RuleMemory(adapter, bank), ids), strict=True):
            assert torch.allclose(ours, wanted, atol=1e-5)
        assert not torch.allclose(read(once, ids)[0], model(ids).logits, atol=1e-3)


def test_every_method_is_measured_and_its_bytes_are_counted(tmp_path):
    cells = [("dynarule", 0), *((method, 20) for method in METHODS)]
    table = measured(tmp_path, cells)
    rows = {(cell["method"], cell["rules"]): cell for cell in table["cells"]}
    assert set(rows) == set(cells)
    assert all(cell["status"] == "ok" for cell in rows.values())
    ours = rows["dynarule", 20]
    assert ours["bytes_per_rule"] == {"embeddings": 2 * 16 * 4, "1/sigma": 2 * 4}
    assert ours["ttft_ms"]["n"] == 2 and ours["decode_ms"]["n"] == 6 and ours["search_ms"]["n"] == 2
    plus = rows["dynarule-plus", 20]
    assert plus["bytes_per_rule"] == {"embeddings": 2 * 16 * 4} and plus["search_ms"]["n"] == 2
    assert plus["cold_ttft_ms"]["n"] == 3
    assert "cold_ttft_ms" not in rows["dynarule-plus-together", 20]  # a set is read at every search
    assert rows["prompting", 20]["bytes_per_rule"] == {"KV cache": 14 * 2 * 2 * 2 * 8 * 4}
    assert rows["inject-all", 20]["bytes_per_rule"] == {"keys and values": 2 * 2 * 32 * 4}
    assert rows["inject-third", 20]["bytes_per_rule"] == {"keys and values": 2 * 32 * 4}
    assert " cold)" in serving_markdown(table)


def test_rules_may_share_what_is_embedded(tmp_path):
    """As RuleWorld's do: an embedding for each premise and each conclusion, and for a rule which of them it has."""
    cells = [(name, 20) for name in ("dynarule-plus", "dynarule", "inject-all")]
    table = measured(tmp_path, cells, replace(TINY, premises=3, conclusions=5))
    plus, ours, injected = (cell["bytes_per_rule"] for cell in table["cells"])
    embeddings = (3 + 5) * 16 * 4 / 20 + 2 * 4
    assert plus == {"embeddings": embeddings} and ours["embeddings"] == embeddings
    assert injected == {"keys and values": 2 * 2 * 32 * 4}
    # The report wraps its captions.
    assert "of 3 different premises and 5 different conclusions" in " ".join(serving_markdown(table).split())
    (alone,) = measured(tmp_path, cells[:1], replace(TINY, premises=20, conclusions=21))["cells"]
    assert alone["bytes_per_rule"] == {"embeddings": 2 * 16 * 4}


def test_the_cost_is_that_of_the_recipe():
    """Reading and searching as the recipe has it, but for words, which random rules have not; its width is another."""
    for name, expected in (("plus", PLUS), ("plus-smollm2", PLUS | TOGETHER)):
        recipe = tomllib.loads((BENCHMARKS / f"adapters/{name}.toml").read_text())
        options = recipe["memory"] | {key: recipe[key] for key in ("confidence_layer", "top_k")}
        options.pop("word_weight", None)
        assert {"score_limit": None} | options == expected


def test_a_cell_that_cannot_be_measured_says_why(tmp_path):
    def out_of_memory(*_):
        raise MemoryError("no room")

    table = measure(TINY, [("dynarule", 20)], tmp_path / "serving.json", run=out_of_memory)
    assert table["cells"][0]["note"] == "MemoryError: no room" and "no room" in serving_markdown(table)
    settings = Settings()
    assert "140,072 tokens do not fit the context of 32,768" in obstacle(settings, "prompting", 10_000)
    assert "17.2 GB, allowed are 8" in obstacle(settings, "inject-all", 100_000)
    assert obstacle(settings, "dynarule", 1_000_000) is None


@pytest.mark.parametrize("name", sorted(path.name for path in RESULTS.iterdir()))
def test_committed_tables_are_those_of_the_committed_results(name):
    table = json.loads((RESULTS / name / "serving.json").read_text())
    assert serving_markdown(table) + "\n" == (RESULTS / name / "serving.md").read_text()
    if name == "cpu-qwen2-0.5b":
        page = (BENCHMARKS / "docs/efficiency.md").read_text()
        # lines may break elsewhere
        assert " ".join(serving_markdown(table).split()) in " ".join(page.split())


def test_the_pages_say_what_was_measured():
    """The tables that no command prints, as multiples of the model without rules."""

    def times(folder, method, count, name):
        cells = json.loads((RESULTS / f"cpu-qwen2-0.5b-{folder}/serving.json").read_text())["cells"]
        (cell,) = (cell for cell in cells if (cell["method"], cell["rules"]) == (method, count))
        if name == "cold":
            return f"{cell['cold_ttft_ms']['median'] / cell['base_ttft_ms']['median']:.2f}"
        return f"{cell[f'{name}_ratio']['median']:.2f}"

    plus, together, few = "dynarule-plus", "dynarule-plus-together", (10_000, 100_000)
    for page, folder, sizes in (
        ("efficiency", "plus", few),
        ("scale", "ruleworld", (*few, 1_000_000, 4_936_113)),
    ):
        text = (BENCHMARKS / f"docs/{page}.md").read_text(encoding="utf-8")
        for label, method, name in (
            ("first token", plus, "ttft"),
            ("first token, its rules all new", plus, "cold"),
            ("a later search", plus, "search"),
            ("a further token", plus, "decode"),
            ("rules read together: first token", together, "ttft"),
            ("rules read together: a later search", together, "search"),
        ):
            cells = (times(folder, method, size, name) for size in sizes)
            assert f"| {label} | {' | '.join(cells)} |" in text, (page, label)
