"""The paper's numbers stand beside the right ones of ours."""

import itertools

import pytest
from rwbench.recipes import recipes
from rwbench.report.paper import numbers, quotes, table_beside_paper, tables_beside_paper

TABLES = numbers()["tables"]


def rows(name):
    """(pool size, method, representation or None) -> values, of a table."""
    return {(r["pool_size"], r["method"], r.get("representation")): r["values"] for r in TABLES[name]["rows"]}


def estimate(value):
    return {"value": value, "ci_low": value, "ci_high": value, "n": 50, "method": "bootstrap"}


def made_up(key, label, form, size, metrics):
    spec = {"representation": form, "pool_size": size, "method": {"name": key}}
    method = {"key": key, "label": label}
    return {"run_id": "0" * 12, "method": method, "spec": spec, "metrics": metrics, "n": {"scheduled": 550}}


def answers(by_subtask, **groups):
    return {
        "exact_match": {
            "macro": estimate(0.5),
            "by_subtask": {name: estimate(value) for name, value in by_subtask.items()},
            "by_group": {name: estimate(value) for name, value in groups.items()},
            "folds": {"values": [0.0] * 5, "displayed": [0.1, 0.2, 0.3, 0.4, 0.5]},
        }
    }


def ours(table, row=0):
    return [ours for _, ours in table.rows[row].cells]


def test_ours_stand_in_the_paper_s_columns():
    subtasks = {"single_rule": 0.9, "multi_hop_2": 0.3, "multi_hop_3": 0.2, "multi_hop_4": 0.1}
    metrics = answers(subtasks, parallel_2_4=0.8, parallel_5_8=0.7)
    runs = [made_up("dynarule", "DynaRule, tiny", form, 1000, metrics) for form in ("fol", "nl")]
    solver = made_up("solver", "Solver", "fol", 1000, answers(subtasks))
    table = table_beside_paper([*runs, solver], "table2")
    (row,) = table.rows  # the paper has no solver
    assert (row.pool_size, row.method, row.ours) == (1000, "DynaRule", "DynaRule, tiny")
    assert ours(table) == [0.9, 0.8, 0.7, 0.3, 0.2, 0.1] * 2 + [pytest.approx(0.5)]
    assert [paper for paper, _ in row.cells] == rows("table2")[1000, "DynaRule", None]
    assert table.columns[:2] == ["single rule, FOL", "parallel 2 to 4, FOL"]
    half = ours(table_beside_paper(runs[:1], "table2"))
    assert half[6] is half[-1] is None  # no average over half of the columns
    assert table_beside_paper([solver], "table2") is None


def test_runs_on_few_questions_and_on_many_are_two_tables_and_recall_goes_step_by_step():
    runs = []
    for form, limit in itertools.product(("fol", "nl"), (5, None)):
        metrics = answers({"single_rule": 0.9 if limit else 0.3})
        runs.append(made_up("dynarule", "DynaRule, tiny", form, 1000, metrics))
        runs[-1]["spec"]["limit"], runs[-1]["n"]["scheduled"] = limit, 55 if limit else 550
    tables = [table for table in tables_beside_paper(runs, "paper/table2") if table.name == "table2"]
    assert [(table.questions, ours(table)[0]) for table in tables] == [(550, 0.3), (55, 0.9)]
    assert tables_beside_paper(runs, "mine") == []
    folds = {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}
    values = {"recall@1": 0.4, "recall@10": 0.4, "step_recall@1": 0.6}
    recall = {n: {"macro": estimate(v), "by_subtask": {}, "folds": folds} for n, v in values.items()}
    runs = [made_up("dynarule", "D", form, 500, recall) for form in ("fol", "nl")]
    assert ours(table_beside_paper(runs, "table10")) == [None, 0.4, 0.6] * 2
    table = table_beside_paper(runs, "table12")
    assert ours(table) == pytest.approx([0.15811, 0.19632], abs=1e-5)


def test_what_the_text_says_of_a_figure_is_the_mean_of_its_tables():
    """Figure 5b's DynaRule at 10,000 rules: means over FOL and NL of tables 2 and 10."""
    (text,) = quotes("paper/figure5b")
    answered = rows("table2")[10000, "DynaRule", None][-1]
    recalls = rows("table10")[10000, "DynaRule", None]
    assert f"DynaRule {100 * answered:.2f} %, {50 * (recalls[2] + recalls[5]):.2f} %" in text
    assert quotes("figure5b") == quotes("paper/table2") == []
    named = {name for figure in numbers()["figures"] for name in figure["recipes"]}
    made = {table.get("recipe", name) for name, table in TABLES.items()}
    assert {f"paper/{name}" for name in named | made} <= set(recipes.items())
