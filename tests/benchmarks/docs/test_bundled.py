"""The numbers in the prose about the bundled model, from what its trainings and the committed runs wrote."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from rwbench.backends.local import Local
from rwbench.recipes import recipes
from rwbench.report.compare import compare_runs
from rwbench.report.paper import table_beside_paper
from rwbench.score.results import find_results, run_samples

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TINY = BENCHMARKS / "src/rwbench/models/tiny"
SEEDS = BENCHMARKS / "results/seeds"
TEXT = (BENCHMARKS / "docs/bundled-models.md").read_text(encoding="utf-8")
RUNNING = (BENCHMARKS / "docs/running.md").read_text(encoding="utf-8")


def read(path):
    return json.loads((TINY / path).read_text(encoding="utf-8"))


def test_the_base_is_what_its_record_says(said):
    record = read("base/training.json")
    assert said(r"trained here in ([\d.]+) hours") == [round(record["hours"], 1)]
    assert said(r"questions had up to (\d+) rules beside") == [record["levels"]["questions"]]


@pytest.mark.parametrize(
    ("row", "name"), [("KBLaM", "kblam"), ("SR-KI", "srki"), (r"DynaRule \(paper\)", "dynarule")]
)
def test_questions_trained_on(row, name, said):
    def questions(form):
        stages = read(f"{name}-{form}/adapters.json")["stages"]
        return sum(each["max_steps"] * each["batch_size"] * each["accumulation"] for each in stages)

    english, more = said(rf"\| {row} \| [^|]+\| ([\d,]+); in logic ([\d,]+) more \|")
    assert (questions("nl"), questions("fol")) == (english, english + more)


def test_what_the_losses_on_finding_saw(said):
    (questions,) = said(
        r"losses on finding saw ([\d,]+) questions for SR-KI and as many for DynaRule \(paper\)"
    )
    for name in ("srki-nl", "srki-fol", "dynarule-nl", "dynarule-fol"):
        stages = [each for each in read(f"{name}/adapters.json")["stages"] if each["stage"] == 2]
        assert (
            sum(each["max_steps"] * each["batch_size"] * each["accumulation"] for each in stages) == questions
        )


def test_searches_trained_on(said):
    searches, questions = said(r"in ([\d,]+) searches; it reads as the base does \| ([\d,]+) \|")
    first, logic, english = said(
        r"after its first ([\d,]+) searches DynaRule\+ finds ([\d.]+) \(logic\) and ([\d.]+)"
    )
    for form, recall in (("fol", logic), ("nl", english)):
        found = read(f"dynarule-plus-{form}/retrieval.json")
        recipe, start = found["recipe"], found["log"][0]
        assert recipe["max_steps"] * recipe["batch_size"] == searches
        assert start["step"] * recipe["batch_size"] == first
        assert round(start["recall_state"], 2) == recall
        card = (TINY / f"dynarule-plus-{form}/README.md").read_text(encoding="utf-8")
        assert f"| questions | {int(questions):,} (" in card


def test_the_page_of_results_says_the_same():
    results = " ".join((BENCHMARKS / "docs/results.md").read_text(encoding="utf-8").split())
    numbers = re.search(
        r"KBLaM on ([\d,]+), SR-KI on ([\d,]+), DynaRule \(paper\) on ([\d,]+) draws, each ([\d,]+) more in logic, "
        r"DynaRule\+ on ([\d,]+) searches of ([\d,]+) questions\.",
        results,
    )
    rows = {
        name: re.findall(r"\d[\d,]+", cells.split("|")[-2])
        for name, cells in re.findall(
            r"^\| (KBLaM|SR-KI|DynaRule \(paper\)|DynaRule\+) (\| \D.*\|)$", TEXT, flags=re.M
        )
        if cells.count("|") == 3
    }
    kblam, srki, paper, plus = (rows[name] for name in ("KBLaM", "SR-KI", "DynaRule (paper)", "DynaRule+"))
    (searches,) = re.findall(r"finding alone, in ([\d,]+) searches", TEXT)
    assert [*numbers.groups()] == [kblam[0], srki[0], paper[0], kblam[1], searches, plus[0]]
    assert kblam[1] == srki[1] == paper[1]


def recalls(path):
    """Recall@1 on held-out questions, measurement by measurement."""
    log = json.loads(path.read_text(encoding="utf-8"))
    return [entry["eval_recall_at_1"] for entry in log if "eval_recall_at_1" in entry]


def test_what_the_papers_searches_find(said):
    count, most = said(
        r"Recall@1 on ([\d.]+) validation questions, among up to 10,000 rules, stays below ([\d.]+)"
    )
    found = [recalls(TINY / f"dynarule-{form}/log.json") for form in ("fol", "nl")]
    found += [recalls(SEEDS / f"dynarule-seed-1-{form}/log.json") for form in ("fol", "nl")]
    assert count == 55 and max(map(max, found)) < most
    english, logic = said(r"ends at ([\d.]+) \(English\) and ([\d.]+) \(logic\)")
    for form, expected in (("nl", english), ("fol", logic)):
        assert round(recalls(TINY / f"srki-{form}/log.json")[-1], 2) == expected
    *sharp, english, logic = said(
        r"at the end ([\d.]+) in English and ([\d.]+) in logic, where the softer one has ([\d.]+) and ([\d.]+)"
    )
    paths = [BENCHMARKS / f"results/temperature/dynarule-{form}.json" for form in ("nl", "fol")]
    paths += [TINY / f"dynarule-{form}/log.json" for form in ("nl", "fol")]
    assert [round(recalls(path)[-1], 2) for path in paths] == [*sharp, english, logic]
    (most,) = said(r"half as many steps, and its Recall@1 on validation questions stays below ([\d.]+)")
    logs = {
        form: json.loads((SEEDS / f"dynarule-plus-paper-query-{form}/retrieval.json").read_text())
        for form in ("fol", "nl")
    }
    assert max(entry["recall"] for each in logs.values() for entry in each["log"]) < most
    whole = read("dynarule-plus-nl/retrieval.json")["recipe"]["max_steps"]
    assert all(2 * each["recipe"]["max_steps"] == whole for each in logs.values())


def test_what_kblams_length_shift_brings(said):
    *numbers, count = said(
        r"brings nothing: ([\d.]+) \(logic\) and ([\d.]+) \(English\) among 10,000 rules, where it has ([\d.]+) and "
        r"([\d.]+) without on the same (\d+) questions"
    )
    found = {
        (run["spec"]["method"].get("length_shift"), run["spec"]["representation"]): run
        for run in find_results(BENCHMARKS / "results/kblam")
        if run["spec"]["pool_size"] == 10_000 and not run["spec"]["method"].get("variant")
    }
    rows = [found[shift, form] for shift in (100, None) for form in ("fol", "nl")]
    assert numbers == [round(100 * run["metrics"]["exact_match"]["macro"]["value"], 1) for run in rows]
    assert {run["n"]["scored"] for run in rows} == {count}


def english(folder, **fields):
    """Exact match in % in English by rules in the pool, of the row whose method has these fields."""
    return {
        run["spec"]["pool_size"]: round(100 * run["metrics"]["exact_match"]["macro"]["value"], 1)
        for run in find_results(BENCHMARKS / "results" / folder)
        if run["spec"]["representation"] == "nl"
        and all(
            run["spec"]["method"].get(name, default) == value for name, (value, default) in fields.items()
        )
    }


def test_kblam_in_its_papers_layers(said):
    numbers = said(
        r"it has ([\d.]+) in English among a hundred rules, where as trained here it has ([\d.]+), ([\d.]+) and "
        r"([\d.]+) among 1,000, and ([\d.]+) and ([\d.]+) among 10,000, where neither finds"
    )
    papers = english("kblam", variant=("every-third", ""))
    ours = english("kblam", variant=("", ""), length_shift=(None, None))
    assert numbers == [row[size] for size in (100, 1_000, 10_000) for row in (papers, ours)]


def test_what_minilm_says_of_a_rule(said):
    (least,) = said(
        r"each has fewer answers right, by ([\d.]+) points or more; among 1,000 each has fewer, too"
    )
    names = "kblam", "srki", "dynarule"
    own, minilm = (
        [english("encoders", name=(name, ""), variant=(variant, "")) for name in names]
        for variant in ("", "minilm")
    )
    lost = [
        {size: round(row[size] - other[size], 1) for size in row}
        for row, other in zip(own, minilm, strict=True)
    ]
    assert min(each[100] for each in lost) == least
    assert all(each[1_000] > 0 for each in lost)


def validated(folder, searched, share, **method):
    """Exact match in % of what a method has on the validation questions of both forms, logic first."""
    found = {
        run["spec"]["representation"]: round(100 * run["metrics"]["exact_match"]["macro"]["value"], 1)
        for run in find_results(BENCHMARKS / "results" / folder)
        if (asked := run["spec"]["method"]).get("retriever", {}).get("name") == searched
        and asked.get("score_share", 0) == share
        and all(asked.get(field) == value for field, value in method.items())
    }
    return [found.get(form) for form in ("fol", "nl")]


def test_what_a_share_of_the_best_score_brings(said):
    shares = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    both, bm25 = (
        {share: validated("score_share", name, share) for share in shares} for name in ("both-ends", "bm25")
    )
    logic, logic_two, english, english_two, before = said(
        r"three tenths are best on the mean of both forms, ([\d.]+) in logic \(two tenths: ([\d.]+)\) and "
        r"([\d.]+) in English \(([\d.]+)\), where eight rules have ([\d.]+) in logic"
    )
    assert both[0.2] == [logic_two, english_two]
    assert max(both, key=lambda share: sum(both[share])) == 0.3 and both[0.3] == [logic, english]
    assert validated("in_prompt", "both-ends", 0, name="rag", in_prompt=8)[0] == before
    (gain,) = said(r"BM25\*\* gains ([\d.]+) points by seven tenths on those questions")
    assert max(bm25, key=lambda share: sum(bm25[share])) == 0.7
    assert round((sum(bm25[0.7]) - sum(bm25[0.1])) / 2, 1) == gain
    numbers = said(
        r"among 10,000 rules ([\d.]+) and ([\d.]+), \[bm25_share\].* where sixteen rules have ([\d.]+) and ([\d.]+)\)"
    )
    rows = [
        run
        for folder, share in (("bm25_share", 0.7), ("arena", 0))
        for form in ("fol", "nl")
        for run in find_results(BENCHMARKS / "results" / folder)
        if run["method"]["label"].startswith("RAG BM25")
        and (run["spec"]["representation"], run["spec"]["pool_size"]) == (form, 10_000)
        and run["spec"]["method"].get("score_share", 0) == share
    ]
    assert [round(100 * run["metrics"]["exact_match"]["macro"]["value"], 1) for run in rows] == numbers
    dense, uncut = said(r"from nine tenths on \(([\d.]+) and ([\d.]+)\)")
    cut = {share: validated("score_share", "dense", share)[1] for share in shares}
    assert (cut[0.9], cut[0.1]) == (dense, uncut)
    for name, count in (("graph", 16), ("dense", 8), ("rrf", 16)):
        (fixed, _), *others = (
            validated("in_prompt", name, 0, name="rag", in_prompt=count),
            *(validated("score_share", name, share) for share in shares),
        )
        assert max(logic for logic, _ in others) <= fixed


def test_how_many_rules_srki_and_dynarule_keep(said):
    numbers = said(
        r"in both forms \(up to ([\d.]+), where SR-KI has ([\d.]+) with a hundred, and up to ([\d.]+), where "
        r"DynaRule has ([\d.]+)"
    )
    cells = {}
    for run in find_results(BENCHMARKS / "results/kept"):
        method = run["spec"]["method"]
        value = 100 * run["metrics"]["exact_match"]["macro"]["value"]
        cells.setdefault((method["name"], method.get("kept")), []).append(value)
    assert {len(values) for values in cells.values()} == {4}
    means = {at: sum(values) / 4 for at, values in cells.items()}
    tried = (4, 8, 16, 32)
    best = [(max(means[name, kept] for kept in tried), means[name, None]) for name in ("srki", "dynarule")]
    assert [round(each, 1) for pair in best for each in pair] == numbers


def test_what_scores_bring_to_a_search_by_words(said, run_of, exact):
    """On the validation questions; the weight that the ablation has is the best on the mean of both forms."""
    numbers = said(
        r"it has ([\d.]+) \(logic\) and ([\d.]+) \(English\), and ([\d.]+) and ([\d.]+) without them, where DynaRule\+ "
        r"has ([\d.]+) and ([\d.]+), and ([\d.]+) and ([\d.]+) without its own"
    )
    means = {
        weight: [
            exact(run_of("plus_settings", "searched", form, score_weight=weight)) for form in ("fol", "nl")
        ]
        for weight in (0, 0.5, 1, 2, 3)
    }
    assert max(means, key=lambda weight: sum(means[weight])) == 1
    ours = [
        exact(run_of("plus_settings", "dynarule-plus", form, score_weight=weight, score_limit=None))
        for weight in (None, 0)
        for form in ("fol", "nl")
    ]
    assert numbers == [*means[1], *means[0], *ours]


def test_what_searches_from_both_ends_step_by_step(said):
    numbers = said(
        r"From both ends IRCoT has ([\d.]+) \(logic\) and ([\d.]+) \(English\) there, "
        r"Stepwise RAG ([\d.]+) and ([\d.]+), ReAct ([\d.]+) and ([\d.]+), with its first request \S+ ([\d.]+) and "
        r"([\d.]+), and by other shares .* less: ([\d.]+) and ([\d.]+) by two, ([\d.]+) and ([\d.]+) by five, "
        r"([\d.]+) and ([\d.]+) by seven\."
    )
    arena = (
        {"name": "ircot", "rounds": 8},
        {"name": "stepwise", "aggregation": "rrf_rounds"},
        {"name": "react", "in_prompt": 8, "reworded": None},
        {"name": "react", "in_prompt": 8, "reworded": True},
    )
    asked = [(0.3, each) for each in arena] + [(share, arena[-1]) for share in (0.2, 0.5, 0.7)]
    found = [validated("searches", "both-ends", share, **each) for share, each in asked]
    assert numbers == [value for pair in found for value in pair]
    assert all(mean(found[3]) > mean(other) for other in found[4:])


def test_other_shares_do_no_better_step_by_step(said):
    numbers = said(
        r"Stepwise RAG and IRCoT have less on the same questions \(at most ([\d.]+) and ([\d.]+) in logic, "
        r"([\d.]+) and ([\d.]+) in English; with three ([\d.]+) and ([\d.]+), ([\d.]+) and ([\d.]+), \[searches\]"
    )
    rows = {"name": "stepwise", "aggregation": "rrf_rounds"}, {"name": "ircot", "rounds": 8}
    others = [[validated("searches", "both-ends", share, **row) for share in (0.2, 0.5, 0.7)] for row in rows]
    most = [[max(form) for form in zip(*each, strict=True)] for each in others]
    chosen = [validated("searches", "both-ends", 0.3, **row) for row in rows]
    assert numbers == [each[form] for found in (most, chosen) for form in range(2) for each in found]
    assert all(low < high for each in zip(most, chosen, strict=True) for low, high in zip(*each, strict=True))


def test_what_taking_searches_in_turns_did_to_stepwise_rag(said):
    """The best number of rules of each, on the same validation questions."""
    best = {}
    for name in ("searches", "in_prompt"):
        for run in find_results(BENCHMARKS / "results" / name):
            method = run["spec"]["method"]
            if (
                run["spec"]["representation"] == "fol"
                and method["name"] == "stepwise"
                and method["in_prompt"] in (8, 16)
            ):
                if (method["retriever"]["name"] == "both-ends") != ("score_share" in method):
                    continue
                at = method["retriever"]["name"], method["aggregation"]
                value = 100 * run["metrics"]["exact_match"]["macro"]["value"]
                best[at] = max(best.get(at, 0), round(value, 1))
    turns, fused, graph_turns, graph_fused = said(
        r"with BM25 \(([\d.]+) of a hundred in logic, ([\d.]+) fused\), with a graph \(([\d.]+) and ([\d.]+)\)"
    )
    (both_fused,) = said(r"Stepwise RAG ([\d.]+) and [\d.]+, ReAct")
    (both_turns,) = said(r"and from both ends \(([\d.]+)\)")
    assert best == {
        ("bm25", "in_turn"): turns,
        ("bm25", "rrf_rounds"): fused,
        ("graph", "in_turn"): graph_turns,
        ("graph", "rrf_rounds"): graph_fused,
        ("both-ends", "in_turn"): both_turns,
        ("both-ends", "rrf_rounds"): both_fused,
    }


def test_what_smollm2_was_taught(said):
    """Tokens, minutes and levels of both trainings, from their logs; the record is of the second."""
    minutes, tokens, beside, plain = said(
        r"in ([\d.]+) minutes of one H200 on ([\d.]+) million tokens .* up to (\d+) rules .* (\d+) in plain English"
    )
    folder = BENCHMARKS / "base/smollm2"
    first, second = (
        json.loads((folder / name).read_text(encoding="utf-8").splitlines()[-1])
        for name in ("first.jsonl", "log.jsonl")
    )
    assert round((first["seconds"] + second["seconds"]) / 60, 1) == minutes
    assert round((first["tokens"] + second["tokens"]) / 1e6, 1) == tokens
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert (record["tokens"], record["steps"]) == (second["tokens"], second["step"])
    assert (record["levels"]["questions"], record["levels"]["plain"]) == (beside, plain)
    assert record["environment"]["gpu"] == "NVIDIA H200"


def test_what_words_and_scores_bring_on_smollm2(said, run_of, exact, lead, options):
    """On validation questions in logic; what is shipped has the best of the rows."""
    count, *numbers = said(
        r"Of (\d+) validation questions in logic among 10,000 rules it has ([\d.]+) % right, ([\d.]+) where no score "
        r"counts, ([\d.]+) where they count 3 times and take 4 at most; ([\d.]+) without words, ([\d.]+) with words as "
        r"they are written, by a weight of 0.2, and ([\d.]+) with stems by that weight"
    )
    difference = said(r"\(without scores ([\d.]+) less, (-[\d.]+) to ([\d.]+), paired by question")
    tried = (
        {},
        {"score_weight": 0},
        {"score_weight": 3, "score_limit": 4},
        *(
            {"word_weight": weight, "word_stemmer": stems}
            for weight, stems in ((0, ""), (0.2, ""), (0.2, "english"))
        ),
    )
    runs = [run_of("words_and_scores", "dynarule-plus", "fol", **each) for each in tried]
    assert {(run["n"]["scored"], run["spec"]["split"]) for run in runs} == {(count, "validation")}
    assert [exact(run) for run in runs] == numbers
    assert max(numbers) == numbers[0]
    assert lead("words_and_scores", *runs[:2]) == difference
    made = recipes.get("ablation/plus")(replace(options, models=(Local.of("tiny"),)))
    settings = ("score_weight", "score_limit", "word_weight", "word_stemmer")
    rows = {tuple(map(spec.method.get, settings)) for spec in made if spec.representation == "fol"}
    assert rows >= {tuple(map(run["spec"]["method"].get, settings)) for run in runs}


def test_shares_of_the_rivals_scores_on_smollm2(said, run_of, exact):
    """On validation questions; what the arena has is best on the mean of both forms, but for RAG."""
    names, shares, forms = ("rag", "stepwise", "ircot", "react"), (0.3, 0.2, 0.5), ("fol", "nl")
    pair = r"([\d.]+) and ([\d.]+)"
    count, *numbers = said(
        rf"On (\d+) validation questions in each form among 10,000 rules \(logic and English\) RAG has {pair} with "
        rf"them, Stepwise RAG {pair}, IRCoT {pair}, ReAct {pair}; with two tenths {pair}, {pair}, {pair}, {pair}; with "
        rf"five {pair}, {pair}, {pair}, {pair} \("
    )
    runs = [
        [
            run_of("smollm2_shares", name, form, score_share=share, reworded=name == "react" or None)
            for form in forms
        ]
        for share in shares
        for name in names
    ]
    assert numbers == [exact(run) for both in runs for run in both]
    assert {(run["n"]["scored"], run["spec"]["split"]) for both in runs for run in both} == {
        (count, "validation")
    }
    means = [sum(map(exact, both)) for both in runs]
    for place, name in enumerate(names):
        three, two, five = means[place :: len(names)]
        assert (three > max(two, five)) == (name != "rag")
    two, three = said(r"of those it answers less by them \(([\d.]+) and ([\d.]+)\)")
    assert [two, three] == [exact(run_of("smollm2", "rag", "fol", score_share=share)) for share in (0.2, 0.3)]


def test_a_reworded_first_request_on_smollm2(said, run_of, exact):
    """Form by form, on validation questions; a question's first request is in one form, whichever the rules have."""
    pair = r"([\d.]+) and ([\d.]+)"
    count, *plain, fol, nl = said(
        rf"On (\d+) validation questions in each form among 10,000 rules ReAct has {pair} \(logic and English\)\. "
        rf"It has {pair} where"
    )
    forms = ("fol", "nl")
    runs = {
        way: [run_of("smollm2_shares", "react", form, score_share=0.3, reworded=way) for form in forms]
        for way in (None, True)
    }
    assert [exact(run) for run in (*runs[None], *runs[True])] == [*plain, fol, nl]
    assert {run["n"]["scored"] for both in runs.values() for run in both} == {count}


def test_chains_on_smollm2_that_find_and_that_end_wrong(said, run_of):
    different, chains, found, ours, in_logic, *wrong = said(
        r"nearly all: (\d+) chains, each asked in both forms among 10,000 rules, are (\d+) questions; in (\d+) of them "
        r"each step was searched for, and every search brought a needed rule first; (\d+) of the 300 are answered "
        r"wrongly, (\d+) of them in logic; by IRCoT (\d+), by Stepwise RAG (\d+), by RAG (\d+),"
    )
    samples = {
        name: [
            sample
            for form in ("fol", "nl")
            for run in [run_of("smollm2", name, form, **more)]
            for sample in run_samples(BENCHMARKS / "results/smollm2" / run["run_id"])
            if sample["subtask"].startswith("multi_hop")
        ]
        for name, more in (
            ("dynarule-plus", {}),
            *((name, {"score_share": 0.3}) for name in ("ircot", "stepwise", "rag")),
        )
    }
    firsts = [
        len(sample["retrieved"]) >= len(sample["gold_rules"])
        and all(
            any(ids[0] in step for step in sample["gold_rules"])
            for ids in sample["retrieved"][: len(sample["gold_rules"])]
        )
        for sample in samples["dynarule-plus"]
    ]
    assert (len(firsts), sum(firsts)) == (chains, found)
    assert len({sample["id"] for sample in samples["dynarule-plus"]}) == different
    failed = {name: [each["scores"]["exact_match"] < 1 for each in asked] for name, asked in samples.items()}
    assert [sum(each) for each in failed.values()] == [ours, *wrong]
    assert sum(failed["dynarule-plus"][: int(different)]) == in_logic
    (early,) = said(r"Of DynaRule\+'s ten in logic (\d+) end before their last step")
    stopped = [len(each["retrieved"]) < len(each["gold_rules"]) for each in samples["dynarule-plus"]]
    both = zip(failed["dynarule-plus"][: int(different)], stopped[: int(different)], strict=True)
    assert sum(wrong and short for wrong, short in both) == early


def test_the_numbers_beside_the_paper():
    """Each average over the paper's kinds of question in both forms; a method that the paper has not is not there."""
    shown = re.findall(r"^\| ([\d,]+) \| ([\w() -]+) \| ([\d.]+) \| ([\d.]+) \|$", TEXT, flags=re.M)
    beside = table_beside_paper(list(find_results(BENCHMARKS / "results/arena")), "paper/table2")
    rows = [
        (f"{row.pool_size:,}", row.method, *(f"{100 * (value or 0):.1f}" for value in row.cells[-1]))
        for row in beside.rows
        if row.cells[-1].ours is not None and ", seed " not in row.ours
    ]
    assert shown == rows and len(rows) == 16


def test_the_layer_that_entropy_names_is_the_one_that_keeps_the_answers(said):
    """Figure 3 on the bundled model: every layer holds its own rules, so one can be told from another."""
    *kept, most = said(
        r"in it alone ([\d.]+) % \(logic\) and ([\d.]+) % \(English\).* in another layer alone ([\d.]+) % at most"
    )
    found = {"fol": {}, "nl": {}}
    sharpest = {}
    for run in find_results(BENCHMARKS / "results/figure3"):
        form, layer = run["spec"]["representation"], run["spec"]["method"]["correct_layer"]
        if layer is None:
            entropy = run["measures"]["rule_entropy"]
            sharpest[form] = entropy["layers"][entropy["mean"].index(min(entropy["mean"]))]
        else:
            found[form][layer] = 100 * run["metrics"]["exact_match"]["macro"]["value"]
    assert sharpest == {
        form: read(f"dynarule-{form}/adapter_config.json")["confidence_layer"] for form in found
    }
    assert [round(found[form].pop(sharpest[form])) for form in ("fol", "nl")] == kept
    assert round(max(value for layers in found.values() for value in layers.values())) == most
    assert [len(layers) for layers in found.values()] == [3, 3]


def test_answers_on_rule_books_that_were_cut_off(said):
    page = (BENCHMARKS / "docs/rulebooks.md").read_text(encoding="utf-8")
    gold, asked, floor = said(
        r"with gold rules (\d+) of (\d+) were cut off there, without any rule (\d+),", page
    )
    cut = {
        run["method"]["key"]: (run["outcomes"].get("length", 0), run["n"]["scored"])
        for run in find_results(BENCHMARKS / "results/rulebooks")
    }
    assert cut["gold-only"] == (gold, asked) and cut["no-rules"] == (floor, asked)


def test_what_is_ahead_on_rule_books(said):
    page = (BENCHMARKS / "docs/rulebooks.md").read_text(encoding="utf-8")
    ours, both, difference, low, high = said(
        r"\(([\d.]+) and ([\d.]+); a difference of ([\d.]+) points, 95 % interval (-[\d.]+) to ([\d.]+), which",
        page,
    )
    gain, least, most = said(r"of BM25 by ([\d.]+) \((-?[\d.]+) to ([\d.]+)\)", page)
    everything, planned, more, at_least, at_most = said(
        r"all of them in the prompt ([\d.]+) are right\. .* have ([\d.]+); ([\d.]+) points more, which may be chance "
        r"\((-[\d.]+) to ([\d.]+)\)",
        page,
    )
    runs = {run["method"]["label"]: run for run in find_results(BENCHMARKS / "results/rulebooks")}
    plus = runs["DynaRule+, smollm2-rules"]
    expected = {
        "RAG both ends": [difference, low, high],
        "RAG BM25": [gain, least, most],
        "RAG by DynaRule+": [-more, -at_most, -at_least],
    }
    for start, numbers in expected.items():
        (other,) = (run for label, run in runs.items() if label.startswith(start))
        folders = [BENCHMARKS / "results/rulebooks" / run["run_id"] for run in (other, plus)]
        (found,) = compare_runs(folders)["comparisons"]
        paired = found["metrics"]["exact_match"]["difference"]
        assert [round(100 * paired[name], 1) for name in ("value", "ci_low", "ci_high")] == numbers
    value = {
        label: round(100 * run["metrics"]["exact_match"]["macro"]["value"], 1)
        for label, run in runs.items()
        if "exact_match" in run["metrics"]  # a search alone answers nothing
    }
    assert value["DynaRule+, smollm2-rules"] == ours
    assert {value["Prompting, smollm2-rules"], value["RAG by DynaRule+'s search, smollm2-rules"]} == {
        everything,
        planned,
    }
    assert both in [value[label] for label in value if label.startswith("RAG both ends")]
    (wordless,) = said(r"Without the words DynaRule\+ has ([\d.]+)\.", page)
    assert value["DynaRule+, smollm2-rules, no words"] == wordless
