"""The paper's numbers agree among themselves, and stand beside the right ones of ours."""

import copy
import itertools
from statistics import fmean

import pytest
from rwbench.recipes import recipes
from rwbench.report.paper import numbers, quotes, table_beside_paper, tables_beside_paper
from rwbench.score.summarise import GROUPS

TABLES = numbers()["tables"]
SIZES = {
    "table2": 221,
    "table3": 77,
    "table4": 96,
    "table8": 444,
    "table9": 444,
    "table10": 204,
    "table13": 792,
}


def rows(name):
    """(pool size, method, representation or None) -> values, of a table."""
    return {(r["pool_size"], r["method"], r.get("representation")): r["values"] for r in TABLES[name]["rows"]}


def test_no_number_is_missing_and_all_are_shares():
    """Counts of the four-decimal numbers in the paper's source."""
    for name, count in SIZES.items():
        values = [value for r in TABLES[name]["rows"] for value in r["values"] if value is not None]
        assert len(values) == count, name
        assert all(0 <= value <= 1 for value in values)
    assert len(TABLES["table11"]["rows"]) == 4 + 6 * 6
    assert len(TABLES["table12"]["rows"]) == 6 * 6


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table["has_average"]])
def test_every_average_is_that_of_its_row(name):
    for row in TABLES[name]["rows"]:
        assert row["values"][-1] == pytest.approx(fmean(row["values"][:-1]), abs=1.1e-4), row


def test_the_main_table_is_the_detailed_ones_in_groups():
    detailed = {"fol": rows("table8"), "nl": rows("table9")}
    subtasks = [column["column"] for column in TABLES["table8"]["columns"]]
    for (size, method, _), values in rows("table2").items():
        for column, value in zip(TABLES["table2"]["columns"], values, strict=False):
            full = dict(zip(subtasks, detailed[column["representation"]][size, method, None], strict=False))
            members = GROUPS.get(column["column"], (column["column"],))
            assert value == pytest.approx(fmean(full[name] for name in members), abs=1.1e-4), (
                size,
                method,
                column,
            )


def test_the_short_tables_are_parts_of_the_long_ones():
    for key, values in rows("table4").items():
        assert rows("table10")[key] == values
    long, subtasks = rows("table13"), [column["column"] for column in TABLES["table13"]["columns"]]
    groups = GROUPS | {"single_rule": ("single_rule",)}
    for (size, method, _), values in rows("table3").items():
        for column, value in zip(TABLES["table3"]["columns"], values, strict=False):
            full = dict(zip(subtasks, long[size, method, column["representation"]], strict=False))
            assert value == pytest.approx(fmean(full[name] for name in groups[column["column"]]), abs=1.1e-4)
    for form, table in (("fol", rows("table8")), ("nl", rows("table9"))):
        for size in (100, 500, 1000):
            assert long[size, "DynaRule", form] == table[size, "DynaRule", None]


@pytest.mark.parametrize("name", ["table11", "table12"])
def test_half_widths_are_those_of_five_seeds(name):
    """t with four degrees of freedom over the square root of five is 1.2417; both numbers are rounded to 0.1."""
    for row in TABLES[name]["rows"]:
        std, half = row["values"]
        assert half == pytest.approx(1.2417 * std, abs=0.05 + 1.2417 * 0.05 + 1e-9), row


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


def test_ours_stand_in_the_paper_s_columns():
    subtasks = {"single_rule": 0.9, "multi_hop_2": 0.3, "multi_hop_3": 0.2, "multi_hop_4": 0.1}
    groups = {"parallel_2_4": 0.8, "parallel_5_8": 0.7}
    runs = [
        made_up("dynarule", "DynaRule, tiny", form, 1000, answers(subtasks, **groups))
        for form in ("fol", "nl")
    ]
    runs.append(made_up("solver", "Solver", "fol", 1000, answers(subtasks)))
    table = table_beside_paper(runs, "paper/table2")
    (row,) = table.rows
    assert (row.pool_size, row.method, row.ours) == (1000, "DynaRule", "DynaRule, tiny")
    assert [cell.ours for cell in row.cells[:6]] == [0.9, 0.8, 0.7, 0.3, 0.2, 0.1]
    assert [cell.paper for cell in row.cells] == rows("table2")[1000, "DynaRule", None]
    assert row.cells[-1].ours == pytest.approx(0.5)
    assert table.columns[:2] == ["single rule, FOL", "parallel 2 to 4, FOL"]
    one = table_beside_paper(runs[:1], "paper/table2")
    assert one.rows[0].cells[6].ours is None
    assert one.rows[0].cells[-1].ours is None  # no average over half of the columns


def test_runs_on_few_questions_and_on_many_are_two_tables():
    """The same recipe with and without --limit, as a folder of folders may hold: the larger one first."""
    runs = []
    for form, limit in itertools.product(("fol", "nl"), (5, None)):
        metrics = answers({"single_rule": 0.9 if limit else 0.3})
        runs.append(made_up("dynarule", "DynaRule, tiny", form, 1000, metrics))
        runs[-1]["spec"]["limit"], runs[-1]["n"]["scheduled"] = limit, 55 if limit else 550
    tables = [table for table in tables_beside_paper(runs, "paper/table2") if table.name == "table2"]
    assert [(table.questions, table.rows[0].cells[0].ours) for table in tables] == [(550, 0.3), (55, 0.9)]
    assert [table.rows[0].cells[6].ours for table in tables] == [0.3, 0.9]
    assert tables_beside_paper(runs, "mine") == []


def test_retrieval_strong_models_and_seed_spread_have_their_rows():
    folds = {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}
    recall = {
        name: {"macro": estimate(0.4), "by_subtask": {}, "folds": folds} for name in ("recall@1", "recall@10")
    }
    stepwise = recall | {"step_recall@1": {"macro": estimate(0.6), "by_subtask": {}, "folds": folds}}
    runs = [made_up("dynarule", "D", form, 500, copy.deepcopy(stepwise)) for form in ("fol", "nl")]
    row = table_beside_paper(runs, "paper/table10").rows[0]
    assert [cell.ours for cell in row.cells] == [None, 0.4, 0.6] * 2
    spread = table_beside_paper(runs, "paper/table12")
    assert spread.unit == "points"
    assert [cell.ours for cell in spread.rows[0].cells] == pytest.approx([15.811, 19.632], abs=1e-3)
    prompted = made_up(
        "prompting", "Prompting, Qwen2.5-14B-Instruct", "nl", 100, answers({"single_rule": 0.25})
    )
    row = table_beside_paper([prompted], "paper/table13").rows[0]
    assert row.method == "Qwen2.5-14B-Instruct (NL)"
    assert row.cells[0] == (0.9, 0.25)
    both = [made_up("dynarule", "D", form, 10000, answers({})) for form in ("fol", "nl")]
    assert [c.ours for c in table_beside_paper(both, "paper/table11").rows[0].cells] == pytest.approx(
        [15.811, 19.632], abs=1e-3
    )


def test_other_recipes_and_methods_have_no_table():
    run = made_up("solver", "Solver", "fol", 1000, answers({"single_rule": 1.0}))
    assert table_beside_paper([run], "paper/table2") is None
    assert table_beside_paper([run], "smoke") is None
    assert table_beside_paper([run], "mine/table2") is None


def test_what_the_text_says_of_a_figure_is_the_mean_of_its_tables():
    """Figure 5b's DynaRule at 10,000 rules: means over FOL and NL of tables 2 and 10."""
    (text,) = quotes("paper/figure5b")
    answers = rows("table2")[10000, "DynaRule", None][-1]
    recalls = rows("table10")[10000, "DynaRule", None]
    assert f"DynaRule {100 * answers:.2f} %, {50 * (recalls[2] + recalls[5]):.2f} %" in text
    assert quotes("figure5b") == quotes("paper/table2") == []
    named = {name for figure in numbers()["figures"] for name in figure["recipes"]}
    made = {table.get("recipe", name) for name, table in TABLES.items()}
    assert {f"paper/{name}" for name in named | made} <= set(recipes.items())
