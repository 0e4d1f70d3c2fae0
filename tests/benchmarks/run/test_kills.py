"""paper/table2 on the shipped model, killed twice on the way, against the same runs undisturbed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from rwbench.models import shipped
from rwbench.score.samples import read_samples

# Of table 2's runs those of four methods on 1,000 rules in English, so that two passes take a few minutes.
PART = """
from rwbench.cli.app import app
from rwbench.recipes import recipe, recipes

METHODS = ("prompting", "rag", "srki", "dynarule")


@recipe("part")
def part(options):
    '''Some runs of table 2.'''
    made = [s for s in recipes.get("paper/table2")(options) if (s.representation, s.pool_size) == ("nl", 1000)]
    made = [s for s in made if s.method.get("retriever", {"name": "bm25"})["name"] == "bm25"]
    return [s for s in made if s.method["name"] in METHODS]


app()
"""
MEMORY = ("srki", "dynarule")


@pytest.mark.slow
@pytest.mark.skipif("tiny" not in shipped(), reason="no model is shipped here")
def test_table_2_killed_twice_ends_like_an_undisturbed_run(tmp_path):
    (tmp_path / "part.py").write_text(PART)

    def start(out):
        words = ["run", "part", "--model", "tiny", "--scale", "tiny", "--limit", "2", "--out", out]
        # To files: nobody reads a pipe while the test waits for samples.
        with (tmp_path / "said").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, tmp_path / "part.py", *words], stdout=said, stderr=said, cwd=tmp_path
            )

    def finish(process):
        assert process.wait(timeout=600) == 0, (tmp_path / "said").read_text()

    def written():
        return sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("runs/*/samples.jsonl"))

    def unfinished():
        folders = [path.parent for path in tmp_path.glob("runs/*/samples.jsonl") if path.stat().st_size]
        left = [folder for folder in folders if not (folder / "results.json").exists()]
        return [json.loads((folder / "spec.json").read_text())["method"]["name"] for folder in left]

    # 22 questions a run, two batches each: the first kill is in the second run, the second in the third.
    for enough, where in ((30, ("rag",)), (50, MEMORY)):
        process = start(tmp_path / "runs")
        deadline = time.monotonic() + 300
        while written() < enough:
            assert process.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        (name,) = unfinished()
        assert name in where
    finish(start(tmp_path / "runs"))
    assert unfinished() == []
    finish(start(tmp_path / "whole"))
    found = sorted(path.parent.name for path in (tmp_path / "whole").glob("*/results.json"))
    assert len(found) == 4 and found == sorted(p.parent.name for p in tmp_path.glob("runs/*/results.json"))
    for name in found:
        ours, theirs = (
            json.loads((tmp_path / out / name / "results.json").read_text()) for out in ("runs", "whole")
        )
        for results in (ours, theirs):
            del results["timing"]
            for name in ("git", "earlier"):  # the checkout may be worked in meanwhile
                results["environment"].pop(name, None)
        assert ours == theirs
        ids = [
            [s["id"] for s in read_samples(tmp_path / o / name / "samples.jsonl")] for o in ("runs", "whole")
        ]
        assert ids[0] == ids[1] and len(set(ids[0])) == len(ids[0]) == 22
