"""The page's table of speeds is the committed run, and the run measures what it says."""

import json
from pathlib import Path

from ruleworld_data.environments import speed

DOCS = Path(__file__).parents[3] / "ruleworld-data/docs"


def test_the_page_shows_the_committed_run():
    found = json.loads((DOCS / "environments-speed.json").read_text())
    assert speed.table(found) in (DOCS / "environments.md").read_text()
    assert found["rows"].keys() == {*speed.CASES, *(f"reasoning-gym {name}" for name in speed.PEERS)}
    ours = [row for name, row in found["rows"].items() if name in speed.CASES]
    assert all(row["instances"] >= 2_000 and row["scores with steps"] >= 20_000 for row in ours)


def test_every_case_is_measured(monkeypatch):
    monkeypatch.setattr(speed, "INSTANCES", 66)
    monkeypatch.setattr(speed, "SCORES", 64)
    rows = speed.measure()["rows"]
    assert {*speed.CASES} <= {*rows} and all(value > 0 for row in rows.values() for value in row.values())
    assert [name for name, row in rows.items() if "searches" in row] == [*speed.CASES][:2]
