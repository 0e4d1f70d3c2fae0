"""Rules that no training saw, in the same table: `rwbench report FOLDER --held-out FOLDER --markdown`."""

from pathlib import Path

import pytest
from rwbench.cli.app import app
from rwbench.report.tables import percent
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
    "words",
    [
        (ARENA, "--held-out", RESULTS / "held_out", "--markdown"),  # fewer questions
        (ARENA, "--held-out", RESULTS / "rulebooks", "--markdown"),
        (ARENA, "--held-out", HELD_OUT, "--latex"),
    ],
)
def test_what_cannot_stand_beside_is_refused(words):
    refused = printed(*words)
    assert refused.exit_code == 2
    assert "has no runs to stand beside in a table of --markdown; expected the same data" in refused.output
