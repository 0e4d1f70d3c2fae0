"""LaTeX tables: structure always, and a compilation where a TeX is at hand."""

import copy
import re
import shutil
import subprocess

import pytest
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.report.setting import settings
from rwbench.report.tables import LATEX_SIGNS, latex_table
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.random import Random
from rwbench.run.runner import run_spec

EVIL = r"50% of_{x} & #1 $y$ ~ ^ \input{z} <a|b> " + '"q"'


@pytest.fixture(scope="module")
def results(workspace, tmp_path_factory):
    from rwbench.recipes import Options

    options = Options(workspace.source, limit=1)
    out = tmp_path_factory.mktemp("runs")
    return [
        run_spec(options.spec(method, form, 100, "question"), workspace, out)
        for method in (Solver(), Retrieve(BM25()), Retrieve(Random()))
        for form in ("fol", "nl")
    ]


def answering(results):
    """The same runs as if the searches had answered too."""
    runs = copy.deepcopy(results)
    for run in runs:
        run["metrics"]["exact_match"] = results[0]["metrics"]["exact_match"]
    return runs


def body_rows(table):
    return [
        line.removesuffix(r" \\")
        for line in table.splitlines()
        if line.endswith(r"\\") and "multicolumn" not in line
    ]


@pytest.mark.parametrize("change", [lambda runs: runs, answering], ids=["retrieval", "answers"])
def test_every_row_has_every_column(results, change):
    (setting,) = settings(change(results))
    table = latex_table(setting)
    width = len(re.search(r"\\begin\{tabular\}\{(llr+)\}", table)[1])
    assert {line.count(" & ") + 1 for line in body_rows(table)} == {width}
    assert width == 2 + 2 * (3 if change is not answering else 7)
    for kind in ("table*", "tabular"):
        assert table.count(f"\\begin{{{kind}}}") == table.count(f"\\end{{{kind}}}") == 1
    assert [table.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\cline" not in table  # booktabs' own rules stand between the blocks


def test_the_best_is_bold_and_no_frame_is(results):
    (setting,) = settings(results)
    lines = {line.split(" & ")[1].strip(): line for line in body_rows(latex_table(setting))}
    assert r"\textbf" not in lines["Symbolic solver (ceiling)"] + lines["Random rules (floor)"]
    assert lines["BM25"].count(r"\textbf") == 4  # Recall@100 of 100 rules is no metric
    value = next(r for r in results if r["method"]["key"] == "bm25-aware")["metrics"]["recall@1"]["macro"][
        "value"
    ]
    assert f"\\textbf{{{100 * value:.1f}}}" in lines["BM25"]


def test_no_sign_of_a_label_means_anything():
    assert "a_b & 5%".translate(LATEX_SIGNS) == r"a\_b \& 5\%"
    assert "\\".translate(LATEX_SIGNS) == r"\textbackslash{}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_tables_compile(results, tmp_path):
    evil = answering(results)
    for run in evil:
        run["method"]["label"] = EVIL
    tables = "\n\n".join(map(latex_table, settings(results) + settings(evil)))
    source = rf"\documentclass{{article}}\usepackage[T1]{{fontenc}}\usepackage{{booktabs}}\begin{{document}}{tables}"
    (tmp_path / "t.tex").write_text(source + r"\end{document}")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_run_whose_questions_failed_is_marked(results):
    (setting,) = settings(results)
    assert "*" not in latex_table(setting).replace("table*", "")
    broken = copy.deepcopy(results)
    broken[2]["n"] = {"scheduled": 11, "scored": 10, "failed": 1}  # BM25 in logic
    (setting,) = settings(broken)
    text = latex_table(setting).replace("table*", "")
    assert r"in \%; * without questions that failed." in text
    (row,) = (line for line in body_rows(text) if "*" in line)
    _, method, none, *marked, also_none, one, other = row.split(" & ")
    assert (
        "BM25" in method and none == also_none == "--" and not one.endswith("*") and not other.endswith("*")
    )
    assert len(marked) == 2 and all(cell.endswith("*") for cell in marked)
