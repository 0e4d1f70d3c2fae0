"""Rules that no training saw, in the same table: `rwbench report FOLDER --held-out FOLDER --markdown`."""

import copy
from pathlib import Path

import pytest
from rwbench.cli.app import app
from rwbench.report.setting import settings
from rwbench.report.tables import markdown_table, percent
from rwbench.score.results import find_results
from typer.testing import CliRunner

RESULTS = Path(__file__).parents[3] / "benchmarks/results"
ARENA, HELD_OUT = RESULTS / "arena", RESULTS / "held_out_550"


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


def test_each_column_has_its_own_runs():
    plain = cells(printed(ARENA, "--markdown").stdout)
    found = cells(printed(ARENA, "--held-out", HELD_OUT, "--markdown").stdout)
    assert plain.items() <= found.items()
    left = {key: cell for key, cell in found.items() if "held-out" in key[1] and cell != "-"}
    for run in find_results(HELD_OUT):
        label, form = run["method"]["label"].replace(", tiny", ""), run["spec"]["representation"].upper()
        cell = left.pop((label, f"10,000 held-out rules, {form}"))
        exact, strict = (run["metrics"][name]["macro"]["value"] for name in ("exact_match", "strict_match"))
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


def test_rows_are_joined_by_what_methods_are():
    """Not by what a reader sees: held-out runs of two models name them, and a method may be there alone."""
    arena, unseen = list(find_results(ARENA)), list(find_results(HELD_OUT))
    other = copy.deepcopy(next(run for run in unseen if run["method"]["label"] == "DynaRule+, tiny"))
    other["spec"]["method"]["model"]["model"] = "large"
    other["method"]["label"] = "DynaRule+, large"
    (setting,), (mixed,) = settings(arena), settings([*unseen, other])
    assert mixed.model is None
    found = cells(markdown_table(setting, mixed))
    plain = cells(markdown_table(setting, *settings(unseen)))
    assert plain.items() <= found.items()
    assert list(dict.fromkeys(name for name, _ in found))[-1] == "DynaRule+, large"
    assert found["DynaRule+, large", "10,000 rules, FOL"] == "-"


def test_two_that_fit_are_refused():
    arena, unseen = list(find_results(ARENA)), list(find_results(HELD_OUT))
    again = copy.deepcopy(unseen)
    for run in again:
        run["spec"]["limit"] = None
    (setting,) = settings(arena)
    with pytest.raises(ValueError, match="several settings of held-out rules fit"):
        setting.held_out(settings([*unseen, *again]))


@pytest.mark.parametrize(("name", "value"), [("world_seed", 1), ("scale", "tiny"), ("data", "1.0.0")])
def test_another_world_does_not_fit(name, value):
    """Though methods, sub-tasks and the number of questions are the same."""
    (setting,), unseen = settings(list(find_results(ARENA))), list(find_results(HELD_OUT))
    assert setting.held_out(settings(unseen)) is not None
    for run in unseen:
        run["spec"][name] = value
    assert setting.held_out(settings(unseen)) is None


def test_a_run_on_held_out_rules_whose_questions_failed_is_marked():
    (arena,), runs = settings(find_results(ARENA)), copy.deepcopy(find_results(HELD_OUT))
    runs[0]["n"]["failed"] = 1
    (held_out,) = settings(runs)
    text = markdown_table(arena, held_out)
    assert text.count("*") == 2 and "; * without questions that failed; " in text
