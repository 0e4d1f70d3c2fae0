"""Every recipe of the paper: its numbers of runs, and a dry run on a random model."""

import json
from collections import Counter
from pathlib import Path

import pytest
from rwbench.backends.local import Local
from rwbench.methods import Method
from rwbench.recipes import SCOPES, Options, parse_sizes, recipes
from rwbench.run.data import DataSource
from rwbench.run.pools import pools_of
from rwbench.score.results import find_results

from ..command import rwbench

RESULTS = Path(__file__).parents[3] / "benchmarks/results"
# What the paper shows, counted by hand for one model: rows x sizes x forms, with --sizes and --form as its tables have.
ALL = tuple(SCOPES)
MEMORY = {"kblam": 6, "srki": 6, "dynarule": 6}
ROWS = {
    "table2": ("paper/table2", {}, {"prompting": 2 * 2, "rag": 3 * 2 * 2} | MEMORY),
    "table4": ("paper/table4", {}, {"retrieve": 3 * 3 * 2} | MEMORY),
    "table8": ("paper/table2", {"sizes": ALL, "forms": ("fol",)}, {"prompting": 4, "rag": 3 * 5} | MEMORY),
    "figure4": ("paper/figure4", {"forms": ("fol",)}, {"dynarule": 6}),
    "figure5a": ("paper/figure5a", {}, {"dynarule": 2 * 6 * 2}),
    "figure5b": ("paper/figure5b", {}, {"ircot": 3 * 2, "react": 3 * 2, "dynarule": 3 * 2}),
    "figure5c": ("paper/figure5c", {}, {"prompting": 2 * 2 + 2}),
    "figure6a": ("paper/figure6a", {}, {"dynarule": 2 * 2}),
}


def specs(name, folder, **changes):
    made = recipes.get(name)
    source = made.source() if made.source else DataSource("paper")
    return made(Options(source, models=(Local.of(str(folder)),), **changes))


@pytest.mark.parametrize("shown", ROWS)
def test_a_recipe_has_the_rows_of_the_paper(shown, model_folder):
    name, changes, counts = ROWS[shown]
    made = specs(name, model_folder, **changes)
    assert Counter(spec.method["name"] for spec in made) == counts
    assert len({spec.run_id for spec in made}) == len(made)
    for spec in made:
        assert spec.pool_size == 100 or spec.pool_scope != "question" or spec.pool_size == 500
        assert spec.pool_within == (None if spec.pool_size == 10_000 else 10_000)


def test_sizes_and_forms_choose_runs_and_change_none(model_folder):
    """A number that two tables show is computed once."""
    few, many = specs("paper/table2", model_folder), specs("paper/table2", model_folder, sizes=ALL)
    assert {spec.run_id for spec in few} < {spec.run_id for spec in many}
    one = specs("paper/table2", model_folder, sizes=(1_000,), forms=("nl",))
    assert {spec.run_id for spec in one} == {
        spec.run_id for spec in few if (spec.pool_size, spec.representation) == (1_000, "nl")
    }
    assert parse_sizes("all") == ALL and parse_sizes("100,1000") == (100, 1_000) and parse_sizes("") == ()


@pytest.mark.parametrize(
    ("folder", "name", "split", "limit"),
    [
        ("held_out", "arena", "heldout", 10),
        ("figure5b", "paper/figure5b", "mini", 5),
        ("figure6a", "paper/figure6a", "mini", 10),
        ("in_prompt", "ablation/in_prompt", "validation", 4),
        ("score_share", "ablation/in_prompt", "validation", 4),
        ("searches", "ablation/searches", "validation", 4),
        ("plus_settings", "ablation/plus", "validation", 4),
        ("kept", "ablation/memory", "validation", 4),
        ("reading", "ablation/memory", "mini", 10),
    ],
)
def test_committed_runs_are_those_of_the_command_that_the_pages_name(folder, name, split, limit):
    made = {spec.run_id for spec in recipes.get(name)(Options(DataSource("paper"), split, limit))}
    methods = {run["run_id"]: run["spec"]["method"] for run in find_results(RESULTS / folder)}
    # Searches in the place of DynaRule+'s own were a method, which is gone, as are DynaRule's adapters behind headers.
    kinds = {run_id: (method["name"], method.get("variant", "")) for run_id, method in methods.items()}
    gone = {run_id for run_id, kind in kinds.items() if kind in (("searched", ""), ("dynarule", ""))}
    assert kinds.keys() > gone and kinds.keys() - gone <= made


def test_every_run_of_the_arena_is_committed_and_the_demo_is_a_part_of_it():
    demo, arena = (recipes.get(name)(Options(DataSource("paper"))) for name in ("demo", "arena"))
    committed = {run["run_id"] for run in find_results(RESULTS / "arena")}
    assert {spec.run_id for spec in demo} < {spec.run_id for spec in arena} <= committed
    assert {spec.method["name"] for spec in demo} == {spec.method["name"] for spec in arena}
    assert len(demo) < len(arena) / 2  # a newcomer waits for it


def test_per_layer_retention_makes_a_run_per_layer(model_folder):
    """The adapter says which layers hold rules; without one there is one run, which says what is missing."""
    made = [(spec.method["name"], spec.method["correct_layer"]) for spec in specs("paper/figure3", "tiny")]
    assert (
        made == [("confidence", None), ("dynarule", 1)] * 2
    )  # FOL and NL; later layers share what this one keeps
    bare = specs("paper/figure3", model_folder)
    assert all(Method.from_dict(spec.method).missing() for spec in bare)


@pytest.mark.parametrize(
    "name", [name for name in recipes.items() if name != "book" and "ablation" not in name]
)
def test_recipes_dry_run(name, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = [] if recipes.get(name).source else ["--scale", "tiny"]
    words = ["run", name, *world, "--limit", "1", "--model", str(model_folder), "--dry-run", "--json"]
    result = rwbench(*words, code=0)
    assert list(tmp_path.glob("runs*")) == []
    seen = json.loads(result.stdout)
    asks = [run for run in seen["runs"] if run["method"]["name"] in ("prompting", "rag", "ircot", "react")]
    assert bool(asks) == bool(seen["first_prompt"])
    assert seen["samples_left"] == sum(run["scheduled"] for run in seen["runs"])
    # This model has no adapters: the methods that need one are named, not dropped in silence.
    wanted = {spec.method["name"] for spec in specs(name, model_folder)}
    needs_adapter = {"kblam": "KBLaM", "srki": "SR-KI", "dynarule": "DynaRule", "confidence": "Entropy"}
    assert name != "arena" or wanted > needs_adapter.keys() - {"confidence"}
    for method in wanted & set(needs_adapter):
        assert any(note.startswith(needs_adapter[method]) for note in seen["skipped"])


def test_pools_of_the_recipe_scale_hold_each_other_and_the_same_questions(monkeypatch):
    monkeypatch.setattr("rwbench.recipes.scale.SIZES", (940, 980))
    options = Options(DataSource("tiny"), limit=1)
    by_size = {spec.pool_size: spec for spec in recipes.get("scale")(options) if spec.representation == "nl"}
    assert sorted(by_size) == [940, 980, options.num_rules]
    pools = {size: pools_of(spec, DataSource("tiny")) for size, spec in by_size.items()}
    for small, large in ((940, 980), (980, options.num_rules)):
        for one, other in zip(pools[small], pools[large], strict=True):
            assert set(one.ids.tolist()) < set(other.ids.tolist())
            assert [q.id for q in one.questions] == [q.id for q in other.questions]
