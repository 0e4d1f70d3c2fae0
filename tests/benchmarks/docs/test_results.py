"""What the page of results says of its tables, from the committed runs."""

import re
from pathlib import Path

from rwbench.score.results import find_results, run_samples
from rwbench.score.stats import holm

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PAGE = (BENCHMARKS / "docs/results.md").read_text(encoding="utf-8")
TEXT = (BENCHMARKS / "docs/bundled-models.md").read_text(encoding="utf-8")
NUMBER, INTERVAL = r"(-?[\d.]+)", r"(-?[\d.]+) to (-?[\d.]+)"
BOTH_ENDS = {"score_share": 0.3}
REWORDED = {"react": {"reworded": True}}
NEAREST = ("stepwise", "ircot")


def trainings(run_of, form, size=10_000, folder="arena"):
    """The runs of DynaRule+'s three trainings."""
    variants = "", "seed-1", "seed-2"
    return [run_of(folder, "dynarule-plus", form, size, variant=variant) for variant in variants]


def test_what_the_lead_is_made_of(said, run_of, exact, lead, ids_of):
    numbers = said(
        rf"on the same 110 questions among 10,000 rules: DynaRule\+ has {NUMBER} \(logic\) and {NUMBER} "
        rf"\(English\), without the scores of its searches in its reading {NUMBER} and {NUMBER}, the same searches "
        rf"in the prompt of the base {NUMBER} and {NUMBER}, the search by words \(from both ends\) in the place of its "
        rf"own and read by its scores alike {NUMBER} and {NUMBER}, Stepwise RAG from both ends {NUMBER} and {NUMBER}\.",
        PAGE,
    )
    forms = ("fol", "nl")
    rows = (("dynarule-plus", {}), ("dynarule-plus", {"score_weight": 0}), ("planned", {}))
    rows += (("searched", {"score_weight": 1}),)
    runs = [run_of("plus", name, form, **more) for name, more in rows for form in forms]
    values = [exact(run) for run in runs]
    asked = {form: ids_of("plus", run) for form, run in zip(forms, runs, strict=False)}
    assert {len(each) for each in asked.values()} == {110}
    for form in forms:
        run = run_of("arena", "stepwise", form, **BOTH_ENDS)
        kinds = {}
        for sample in run_samples(BENCHMARKS / "results/arena" / run["run_id"]):
            if sample["id"] in asked[form]:
                kinds.setdefault(sample["subtask"], []).append(sample["scores"]["exact_match"])
        values.append(round(100 * sum(sum(each) / len(each) for each in kinds.values()) / len(kinds), 1))
    assert numbers == values
    brings = said(
        rf"its own brings {NUMBER} points in English \({INTERVAL}\), and {NUMBER} in logic \({INTERVAL}\), which may",
        PAGE,
    )
    (fol, nl), words = runs[:2], [run_of("plus", "searched", form, score_weight=1) for form in ("nl", "fol")]
    assert brings == lead("plus", nl, words[0]) + lead("plus", fol, words[1])


def test_what_comes_closest_to_dynarule_plus(said, run_of, mean_lead):
    """Paired on the 550 questions, against the mean of three trainings."""
    numbers = said(
        rf"they are {NUMBER} and {NUMBER} points behind the mean of its three trainings in logic, which may be chance "
        rf"\(95 % intervals over questions: {INTERVAL}, "
        rf"{INTERVAL}\), and {NUMBER} and {NUMBER} in English \({INTERVAL}, {INTERVAL}\), and ask the model "
        rf"{NUMBER} and {NUMBER} times a question where DynaRule\+ asks once and searches {NUMBER} times",
        PAGE,
    )
    runs = {
        (name, form): run_of("arena", name, form, **({} if name == "dynarule-plus" else BOTH_ENDS))
        for name in (*NEAREST, "dynarule-plus")
        for form in ("fol", "nl")
    }
    for form, (one, other, *intervals) in (("fol", numbers[:6]), ("nl", numbers[6:12])):
        for name, *expected in (("stepwise", one, *intervals[:2]), ("ircot", other, *intervals[2:])):
            assert mean_lead("arena", trainings(run_of, form), runs[name, form]) == expected
    counts = [runs[name, "fol"]["usage"]["calls"]["mean"] for name in (*NEAREST, "dynarule-plus")]
    counts[2:] = [counts[2], runs["dynarule-plus", "fol"]["usage"]["retrievals"]["mean"]]
    assert counts.pop(2) == 1
    assert [round(each, 1) for each in counts] == numbers[12:]
    pair, intervals = rf"{NUMBER} and {NUMBER}", rf"\({INTERVAL}, {INTERVAL}\)"
    strict = said(
        rf"All or nothing .*? they are behind by {pair} in logic {intervals}, {pair} in English {intervals}",
        PAGE,
    )
    found = []
    for form in ("fol", "nl"):
        leads = [
            mean_lead("arena", trainings(run_of, form), runs[name, form], strict=True) for name in NEAREST
        ]
        found += [each[0] for each in leads] + [each for _, *interval in leads for each in interval]
    assert strict == found


def test_where_the_lead_is(said, run_of, exact, lead, mean_lead):
    """Questions of several parts, and chains; at the three sizes, against the nearest rivals."""
    numbers = said(
        rf"among 10,000 rules DynaRule\+ has {NUMBER} \(logic\) and {NUMBER} \(English\) of those right, Stepwise "
        rf"RAG {NUMBER} and {NUMBER}\. On chains of two to four steps it has {NUMBER} and {NUMBER}, Stepwise RAG "
        rf"{NUMBER} and {NUMBER}, and on those of three steps in logic it is behind by {NUMBER} points \({INTERVAL}\)",
        PAGE,
    )
    ours, theirs = (
        [run_of("arena", name, form, **more) for form in ("fol", "nl")]
        for name, more in (("dynarule-plus", {}), ("stepwise", BOTH_ENDS))
    )
    values = [exact(run, "by_group", group) for group in ("parallel", "hops") for run in (*ours, *theirs)]
    behind, low, high = lead("arena", theirs[0], ours[0], "multi_hop_3")
    assert numbers == [*values, behind, low, high]
    said("among 1,000 rules and fewer they are level with it in logic and behind in English", PAGE)
    for size in (100, 1_000):
        for name in NEAREST:
            for form in ("fol", "nl"):
                rival = run_of("arena", name, form, size, **BOTH_ENDS)
                _, low, high = mean_lead("arena", trainings(run_of, form, size), rival)
                assert low < 0 < high if form == "fol" else low > 0, (size, name, form)


def test_what_is_ahead_on_rules_that_no_training_saw(said, run_of, mean_difference, ids_of):
    """Without the questions that ``held_out`` asks, too."""
    pair = rf"{NUMBER} and {NUMBER}"
    count, *numbers, one, two, least = said(
        r"On the \[other (\d+)\].* Stepwise RAG and IRCoT are behind the mean of DynaRule\+'s three trainings by "
        rf"{pair} points in logic "
        rf"\({INTERVAL}, {INTERVAL}\), {pair} in English \({INTERVAL}, {INTERVAL}; p after Holm's correction for the "
        rf"four: {NUMBER}, {NUMBER}, and at most {NUMBER} twice\)",
        PAGE,
    )
    seen, folder = ids_of("held_out", run_of("held_out", "dynarule-plus", "nl")), "held_out_550"
    values, chances = [], []
    for form in ("fol", "nl"):
        ours = trainings(run_of, form, folder=folder)
        assert {each["spec"]["split"] for each in ours} == {"heldout"}
        assert {len(ids_of(folder, each) - seen) for each in ours} == {count}
        rivals = [run_of(folder, name, form, **BOTH_ENDS) for name in NEAREST]
        found = [mean_difference(folder, ours, each, without=seen) for each in rivals]
        chances += [each.p_value for each in found]
        values += [each.value for each in found] + [
            end for each in found for end in (each.ci_low, each.ci_high)
        ]
    assert numbers == [round(100 * each, 1) for each in values]
    assert [float(f"{each:.2g}") for each in holm(chances)] == [one, two, least, least]


def test_how_much_trainings_differ(said, run_of, exact):
    numbers = said(r"those of DynaRule\+ by up to ([\d.]+) points, of SR-KI by up to ([\d.]+)\.", PAGE)
    seeds = ("", "seed-1", "seed-2")
    for name, variants, most in zip(("dynarule-plus", "srki"), (seeds, seeds[:2]), numbers, strict=True):
        found = [
            [exact(run_of("arena", name, form, size, variant=variant)) for variant in variants]
            for size in (100, 1_000, 10_000)
            for form in ("fol", "nl")
        ]
        assert round(max(max(each) - min(each) for each in found), 1) == most


def test_the_page_says_what_the_paper_has(said):
    dynarule, srki = said(r"has ([\d.]+) among 10,000 rules for DynaRule and ([\d.]+) for SR-KI", PAGE)
    shown = re.findall(r"^\| 10,000 \| ([\w() -]+) \| ([\d.]+) \| [\d.]+ \|$", TEXT, flags=re.M)
    assert (float(dict(shown)["DynaRule"]), float(dict(shown)["SR-KI"])) == (dynarule, srki)


def test_what_react_does_on_the_bundled_model(said, run_of, exact, lead):
    """Whether its first request is reworded; and that part after part is lost where mostly one rule is shown."""
    calls, most, *parts = said(
        rf"It asks the model most, {NUMBER} times a question\. .* the two differ by at most {NUMBER} points, which "
        rf"may be chance in each of the .* are right in {NUMBER}, {NUMBER}, {NUMBER} and {NUMBER} %, with BM25, which "
        rf"shows it four rules, in {NUMBER}, {NUMBER}, {NUMBER} and {NUMBER}\.",
        PAGE,
    )
    cells = [("arena", size) for size in (100, 1_000, 10_000)] + [("held_out_550", 10_000)]
    found = []
    for folder, size in cells:
        for form in ("fol", "nl"):
            plain, reworded = (
                run_of(folder, "react", form, size, **BOTH_ENDS, reworded=way) for way in (None, True)
            )
            found.append(lead(folder, reworded, plain))
    assert len(found) == 8 and all(low <= 0 <= high for _, low, high in found)
    assert max(abs(difference) for difference, _, _ in found) == most
    usual = run_of("arena", "react", "fol", **BOTH_ENDS, reworded=True)
    assert round(usual["usage"]["calls"]["mean"], 1) == calls
    right = []
    for size in (100, 1_000):
        for form in ("fol", "nl"):
            ours = run_of("arena", "react", form, size, **BOTH_ENDS, reworded=True)
            theirs = run_of("arena", "react", form, size, retriever="bm25")
            assert exact(ours) < exact(theirs)
            if (size, form) == (100, "fol"):
                right += [*parts_right("arena", ours), *parts_right("arena", theirs)]
    assert right == parts


def parts_right(folder, run):
    """In how many % of a run's questions of eight rules each of their four answers is right."""
    samples = run_samples(BENCHMARKS / "results" / folder / run["run_id"])
    asked = [each for each in samples if each["subtask"] == "multi_rule_8"]
    return [
        100
        * sum(each["answers"][part : part + 1] == [each["gold_answers"][part]] for each in asked)
        / len(asked)
        for part in range(4)
    ]


def test_what_is_ahead_on_smollm2(said, run_of, lead, mean_lead):
    """Paired by question."""
    count, *numbers = said(
        rf"the (\d+) questions were asked of DynaRule\+, .* ahead in English: of RAG from both ends by {NUMBER} points "
        rf"\({INTERVAL}\), of Stepwise RAG by {NUMBER} \({INTERVAL}\), of ReAct by {NUMBER} \({INTERVAL}\), "
        rf"of IRCoT by {NUMBER} \({INTERVAL}\)\. In logic it is ahead of RAG by {NUMBER} \({INTERVAL}\), "
        rf"of Stepwise RAG by {NUMBER} \({INTERVAL}\), of ReAct by {NUMBER} \({INTERVAL}\), and of IRCoT by {NUMBER}, "
        rf"which may be chance \({INTERVAL}\)\. All or nothing it is ahead of IRCoT by {NUMBER} "
        rf"in logic \({INTERVAL}\) and {NUMBER} in English \({INTERVAL}\), of ReAct by {NUMBER} \({INTERVAL}\) and "
        rf"{NUMBER} \({INTERVAL}\)\.",
        PAGE,
    )
    values, strictly = [], {}
    for form in ("nl", "fol"):
        ours = run_of("smollm2", "dynarule-plus", form)
        for name in ("rag", "stepwise", "react", "ircot"):
            theirs = run_of("smollm2", name, form, **BOTH_ENDS | REWORDED.get(name, {}))
            assert {run["n"]["scored"] for run in (ours, theirs)} == {count}
            values += lead("smollm2", ours, theirs)
            strictly[name, form] = mean_lead("smollm2", [ours], theirs, strict=True)
    strict = [strictly[name, form] for name in ("ircot", "react") for form in ("fol", "nl")]
    assert numbers == values + [each for found in strict for each in found]
    lows, highs = values[1::3], values[2::3]
    assert [low > 0 for low in lows] == [True] * 7 + [False] and highs[-1] > 0  # the last one may be chance


def test_what_is_ahead_on_smollm2_among_fewer_rules(said, run_of, lead):
    numbers = said(
        rf"\*\*Among 1,000 rules\*\* it is ahead of RAG by {NUMBER} in logic \({INTERVAL}\) and {NUMBER} in English "
        rf"\({INTERVAL}\), of Stepwise RAG by {NUMBER} \({INTERVAL}\) and {NUMBER} \({INTERVAL}\), and of IRCoT by "
        rf"{NUMBER}, which may be chance \({INTERVAL}\), and {NUMBER} \({INTERVAL}\)",
        PAGE,
    )
    ours = {form: run_of("smollm2", "dynarule-plus", form, 1_000) for form in ("fol", "nl")}
    compared = [(name, form) for name in ("rag", *NEAREST) for form in ("fol", "nl")]
    found = [
        lead("smollm2", ours[form], run_of("smollm2", name, form, 1_000, **BOTH_ENDS))
        for name, form in compared
    ]
    assert numbers == [value for each in found for value in each]


def test_which_leads_on_smollm2_hold_together(said, run_of, mean_difference):
    """Of all ten over the three nearest, by Holm's correction."""
    numbers = said(
        r"Of ten leads\*\*, .* five hold by Holm's correction for all: among 10,000 rules over Stepwise RAG "
        r"and ReAct in logic \(p = ([\d.]+) and ([\d.]+)\) and in English \(([\d.]+) and ([\d.]+)\), and over IRCoT "
        r"in English \(([\d.]+)\)",
        PAGE,
    )
    places = [(size, name, form) for size in (1_000, 10_000) for name in NEAREST for form in ("fol", "nl")]
    places += [(10_000, "react", form) for form in ("fol", "nl")]
    found = [
        mean_difference(
            "smollm2",
            [run_of("smollm2", "dynarule-plus", form, size)],
            run_of("smollm2", name, form, size, **BOTH_ENDS | REWORDED.get(name, {})),
        ).p_value
        for size, name, form in places
    ]
    held = {place: round(each, 3) for place, each in zip(places, holm(found), strict=True) if each < 0.05}
    said_of = [(10_000, name, form) for form in ("fol", "nl") for name in ("stepwise", "react")]
    assert held == dict(zip([*said_of, (10_000, "ircot", "nl")], numbers, strict=True))


def test_where_the_rows_of_smollm2_were_asked(said):
    cells, on_gpu = said(r"Of the table's (\d+) cells a GPU asked (\d+), a CPU the others", PAGE)
    devices = [run["environment"]["gpu"] for run in find_results(BENCHMARKS / "results/smollm2")]
    assert (len(devices), sum(each is not None for each in devices)) == (cells, on_gpu)


def test_without_rules_smollm2_asks_for_them(said, run_of):
    """Alike in both forms, whose prompts are the same."""
    asking, count, silent = said(
        r"Without rules (\d+) of (\d+) answers ask all the same, further on or in another spelling, and (\d+) name "
        r"nothing",
        PAGE,
    )
    for form in ("fol", "nl"):
        run = run_of("smollm2", "prompting", form, rules="none")
        samples = list(run_samples(BENCHMARKS / "results/smollm2" / run["run_id"]))
        texts = [sample["output"] for sample in samples]
        assert sum("[Search" in text or "[(Search" in text for text in texts) == asking
        assert (len(samples), sum(not sample["answers"] for sample in samples)) == (count, silent)
