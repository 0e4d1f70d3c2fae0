"""Tables as Markdown and on a terminal: each cell is its run's; the headline."""

import json
import re
from statistics import fmean

import pytest
from rwbench.methods import Output
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.report.page import render_page
from rwbench.report.rows import mistakes
from rwbench.report.setting import settings
from rwbench.report.tables import headline, interval, markdown_table, percent, terminal_table
from rwbench.retrievers.bm25 import BM25
from rwbench.run.books import BookSource
from rwbench.run.runner import run_spec

from ..command import rwbench


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0004, "<0.1"), (0.565, "56.5"), (0.9999, "99.9"), (1, "100"), (0.001, "0.1")],
)
def test_only_exact_values_look_exact(value, text):
    assert percent(value) == text


def test_every_cell_is_that_of_its_run_and_one_that_failed_is_marked(committed):
    """Exact match with its interval and strict match, in Markdown; the same value on a terminal."""
    runs = committed("arena")
    runs[0]["n"]["failed"] = 1
    (setting,) = settings(runs)
    text = markdown_table(setting)
    left = {key: cell for key, cell in cells(text).items() if key[1] != "method" and cell != "-"}
    shown = [(line.label, *place, run) for line in setting.lines for place, run in line.runs.items()]
    assert len(shown) == len(setting.runs)
    for label, form, size, run in shown:
        cell = left.pop((label, f"{size:,} rules, {form.upper()}"))
        exact, strict = (run["metrics"][name]["macro"]["value"] for name in ("exact_match", "strict_match"))
        assert cell == f"{interval(run['metrics']['exact_match']['macro'])}, {percent(strict)}" + "*" * (
            run is runs[0]
        )
        assert f"{percent(exact)} ±" in terminal_table(setting)
    assert not left and text.count("*") == 2 and "; * without questions that failed; " in text


def test_the_headline_has_the_best_and_the_floor(searches):
    sentence = headline(*settings(searches))
    assert sentence.startswith("With 1,000 rules, BM25 ranks ") and "Random rules (floor)" in sentence
    value = searches[3]["metrics"]["recall@1"]["macro"]["value"]  # NL, 1,000 rules
    assert f"{percent(value)} % (NL)" in sentence


@pytest.mark.parametrize("folder", ["arena", "held_out_550"])
def test_the_headline_names_the_plain_method_and_no_ablation_or_second_training(folder, committed):
    """`make demo` once said of DynaRule+ what it has without its look-ahead."""
    runs = committed(folder)
    text = headline(*settings(runs))
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
            hits = self.retriever.search(pool, question.text, top_k)
            answers = [question.answers[0], *["no"] * (len(question.answers) - 1)]
            yield Output(question.id, retrieved=[hits.ids.tolist()], answers=answers, text="said")

    monkeypatch.setattr(Retrieve, "answer", answer)
    source = BookSource()
    spec = Options(source, split="test").spec(Retrieve(BM25()), "nl", source.pool_size, "world")
    return tmp_path, run_spec(spec, source, tmp_path)


def test_a_table_of_books_has_a_column_a_book_and_the_rules_found_first(book_run):
    folder, run = book_run
    caption, _, table = rwbench("report", folder, "--markdown").stdout.strip().partition("\n\n")
    head, _, row = table.splitlines()
    assert "90 questions on 3 rule books (clinic, library, parcel depot)" in " ".join(caption.split())
    assert head == "| method | all | clinic | library | parcel depot | rule found first |"
    samples = [
        json.loads(line) for line in (folder / run["run_id"] / "samples.jsonl").read_text().splitlines()
    ]

    def mean(metric, book=None):
        return fmean(s["scores"][metric] for s in samples if book in (None, s["subtask"]))

    values = [cell.split()[0] for cell in row.strip("|").split(" | ")[1:]]
    exact = [mean("exact_match", book) for book in (None, "clinic", "library", "parcel_depot")]
    assert values == [f"{100 * value:.1f}" for value in (*exact, mean("recall@1"))]


def test_a_page_and_a_trace_of_books(book_run):
    folder, run = book_run
    page = render_page([run], "books", "rwbench run rulebooks")
    assert "90 questions on 3 rule books" in page and "scale paper" not in page
    assert mistakes(run, folder) == {}  # their rules have no logic to compare an answer with
    words = ["trace", str(folder), "--method", "retrieve", "--question", "library-01"]
    traced = rwbench(*words, code=0)
    first = BookSource().questions("library", "test")[0].gold[0]
    (rule,) = BookSource().rules("test").texts([first], "nl")
    assert rule in traced.stdout and "answer: 13 (right)" in traced.stdout
