"""Rows and sentences of the pages that no command prints: written from the committed runs, and a page has them so."""

import json
import re
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.compute as pc
import pytest
from rwbench.report.paper import table_beside_paper
from rwbench.run.data import DataSource
from rwbench.score.results import find_results, run_samples
from rwbench.score.stats import holm, paired_difference, sample_clusters

ROOT = Path(__file__).parents[3]
BENCHMARKS, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks/results"
TINY = BENCHMARKS / "src/rwbench/models/tiny"
SETTINGS = dict.fromkeys("lookahead score_weight score_limit word_weight word_stemmer kept reworded".split())
SETTINGS |= {"variant": "", "score_share": 0}
"""What a method's fields are where a test does not say."""
WORDS = ("words=0.5", "words=1.0")
FORMS, NEAREST = ("fol", "nl"), ("stepwise", "ircot")
FROM_BOTH_ENDS = {name: {"score_share": 0.3} for name in ("rag", *NEAREST)}
FROM_BOTH_ENDS |= {"react": {"score_share": 0.3, "reworded": True}}
NAMES = {"rag": "RAG", "stepwise": "Stepwise RAG", "ircot": "IRCoT", "react": "ReAct"}
LABELS = {key: f"{name} both ends" for key, name in NAMES.items()}
FULL = 4_936_113


@cache
def results_in(folder):
    return find_results(RESULTS / folder)


@cache
def samples_of(folder, run_id):
    return {sample["id"]: sample for sample in run_samples(RESULTS / folder / run_id)}


def runs_of(folder, name, form, size=10_000, retriever=None, **fields):
    """The committed runs of a method with these settings; what else is in `SETTINGS` is as it says there."""
    wanted = SETTINGS | fields
    return [
        run
        for run in results_in(folder)
        if (run["spec"]["representation"], run["spec"]["pool_size"]) == (form, size)
        and (method := run["spec"]["method"])["name"] == name
        and all(method.get(field, SETTINGS.get(field)) == value for field, value in wanted.items())
        and retriever in (None, method.get("retriever", {}).get("name"))
    ]


def run_of(*args, **fields):
    """The one of `runs_of`."""
    (run,) = runs_of(*args, **fields)
    return run


def exact(run, part="macro", key=None):
    """Exact match in %: the macro average, or that of a group of sub-tasks."""
    estimate = run["metrics"]["exact_match"][part]
    return round(100 * (estimate if key is None else estimate[key])["value"], 1)


def best_of(folder, form, size):
    """The best run of RAG, Stepwise RAG and IRCoT from both ends, by any share of their scores."""
    rivals = product(("rag", *NEAREST), (0.3, 0.5, 0.7, 0.9))
    found = [run for name, share in rivals for run in runs_of(folder, name, form, size, score_share=share)]
    return max(found, key=exact)


def points(value, low, high):
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def mean_difference(folder, ours, other, without=frozenset()):
    """What the mean of several trainings is ahead of a run by, paired by question, some left out."""
    *trainings, rival = (
        {name: s for name, s in samples_of(folder, run["run_id"]).items() if name not in without}
        for run in (*ours, other)
    )
    assert all(training.keys() == rival.keys() for training in trainings)
    mean = [fmean(training[name]["scores"]["exact_match"] for training in trainings) for name in rival]
    samples = list(rival.values())
    single = [sample["scores"]["exact_match"] for sample in samples]
    subtasks = [sample["subtask"] for sample in samples]
    return paired_difference(np.array(single), np.array(mean), subtasks, sample_clusters(samples))


def lead(folder, ours, other):
    """What a run is ahead of another by, in points, with its interval, paired by question."""
    return points(*mean_difference(folder, [ours], other)[:3])


def trainings(folder, form):
    return [run_of(folder, "dynarule-plus", form, variant=variant) for variant in ("", "seed-1", "seed-2")]


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def read(path):
    return json.loads((TINY / path).read_text(encoding="utf-8"))


def results_page():
    """Leads on the bundled model, and what they cost; leads on SmolLM2."""
    seen = set(samples_of("held_out", run_of("held_out", "dynarule-plus", "nl")["run_id"]))
    differences = {}
    for name, folder, form in product(NEAREST, ("arena", "held_out_550"), FORMS):
        rival = run_of(folder, name, form, **FROM_BOTH_ENDS[name])
        skipped = seen if folder == "held_out_550" else frozenset()
        differences[name, folder, form] = mean_difference(folder, trainings(folder, form), rival, skipped)
    for name in NEAREST:
        yield row(LABELS[name], *(points(*d[:3]) for at, d in differences.items() if at[0] == name))
    held_out = [differences[name, "held_out_550", form] for form in FORMS for name in NEAREST]
    chances = [f"{p:.1g}" if p < 0.001 else f"{p:.3f}" for p in holm([d.p_value for d in held_out])]
    yield "p is {} and {} in logic, {} and {} in English".format(*chances)
    asked = {name: run_of("arena", name, "fol", **FROM_BOTH_ENDS[name])["usage"] for name in NEAREST}
    calls = {name: usage["calls"]["mean"] for name, usage in asked.items()}
    ours = run_of("arena", "dynarule-plus", "fol")["usage"]
    assert ours["calls"]["mean"] == 1
    searches = ours["retrievals"]["mean"]
    yield (
        f"The rivals ask the model {calls['stepwise']:.1f} and {calls['ircot']:.1f} times a question; DynaRule+ asks "
        f"once and searches {searches:.1f} times"
    )
    pairs = {}
    for name, size, form in product(("rag", *NEAREST, "react"), (1_000, 10_000), FORMS):
        if rival := runs_of("smollm2", name, form, size, **FROM_BOTH_ENDS[name]):
            pairs[name, size, form] = run_of("smollm2", "dynarule-plus", form, size), rival[0]
    for name in FROM_BOTH_ENDS:
        cells = [pairs.get((name, size, form)) for size, form in product((1_000, 10_000), FORMS)]
        yield row(LABELS[name], *(lead("smollm2", *pair) if pair else "-" for pair in cells))


def scale_page():
    """Leads among all rules."""
    for folder, size, model in (
        ("scale", 100_235, "tiny"),
        ("scale_full", 1_000_000, "tiny"),
        ("scale_full", FULL, "tiny"),
        ("smollm2_full", 1_000_000, "SmolLM2"),
    ):
        ours = [run_of(folder, "dynarule-plus", form, size) for form in FORMS]
        best = [best_of(folder, form, size) for form in FORMS]
        leads = [lead(folder, *pair) for pair in zip(ours, best, strict=True)]
        shown = (", ".join(str(exact(run)) for run in both) for both in (ours, best))
        yield row(f"{size:,}", model, *shown, ", ".join(leads))


def models_page():
    """What was trained on how many questions, and the paper's numbers beside ours."""

    def drawn(stage):
        return stage["max_steps"] * stage["batch_size"] * stage["accumulation"]

    for label, name, what in (
        ("KBLaM", "kblam", "reading"),
        ("SR-KI", "srki", "reading and finding"),
        ("DynaRule (paper)", "dynarule", "reading and finding"),
    ):
        english, logic = (
            sum(map(drawn, read(f"{name}-{form}/adapters.json")["stages"])) for form in ("nl", "fol")
        )
        yield row(label, what, f"{english:,}; in logic {logic - english:,} more")
    recipe = read("dynarule-plus-nl/retrieval.json")["recipe"]
    card = (TINY / "dynarule-plus-nl/README.md").read_text(encoding="utf-8")
    (questions,) = re.findall(r"\| questions \| ([\d,]+) \(", card)
    searches = recipe["max_steps"] * recipe["batch_size"]
    yield row(
        "DynaRule+",
        f"finding alone, in {searches:,} searches; it reads as the base does",
        questions,
    )
    beside = table_beside_paper(list(results_in("arena")), "paper/table2")
    rows = [r for r in beside.rows if r.cells[-1].ours is not None and ", seed " not in r.ours]
    assert len(rows) == 16
    for r in rows:
        yield row(f"{r.pool_size:,}", r.method, *(f"{100 * (value or 0):.1f}" for value in r.cells[-1]))


def rulebooks_page():
    """What is ahead on rule books."""

    def named(label):
        """The method itself, whose label is the shortest; others say what they are without."""
        labelled = [run for run in results_in("rulebooks") if run["method"]["label"].startswith(label)]
        return min(labelled, key=lambda run: len(run["method"]["label"]))

    plus, both = named("DynaRule+, smollm2-rules"), named("RAG both ends")
    value, interval = lead("rulebooks", plus, both).split(" ", 1)
    yield (
        f"({exact(plus)} and {exact(both)}; a difference of {value} points, 95 % interval {interval.strip('()')}, which"
    )
    yield f"of BM25 by {lead('rulebooks', plus, named('RAG BM25'))}"
    yield f"all of them in the prompt {exact(named('Prompting'))} are right"


def front_page():
    """The short table; a dash only where nothing was run."""
    methods = {
        "Gold rules only (ceiling)": ("prompting", {"rules": "gold"}),
        "**DynaRule+**": ("dynarule-plus", {}),
        **{LABELS[name]: (name, FROM_BOTH_ENDS[name]) for name in ("ircot", "stepwise", "react")},
        "RAG BM25": ("rag", {"retriever": "bm25"}),
        "SR-KI": ("srki", {}),
        "DynaRule (paper)": ("dynarule", {}),
        "KBLaM": ("kblam", {}),
        "No rules (floor)": ("prompting", {"rules": "none"}),
    }
    for label, (name, fields) in methods.items():
        cells = [
            runs_of(folder, name, form, **fields)
            for folder, form in product(("held_out_550", "arena", "smollm2"), FORMS)
        ]
        assert max(map(len, cells)) == 1, label
        yield row(label, *(exact(cell[0]) if cell else "-" for cell in cells))


def dials_page():
    """Recall of every search by step, by how many words are others, among 1,000 and 10,000 rules; the solver."""
    searches = {
        "BM25": "bm25",
        "MiniLM": "dense",
        "BM25 + MiniLM": "rrf",
        "graph": "graph",
        "both ends": "both-ends",
    }
    settings = list(product((1_000, 10_000), WORDS))
    found = {
        (method.get("retriever", {}).get("name"), run["spec"]["pool_size"], run["spec"].get("dials")): run
        for run in results_in("words")
        for method in [run["spec"]["method"]]
    }
    assert len(found) == 12 * len(WORDS) and {run["n"]["scored"] for run in found.values()} == {550}
    assert all(exact(found[None, *setting]) == 100 for setting in settings)
    yield "Each asks the 550 questions of `mini`; the symbolic solver answers all of them at every setting."
    for label, name in searches.items():
        for step in "1234":
            steps = [found[name, *setting]["details"]["by_step"] for setting in settings]
            cells = [[f"{part[f'recall@{k}'][step]['value']:.2f}" for k in (1, 10)] for part in steps]
            yield row(label, step, *map(" / ".join, cells))


PAGES = {
    "ruleworld-data/docs/dials.md": dials_page,
    "benchmarks/docs/results.md": results_page,
    "benchmarks/docs/scale.md": scale_page,
    "benchmarks/docs/bundled-models.md": models_page,
    "benchmarks/docs/rulebooks.md": rulebooks_page,
    "README.md": front_page,
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_the_runs_say(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    sentences = list(PAGES[page]())
    assert [sentence for sentence in sentences if sentence not in text] == []
    places = [text.index(sentence) for sentence in sentences if sentence.startswith("| ")]
    assert places == sorted(set(places))  # rows in their order, none in the place of two


@pytest.mark.slow
def test_all_rules_have_as_many_premises_and_conclusions_as_the_page_says():
    page = " ".join((BENCHMARKS / "docs/scale.md").read_text(encoding="utf-8").split())
    shown = re.search(r"the ([\d,]+) English rules have ([\d,]+) premises and ([\d,]+) conclusions", page)
    table = DataSource("full").rules("train").table
    different = [pc.count_distinct(table.column(f"{part}_nl")).as_py() for part in ("premise", "conclusion")]
    assert [len(table), *different] == [int(number.replace(",", "")) for number in shown.groups()]
