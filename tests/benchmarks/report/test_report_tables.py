"""Tables as Markdown, LaTeX and on a terminal: each cell is its run's; what fails and what cannot be joined is said."""

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import fmean

import pytest
from rich.console import Console
from rwbench.cli.app import app
from rwbench.methods import Output
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.report.mistakes import error_counts
from rwbench.report.page import render_page
from rwbench.report.setting import settings
from rwbench.report.tables import (
    LATEX_SIGNS,
    headline,
    latex_table,
    markdown_table,
    percent,
    terminal_table,
)
from rwbench.retrievers.bm25 import BM25
from rwbench.run.books import BookSource
from rwbench.run.runner import run_spec
from rwbench.run.workspace import Workspace
from rwbench.score.results import find_results
from typer.testing import CliRunner

RESULTS = Path(__file__).parents[3] / "benchmarks/results"
ARENA, HELD_OUT = RESULTS / "arena", RESULTS / "held_out_550"
EVIL = r"50% of_{x} & #1 $y$ ~ ^ \input{z} <a|b> " + '"q"'


def printed(*words):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def cells(text):
    """(method, column) -> cell."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    )
    return {
        (row[0].strip("| "), name.strip(": |")): cell
        for row in rows
        for name, cell in zip(head, row, strict=True)
    }


def shown(console_width, setting):
    console = Console(record=True, width=console_width)
    console.print(terminal_table(setting))
    return console.export_text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0004, "<0.1"), (0.565, "56.5"), (0.9999, "99.9"), (1, "100"), (0.001, "0.1")],
)
def test_only_exact_values_look_exact(value, text):
    assert percent(value) == text


def test_every_cell_is_that_of_its_run():
    """Exact match with its interval and strict match; held-out rules in columns of their own."""
    plain = cells(printed(ARENA, "--markdown").stdout)
    wide = cells(printed(ARENA, "--held-out", HELD_OUT, "--markdown").stdout)
    assert plain.items() <= wide.items()
    left = {key: cell for key, cell in wide.items() if key[1] != "method" and cell != "-"}
    for folder, rules in ((ARENA, "rules"), (HELD_OUT, "held-out rules")):
        (setting,) = settings(find_results(folder))
        for run in setting.runs:
            form, size = run["spec"]["representation"].upper(), run["spec"]["pool_size"]
            cell = left.pop((setting.view(run).label, f"{size:,} {rules}, {form}"))
            exact, strict = (
                run["metrics"][name]["macro"]["value"] for name in ("exact_match", "strict_match")
            )
            assert cell.startswith(f"{percent(exact)} (") and cell.endswith(f"), {percent(strict)}")
    assert not left


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((ARENA, "--held-out", RESULTS / "held_out", "--markdown"), "110 questions"),  # fewer
        ((ARENA, "--held-out", RESULTS / "rulebooks", "--markdown"), "rule books"),
        ((RESULTS / "rulebooks", "--held-out", HELD_OUT, "--markdown"), "split heldout"),
        ((ARENA, "--held-out", RESULTS / "smollm2", "--markdown"), "model smollm2-rules"),  # of another split
        ((HELD_OUT, "--held-out", ARENA, "--markdown"), "split mini"),  # the other way round
        ((RESULTS / "smollm2", "--held-out", HELD_OUT, "--markdown"), "model tiny"),  # another model's
        ((ARENA, "--held-out", RESULTS / "nowhere", "--markdown"), "there is no folder"),
        ((ARENA, "--held-out", HELD_OUT), "type --markdown"),
        ((ARENA, "--held-out", HELD_OUT, "--latex"), "type --markdown"),
    ],
)
def test_what_cannot_stand_beside_is_refused(words, expected):
    refused = printed(*words)
    assert refused.exit_code == 2 and expected in refused.output, refused.output


def test_rows_are_joined_by_what_methods_are(committed):
    """Not by what a reader sees: held-out runs of two models name them, and a method may be there alone."""
    arena, unseen = committed("arena"), committed("held_out_550")
    other = copy.deepcopy(next(run for run in unseen if run["method"]["label"] == "DynaRule+, tiny"))
    other["spec"]["method"]["model"]["model"] = "large"
    other["method"]["label"] = "DynaRule+, large"
    (setting,), (mixed,) = settings(arena), settings([*unseen, other])
    assert mixed.model is None
    joined = cells(markdown_table(setting, mixed))
    assert cells(markdown_table(setting, *settings(unseen))).items() <= joined.items()
    assert list(dict.fromkeys(name for name, _ in joined))[-1] == "DynaRule+, large"
    assert joined["DynaRule+, large", "10,000 rules, FOL"] == "-"


def test_held_out_rules_of_another_world_do_not_fit_and_of_two_that_fit_none_is_chosen(committed):
    (setting,), unseen = settings(committed("arena")), committed("held_out_550")
    assert setting.held_out(settings(unseen)) is not None
    for name, value in (("world_seed", 1), ("scale", "tiny"), ("data", "1.0.0")):
        changed = copy.deepcopy(unseen)
        for run in changed:
            run["spec"][name] = value
        assert setting.held_out(settings(changed)) is None
    again = copy.deepcopy(unseen)
    for run in again:
        run["spec"]["limit"] = None
    with pytest.raises(ValueError, match="several settings of held-out rules fit"):
        setting.held_out(settings([*unseen, *again]))


def test_a_run_whose_questions_failed_is_marked_in_every_table(searches, committed):
    (setting,) = settings(searches)
    assert "*" not in markdown_table(setting) + shown(200, setting)
    assert "*" not in latex_table(setting).replace("table*", "")
    searches[0]["n"] = {"scheduled": 22, "scored": 19, "failed": 3}  # BM25 in logic among 100 rules
    (setting,) = settings(searches)
    for text in (markdown_table(setting), shown(200, setting)):
        assert text.count("*") == 2 and "* without questions that failed" in " ".join(text.split())
    (row,) = (line for line in latex_rows(latex_table(setting)) if "*" in line)
    _, method, *values = row.split(" & ")
    assert "BM25" in method and [value.endswith("*") for value in values if value != "--"] == [
        True,
        True,
        False,
        False,
    ]
    unseen = committed("held_out_550")
    unseen[0]["n"]["failed"] = 1
    text = markdown_table(*settings(committed("arena")), *settings(unseen))
    assert text.count("*") == 2 and "; * without questions that failed; " in text


def latex_rows(table):
    lines = (line for line in table.splitlines() if line.endswith(r"\\") and "multicolumn" not in line)
    return [line.removesuffix(r" \\") for line in lines]


@pytest.mark.parametrize("name", ["searches", "answering"])
def test_every_row_of_latex_has_every_column(name, request):
    (setting,) = settings(request.getfixturevalue(name))
    table = latex_table(setting)
    width = len(re.search(r"\\begin\{tabular\}\{(llr+)\}", table)[1])
    assert {line.count(" & ") + 1 for line in latex_rows(table)} == {width}
    assert width == 2 + 2 * (3 if name == "searches" else 7)
    for kind in ("table*", "tabular"):
        assert table.count(f"\\begin{{{kind}}}") == table.count(f"\\end{{{kind}}}") == 1
    assert [table.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\cline" not in table  # booktabs' own rules stand between the blocks


def test_the_best_is_bold_and_no_floor_is(searches):
    (setting,) = settings(searches)
    rows = {line.split(" & ")[1].strip(): line for line in reversed(latex_rows(latex_table(setting)))}
    assert r"\textbf" not in rows["Random rules (floor)"]
    value = searches[0]["metrics"]["recall@1"]["macro"]["value"]
    assert f"\\textbf{{{percent(value)}}}" in rows["BM25"]


def test_no_sign_of_a_label_means_anything_to_latex():
    assert "a_b & 5%".translate(LATEX_SIGNS) == r"a\_b \& 5\%"
    assert "\\".translate(LATEX_SIGNS) == r"\textbackslash{}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_tables_compile(answering, tmp_path):
    evil = copy.deepcopy(answering)
    for run in evil:
        run["method"]["label"] = EVIL
    tables = "\n\n".join(map(latex_table, settings(answering) + settings(evil)))
    source = rf"\documentclass{{article}}\usepackage[T1]{{fontenc}}\usepackage{{booktabs}}\begin{{document}}{tables}"
    (tmp_path / "t.tex").write_text(source + r"\end{document}")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_terminal_shows_every_method_and_takes_no_label_for_markup(searches):
    for run in searches[:4]:
        run["method"]["label"] = "[bold]BM25[/bold]"
    (setting,) = settings(searches)
    text = shown(200, setting)
    assert "[bold]BM25[/bold]" in text and "Random rules (floor)" in text
    e = searches[1]["metrics"]["recall@1"]["macro"]
    assert f"{percent(e['value'])} ±{50 * (e['ci_high'] - e['ci_low']):.1f}" in text


def test_the_headline_has_the_best_and_the_floor(searches, answering):
    (setting,) = settings(searches)
    sentence = " ".join(headline(setting))
    best = next(
        run
        for run in searches[:4]
        if run["spec"] | {"representation": "nl", "pool_size": 1000} == run["spec"]
    )
    assert "With 1,000 rules, BM25" in sentence and "Random rules (floor)" in sentence
    assert f"{percent(best['metrics']['recall@1']['macro']['value'])} % (NL)" in sentence
    assert "BM25 (naive tokens) gets 0 % (FOL)" in sentence
    assert "DynaRule, tiny answers 43.0 % of the sub-questions" in " ".join(headline(*settings(answering)))


@pytest.mark.parametrize("folder", ["arena", "held_out_550"])
def test_the_headline_names_the_plain_method_and_no_ablation_or_second_training(folder, committed):
    """`make demo` once said of DynaRule+ what it has without its look-ahead."""
    runs = committed(folder)
    text = " ".join(headline(*settings(runs)))
    row = re.search(r"(?:^|\. )DynaRule\+([^.]*?) (?:gets|answers) ([\d.]+) % \(FOL\)", text)
    plain = [
        run
        for run in runs
        if run["method"]["label"] == "DynaRule+, tiny"
        and (run["spec"]["representation"], run["spec"]["pool_size"]) == ("fol", 10_000)
    ]
    assert row is not None and "," not in row[1].replace(", tiny", "")
    assert row[2] == percent(plain[0]["metrics"]["exact_match"]["macro"]["value"])


@pytest.fixture
def book_run(tmp_path, monkeypatch):
    """BM25 on the books; it answers the first of a question's answers as it should be, and no other."""

    def answer(self, batch, top_k):
        for pool, question in batch:
            (hits,) = self.retriever.index(pool.ids, pool.texts).search([question.text], top_k)
            answers = [question.answers[0], *["no"] * (len(question.answers) - 1)]
            yield Output(question.id, retrieved=[hits.ids.tolist()], answers=answers, text="said")

    monkeypatch.setattr(Retrieve, "answer", answer)
    source = BookSource()
    spec = Options(source, split="test").spec(Retrieve(BM25()), "nl", source.pool_size, "world")
    return tmp_path, run_spec(spec, Workspace(source), tmp_path)


def test_a_table_of_books_has_a_column_a_book_and_the_rules_found_first(book_run):
    folder, run = book_run
    caption, _, head, _, row = printed(folder, "--markdown").stdout.strip().splitlines()
    assert "of 40; 90 questions on 3 rule books (clinic, library, parcel depot)" in caption
    assert head == "| method | all | clinic | library | parcel depot | rule found first |"
    samples = [
        json.loads(line) for line in (folder / run["run_id"] / "samples.jsonl").read_text().splitlines()
    ]

    def mean(metric, book=None):
        return fmean(s["scores"][metric] for s in samples if book in (None, s["subtask"]))

    values = [cell.split()[0] for cell in row.strip("|").split(" | ")[1:]]
    assert values == [
        f"{100 * value:.1f}"
        for value in (
            mean("exact_match"),
            *(mean("exact_match", book) for book in ("clinic", "library", "parcel_depot")),
            mean("recall@1"),
        )
    ]
    broken = {**run, "n": {"scheduled": 90, "scored": 88, "failed": 2}}
    text = markdown_table(*settings([broken]))
    assert text.count("*") == 2 and "first of 40; * without questions that failed; 90 questions" in text
    assert text.splitlines()[-1].split(" | ")[1].endswith(")*")


def test_a_page_and_a_trace_of_books(book_run):
    folder, run = book_run
    page = render_page([run], "books", "rwbench run rulebooks", folder=folder)
    assert "90 questions on 3 rule books" in page and "scale paper" not in page
    assert error_counts([run], folder) == ({}, [])  # their rules have no logic to compare an answer with
    words = ["trace", str(folder), "--method", "retrieve", "--question", "library-01"]
    traced = CliRunner().invoke(app, words)
    assert traced.exit_code == 0, traced.output
    first = BookSource().questions("library", "test")[0].gold[0]
    (rule,) = BookSource().rules("test").texts([first], "nl")
    assert rule in traced.stdout and "answer: 13 (right)" in traced.stdout
