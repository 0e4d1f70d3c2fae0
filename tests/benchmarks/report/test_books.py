"""The table of rule books: its numbers are those of the samples, counted by hand."""

import json
from statistics import fmean

import pytest
from rwbench.cli.app import app
from rwbench.methods import Output
from rwbench.methods.retrieve import Retrieve
from rwbench.recipes import Options
from rwbench.report.books import book_table
from rwbench.report.mistakes import error_counts
from rwbench.report.page import render_page
from rwbench.report.setting import settings
from rwbench.retrievers.bm25 import BM25
from rwbench.run.books import BookSource
from rwbench.run.runner import run_spec
from rwbench.run.workspace import Workspace
from typer.testing import CliRunner


@pytest.fixture
def runs(tmp_path, monkeypatch):
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


def test_the_table_of_books_has_a_column_a_book_and_the_rules_found_first(runs):
    folder, results = runs
    printed = CliRunner().invoke(app, ["report", str(folder), "--markdown"]).stdout
    caption, _, head, _, row = printed.strip().splitlines()
    assert "of 40; 90 questions on 3 rule books (clinic, library, parcel depot)" in caption
    assert head == "| method | all | clinic | library | parcel depot | rule found first |"
    lines = (folder / results["run_id"] / "samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    shares = [
        fmean(s["scores"]["exact_match"] for s in samples if s["subtask"] == b) for b in ("clinic", "library")
    ]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert [cell.split()[0] for cell in cells[2:4]] == [f"{100 * share:.1f}" for share in shares]
    assert cells[1].startswith(f"{100 * fmean(s['scores']['exact_match'] for s in samples):.1f} (")
    assert cells[5].startswith(f"{100 * fmean(s['scores']['recall@1'] for s in samples):.1f} (")


def test_a_book_table_marks_a_run_whose_questions_failed(runs):
    _, results = runs
    assert "*" not in book_table(*settings([results]))
    broken = {**results, "n": {"scheduled": 90, "scored": 88, "failed": 2}}
    text = book_table(*settings([broken]))
    assert text.count("*") == 2 and "first of 40; * without questions that failed; 90 questions" in text
    assert text.splitlines()[-1].split(" | ")[1].endswith(")*")


def test_the_page_of_books_has_no_classes_of_error(runs):
    folder, results = runs
    page = render_page([results], "books", "rwbench run rulebooks", folder=folder)
    assert "90 questions on 3 rule books" in page and "scale paper" not in page
    assert error_counts([results], folder) == ({}, [])


def test_a_question_of_a_book_can_be_traced(runs):
    folder, _ = runs
    words = ["trace", str(folder), "--method", "retrieve", "--question", "library-01"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    first = BookSource().questions("library", "test")[0].gold[0]
    (rule,) = BookSource().rules("test").texts([first], "nl")
    assert rule in shown.stdout and "answer: 13 (right)" in shown.stdout
