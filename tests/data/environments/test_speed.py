"""The page's table of speeds is the committed run, and the run measures what it says."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

speed = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "speed.py")))
DOCS = Path(__file__).parents[3] / "ruleworld-data/docs"


def test_the_page_shows_the_committed_run():
    found = json.loads((DOCS / "environments-speed.json").read_text())
    assert speed.table(found) in (DOCS / "environments.md").read_text()
    assert found["rows"].keys() == {*speed.CASES, *(f"reasoning-gym {name}" for name in speed.PEERS)}
    ours = [row for name, row in found["rows"].items() if name in speed.CASES]
    assert all(row["instances"] >= 2_000 and row["scores with steps"] >= 20_000 for row in ours)
