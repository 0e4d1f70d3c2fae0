"""The paper's numbers stand beside the right ones of ours."""

import itertools

import pytest
from rwbench.recipes import recipes
from rwbench.report.paper import NUMBERS, beside_paper

TABLES = NUMBERS["tables"]
SUBTASKS = {"single_rule": 0.9, "multi_hop_2": 0.3, "multi_hop_3": 0.2, "multi_hop_4": 0.1}


def rows(name):
    """(pool size, method, representation or None) -> values, of a table."""
    return {(r["pool_size"], r["method"], r.get("representation")): r["values"] for r in TABLES[name]["rows"]}


def estimate(value):
    return {"value": value, "ci_low": value, "ci_high": value, "n": 50, "method": "bootstrap"}


def made_up(key, label, form, size, metrics, limit=None, **spec):
    spec = {"representation": form, "pool_size": size, "method": {"name": key}, "limit": limit} | spec
    spec = {"split": "mini", "scale": "paper", "world_seed": 0, "data": "1.1", "subtasks": ["a"]} | spec
    method, n = {"key": key, "label": label}, {"scheduled": 11 * (limit or 50)}
    return {"run_id": "0" * 12, "method": method, "spec": spec, "metrics": metrics, "n": n}


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
    return [None if cell[0] == "-" else float(cell.split(" ")[0]) for cell in table.frame.iloc[row, 3:]]


def test_ours_stand_in_the_paper_s_columns():
    metrics = answers(SUBTASKS, parallel_2_4=0.8, parallel_5_8=0.7)
    runs = [made_up("dynarule", "DynaRule, tiny", form, 1000, metrics) for form in ("fol", "nl")]
    solver = made_up("solver", "Solver", "fol", 1000, answers(SUBTASKS))
    again = made_up("dynarule", "D", "fol", 1000, metrics, method={"name": "dynarule", "variant": "seed-1"})
    (table,) = beside_paper([*runs, solver, again], "table2")
    (line,) = table.frame.to_numpy().tolist()  # the paper has no solver, and first trainings are shown alone
    assert line[:3] == ["1,000", "DynaRule", "DynaRule, tiny"]
    assert ours(table) == [50, *[90, 80, 70, 30, 20, 10] * 2]
    *values, average = rows("table2")[1000, "DynaRule", None]
    shown = [float(cell.split("[")[1].rstrip("]")) for cell in line[3:]]
    assert shown == pytest.approx([100 * value for value in (average, *values)], abs=0.051)
    assert [*table.frame.columns[3:6]] == ["average", "single rule, FOL", "parallel 2 to 4, FOL"]
    assert ours(*beside_paper(runs[:1], "table2"))[::7] == [None, None]  # no average over half of the columns
    assert beside_paper([solver], "table2") == []
    few = made_up("dynarule", "D", "fol", 100, metrics) | {"outcomes": {"ok": 549, "failed": 1}}
    assert "failed" in beside_paper([few], "cases")[0].frame  # without a folder, whose samples say more


def test_runs_on_few_questions_and_on_many_are_two_tables_and_recall_goes_step_by_step():
    runs = []
    for form, limit in itertools.product(("fol", "nl"), (5, None)):
        metrics = answers({"single_rule": 0.9 if limit else 0.3})
        runs.append(made_up("dynarule", "DynaRule, tiny", form, 1000, metrics, limit))
    found = {ours(table)[1]: table.caption for table in beside_paper(runs, "table2")}
    assert "55 questions" in found[90] and "550 questions" in found[30]
    folds = {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}
    values = {"recall@1": 0.4, "recall@10": 0.4, "step_recall@1": 0.6}
    recall = {
        n: {"macro": estimate(v), "by_subtask": {}, "by_group": {}, "folds": folds} for n, v in values.items()
    }
    runs = [made_up("dynarule", "D", form, 500, recall) for form in ("fol", "nl")]
    assert ours(*beside_paper(runs, "table10")) == [None, 40, 60] * 2
    assert ours(*beside_paper(runs, "table12")) == [15.8, 19.6]
    assert beside_paper(runs[:1], "table12") == []  # a spread over FOL and NL together


def test_a_number_of_a_figure_is_the_mean_of_its_tables():
    """Figure 5b at 10,000 rules: means over FOL and NL of tables 2 and 10; figure 5a is about held-out rules."""
    answered, recalls = (rows(name)[10000, "DynaRule", None] for name in ("table2", "table10"))
    paper = rows("figure5b")[10000, "DynaRule", None]
    assert paper == pytest.approx([answered[-1], (recalls[2] + recalls[5]) / 2], abs=1e-4)
    runs = []
    for form, recall in (("fol", 0.2), ("nl", 0.4)):
        metrics = answers(SUBTASKS, parallel_2_4=0.8, parallel_5_8=0.7)
        metrics["recall@1"] = {"macro": estimate(recall), "by_subtask": {}, "by_group": {}}
        runs += [made_up(key, key, form, 10_000, metrics) for key in ("ircot", "dynarule")]
    (table,) = beside_paper(runs, "figure5b")
    assert [*table.frame["in the paper"]] == ["IRCoT", "DynaRule"] and ours(table) == [50, 30]
    assert beside_paper(runs, "figure5a") == []
    heldout = [run | {"spec": run["spec"] | {"split": "heldout"}} for run in runs]
    assert [ours(table) for table in beside_paper(heldout, "figure5a")] == [[50]]
    assert {f"paper/{table.get('recipe', name)}" for name, table in TABLES.items()} <= set(recipes.items())
