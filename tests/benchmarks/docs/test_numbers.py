"""The numbers in prose: sentences and rows are written from the committed runs, and a page must have them so."""

import json
import re
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.compute as pc
import pytest
from rwbench.report.compare import compare_runs
from rwbench.run.data import DataSource
from rwbench.score.results import find_results, run_samples
from rwbench.score.stats import holm, paired_difference, sample_clusters

ROOT = Path(__file__).parents[3]
BENCHMARKS, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks/results"
TINY = BENCHMARKS / "src/rwbench/models/tiny"
SETTINGS = {"variant": "", "score_share": 0} | dict.fromkeys(
    ("lookahead", "score_weight", "kept", "score_limit", "word_weight", "word_stemmer", "reworded")
)
"""What a method's fields are where a test does not say."""
WORDS = (None, "words=0.5", "words=1.0")
FORMS, NEAREST = ("fol", "nl"), ("stepwise", "ircot")
NAMES = {"rag": "RAG", "stepwise": "Stepwise RAG", "ircot": "IRCoT", "react": "ReAct"}
LABELS = {name: f"{label} both ends" for name, label in NAMES.items()}
FROM_BOTH_ENDS = {name: {"score_share": 0.3} for name in LABELS}
FROM_BOTH_ENDS["react"]["reworded"] = True
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


def measured(run, metric, part="macro", key=None):
    """A metric in whole %."""
    estimate = run["metrics"][metric][part]
    return round(100 * (estimate if key is None else estimate[key])["value"])


def best_of(folder, form, size):
    """The best run of RAG, Stepwise RAG and IRCoT from both ends, by any share of their scores."""
    rivals = product(("rag", *NEAREST), (0.3, 0.5, 0.7, 0.9))
    found = [run for name, share in rivals for run in runs_of(folder, name, form, size, score_share=share)]
    return max(found, key=exact)


def points(value, low, high):
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def lead(folder, ours, other):
    """What a run is ahead of another by, in points, with its interval, paired by question."""
    (found,) = compare_runs([RESULTS / folder / run["run_id"] for run in (other, ours)])["comparisons"]
    difference = found["metrics"]["exact_match"]["difference"]
    return points(difference["value"], difference["ci_low"], difference["ci_high"])


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


def trainings(folder, form):
    return [run_of(folder, "dynarule-plus", form, variant=variant) for variant in ("", "seed-1", "seed-2")]


def cached(page):
    """Compute a page's sentences once."""
    return cache(lambda: list(page()))


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def read(path):
    (file,) = (folder / path for folder in (TINY, RESULTS / "seeds") if (folder / path).is_file())
    return json.loads(file.read_text(encoding="utf-8"))


@cached
def results_page():
    """Leads on the bundled model, where they are and what they are made of; leads on SmolLM2."""
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
    asked = {
        name: run_of("arena", name, "fol", **FROM_BOTH_ENDS.get(name, {})) for name in (*NEAREST, "react")
    }
    calls = {name: run["usage"]["calls"]["mean"] for name, run in asked.items()}
    ours = [run_of("arena", "dynarule-plus", form) for form in FORMS]
    assert ours[0]["usage"]["calls"]["mean"] == 1
    searches = ours[0]["usage"]["retrievals"]["mean"]
    yield (
        f"The rivals ask the model {calls['stepwise']:.1f} and {calls['ircot']:.1f} times a question; DynaRule+ asks "
        f"once and searches {searches:.1f} times"
    )
    yield f"It asks the model {calls['react']:.1f} times a question"
    theirs = [run_of("arena", "stepwise", form, **FROM_BOTH_ENDS["stepwise"]) for form in FORMS]
    parts = [exact(run, "by_group", group) for group in ("parallel", "hops") for run in (*ours, *theirs)]
    yield (
        "On questions of several parts DynaRule+ has {} (FOL) and {} (NL) right among 10,000 rules, Stepwise RAG {} "
        "and {}; on chains of two to four steps {} and {}, Stepwise RAG {} and {}."
    ).format(*parts)
    pairs = {}
    for name, size, form in product(("rag", *NEAREST, "react"), (1_000, 10_000), FORMS):
        if rival := runs_of("smollm2", name, form, size, **FROM_BOTH_ENDS[name]):
            pairs[name, size, form] = run_of("smollm2", "dynarule-plus", form, size), rival[0]
    for name in FROM_BOTH_ENDS:
        cells = [pairs.get((name, size, form)) for size, form in product((1_000, 10_000), FORMS)]
        yield row(LABELS[name], *(lead("smollm2", *pair) if pair else "-" for pair in cells))
    tested = {
        at: mean_difference("smollm2", [ours], other) for at, (ours, other) in pairs.items() if at[0] != "rag"
    }
    p_values = dict(zip(tested, holm([d.p_value for d in tested.values()]), strict=True))
    among_many = {at for at in tested if at[1] == 10_000}
    assert {at for at, p in p_values.items() if p < 0.05} == among_many - {("ircot", 10_000, "fol")}
    yield (
        f"Of these {len(tested)} leads over others than RAG, five hold after Holm's correction: those among 10,000 "
        "rules but that over IRCoT in logic"
    )
    folder, secret = "smollm2_held_out", "ruleworld held-out world of SmolLM2, seed {}, e08b25c5325f74bc"
    line = secret.format(*{run["spec"]["world_seed"] for run in results_in(folder)})
    yield f"`{line}` names the seed; its SHA-256, `{sha256(line.encode()).hexdigest()}`, stood here"
    ours = {form: run_of(folder, "dynarule-plus", form) for form in FORMS}
    for name in ("rag", *NEAREST):
        asked = {form: runs_of(folder, name, form, **FROM_BOTH_ENDS[name]) for form in FORMS}
        if any(asked.values()):
            yield row(
                LABELS[name], *(lead(folder, ours[at], *runs) if runs else "-" for at, runs in asked.items())
            )


@cached
def scale_page():
    """Leads among all rules, what goes first, and what a bank counts on."""
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
    ours = [run_of("scale_full", "dynarule-plus", form, FULL) for form in FORMS]
    groups = [exact(run, "by_group", group) for group in ("hops", "parallel") for run in ours]
    yield (
        "of those of two to four steps DynaRule+ has {} and {} right among all rules, of questions of several parts {} "
        "and {}"
    ).format(*groups)
    solved = [run_of("scale_full", "solver", form, FULL) for form in FORMS]
    assert all(run["metrics"]["strict_match"]["macro"]["value"] == 1 for run in solved)
    yield f"has all {solved[0]['n']['scored']} right among all rules"


@cached
def models_page():
    """What was trained on what, and what settings rest on."""
    record = read("base/training.json")
    yield f"trained here in {record['hours']:.1f} hours"
    yield f"questions had up to {record['levels']['questions']} rules beside"

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
        more = logic - english
        yield row(label, what, f"{english:,}; in logic {more:,} more" if more else f"{english:,}")
    texts = [[exact(run_of(folder, "kblam", form, 100)) for form in FORMS] for folder in ("arena", "reading")]
    (fol, nl), alone = texts
    yield f"it has {fol} (FOL) and {nl} (NL) now, alone with its gold rules {alone[0]} and {alone[1]}"
    forms = [read(f"dynarule-premise-{form}/adapters.json")["stages"] for form in ("nl", "fol")]
    found, (english, logic) = forms[0][0], (sum(map(drawn, stages[1:])) for stages in forms)
    searches = f"finding alone, in {found['max_steps'] * found['batch_size']:,} searches, then reading"
    yield row("DynaRule behind premises", searches, f"{english:,}; in logic {logic:,}")
    recipe = read("dynarule-plus-nl/retrieval.json")["recipe"]
    card = (TINY / "dynarule-plus-nl/README.md").read_text(encoding="utf-8")
    (questions,) = re.findall(r"\| questions \| ([\d,]+) \(", card)
    searches = recipe["max_steps"] * recipe["batch_size"]
    yield row("DynaRule+", f"finding alone, in {searches:,} searches; it reads as the base does", questions)
    curves = [run_of("figure3", "confidence", form, 100)["measures"]["rule_entropy"] for form in FORMS]
    (layer,) = {curve["layers"][np.argmin(curve["mean"])] for curve in curves}
    yield f"layer {layer} (counted from 0) is read again"
    logs = (
        json.loads((BENCHMARKS / f"results/search_place/{at}.json").read_text())
        for at in ("premise", "header")
    )
    premise, header = (max(entry["recall"] for entry in log["log"]) for log in logs)
    yield f"first among 10,000 in {100 * premise:.0f} % of validation searches behind premises"
    yield f"in {100 * header:.0f} % behind headers"
    deep = (read(f"dynarule-premise-smollm2-{form}/retrieval.json")["log"] for form in ("nl", "fol"))
    english, logic = (max(entry["recall"] for entry in log) for log in deep)
    yield f"On SmolLM2 it is {100 * english:.0f} %"
    yield f"in logic {100 * logic:.0f} %"

    def at(size, *what):
        runs = (run_of("arena", "dynarule", form, size, variant="premise") for form in FORMS)
        return [measured(run, *what) for run in runs]

    first, tens = at(10_000, "step_recall@1"), at(10_000, "step_recall@10")
    easy, chains = at(100, "step_recall@1"), at(100, "exact_match", "by_subtask", "multi_hop_3")
    yield f"step's search in {first[0]} % (FOL) and {first[1]} % (NL) of the steps"
    yield f"one of the first ten in {tens[0]} % and {tens[1]} %"
    yield f"the first in {easy[0]} % and {easy[1]} %"
    yield f"chains of three fail most ({chains[0]} % and {chains[1]} %)"
    ladder = {
        "DynaRule (paper)": ("dynarule", ""),
        "`<search>` behind premises, its scores read": ("dynarule", "premise"),
        "DynaRule+'s search, one vector a rule": ("rule-vectors", ""),
        "the rules' own tokens (DynaRule+)": ("dynarule-plus", ""),
    }
    for label, (name, variant) in ladder.items():
        cells = product((100, 1_000, 10_000), FORMS)
        yield row(label, *(exact(run_of("arena", name, form, n, variant=variant)) for n, form in cells))
    english, logic = (read(f"dynarule-premise-smollm2-{at}/adapters.json")["stages"] for at in ("nl", "fol"))
    # In English the larger base's first reading was left at its step 96.
    questions = 96 * drawn(english[-1]) // english[-1]["max_steps"] + drawn(english[-1])
    yield f"{questions // 100 * 100:,} questions in English and {drawn(logic[-1]):,} in logic"
    yield f"the bundled model had {sum(map(drawn, forms[0][1:])):,}"
    deep = [run_of("smollm2", "dynarule", form, variant="premise") for form in FORMS]
    found = [measured(run, "step_recall@1") for run in deep]
    yield f"the first one found in {found[0]} % (FOL) and {found[1]} % (NL) of the steps"
    first, second = (
        json.loads((BENCHMARKS / f"base/smollm2/{name}.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        for name in ("first", "log")
    )
    record = json.loads((BENCHMARKS / "base/smollm2/training.json").read_text(encoding="utf-8"))
    assert (record["tokens"], record["steps"]) == (second["tokens"], second["step"])
    assert record["environment"]["gpu"] == "NVIDIA H200"
    yield (
        f"in {(first['seconds'] + second['seconds']) / 60:.1f} minutes of one H200 on "
        f"{(first['tokens'] + second['tokens']) / 1e6:.1f} million tokens"
    )
    levels = record["levels"]
    yield f"had up to {levels['questions']} rules beside those that it needs, and {levels['plain']} in plain English"
    runs = (run_of("smollm2", "rule-vectors", form) for form in FORMS)
    logic, english = (run["metrics"]["step_recall@1"]["macro"]["value"] for run in runs)
    yield f"is the first one found in {100 * logic:.0f} % (FOL) and {100 * english:.0f} % (NL) of the steps"


@cached
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


@cached
def front_page():
    """The short table; a dash only where nothing was run."""
    methods = {
        "Gold rules only (ceiling)": ("prompting", {"rules": "gold"}),
        "**DynaRule+**": ("dynarule-plus", {}),
        **{LABELS[name]: (name, FROM_BOTH_ENDS[name]) for name in ("ircot", "stepwise")},
        "Rule vectors": ("rule-vectors", {}),
        LABELS["react"]: ("react", FROM_BOTH_ENDS["react"]),
        "RAG BM25": ("rag", {"retriever": "bm25"}),
        "DynaRule behind premises": ("dynarule", {"variant": "premise"}),
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


@cached
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
        for run in results_in("words") + results_in("retrieval")
        for method in [run["spec"]["method"]]
        if run["spec"]["representation"] == "nl"
    }
    assert {run["n"]["scored"] for run in found.values()} == {550}
    assert all(exact(found[None, *setting]) == 100 for setting in settings if setting[1])
    yield "Each asks the 550 questions of `mini`; the symbolic solver answers all of them at every setting."
    for label, name in searches.items():
        for step in "1234":
            steps = [found[name, *setting]["details"]["by_step"] for setting in settings]
            cells = [[f"{part[f'recall@{k}'][step]['value']:.2f}" for k in (1, 10)] for part in steps]
            yield row(label, step, *map(" / ".join, cells))


@cached
def environments_page():
    """Reward with its interval, and searches an episode, at every evaluation of both trainings."""
    curves = json.loads((RESULTS / "grpo/curve.json").read_text(encoding="utf-8"))["curves"]
    for name, title in (("grpo", "GRPO"), ("supervised", "golden episodes")):
        for at in curves[name]:
            reward = f"{at['reward']:.2f} ({at['low']:.2f}-{at['high']:.2f})"
            what = title if at["step"] else "the model as it is"
            yield row(what, at["step"], f"{at['minutes']:.1f}", reward, f"{at['searches']:.1f}")


PAGES = {
    "ruleworld-data/docs/environments.md": environments_page,
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
    sentences = PAGES[page]()
    assert [sentence for sentence in sentences if sentence not in text] == []
    places = [text.index(sentence) for sentence in sentences if sentence.startswith("| ")]
    assert places == sorted(set(places))  # rows in their order, none in the place of two


@pytest.mark.parametrize("page", ["results", "scale", "bundled-models", "rulebooks"])
def test_no_sentence_has_a_number_of_its_own(page):
    """What has a decimal point stands in a sentence that is compared with the runs, or in a table."""
    path = f"benchmarks/docs/{page}.md"
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.M | re.S)
    text = re.sub(r"^\|.*", "", text, flags=re.M)
    text = " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text).split())
    for sentence in PAGES[path]():
        text = text.replace(re.sub(r"`[^`]*`", "", sentence), "")
    sizes = {"3.6", "0.5", "2.5"}  # of models
    assert set(re.findall(r"\d+\.\d+", text)) <= sizes


@pytest.mark.slow
def test_all_rules_have_as_many_premises_and_conclusions_as_the_page_says():
    page = " ".join((BENCHMARKS / "docs/scale.md").read_text(encoding="utf-8").split())
    shown = re.search(r"the ([\d,]+) English rules have ([\d,]+) premises and ([\d,]+) conclusions", page)
    table = DataSource("full").rules("train").table
    different = [pc.count_distinct(table.column(f"{part}_nl")).as_py() for part in ("premise", "conclusion")]
    assert [len(table), *different] == [int(number.replace(",", "")) for number in shown.groups()]
