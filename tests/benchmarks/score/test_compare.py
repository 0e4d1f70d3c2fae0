"""`rwbench compare`: the differences of the samples, the specs' fields, Holm over what is printed, user errors."""

import json
import shutil

import numpy as np
import pytest
from rwbench.report.compare import compare_runs
from rwbench.score.results import read_results, write_results
from rwbench.score.samples import read_samples, samples_sha256
from rwbench.score.summarise import summary
from rwbench.spec import RunSpec

from ..command import rwbench


def test_differences_are_those_of_the_samples(finished):
    out, ids = finished
    found = compare_runs([out / name for name in ids], ["recall@1", "recall@10"])
    bm25, random = ({s["id"]: s for s in read_samples(out / name / "samples.jsonl")} for name in ids[:2])
    by_subtask = {}
    for name, sample in bm25.items():
        change = random[name]["scores"]["recall@1"] - sample["scores"]["recall@1"]
        by_subtask.setdefault(sample["subtask"], []).append(change)
    entry = found["comparisons"][0]["metrics"]["recall@1"]
    wanted = np.mean([np.mean(values) for values in by_subtask.values()])
    assert entry["difference"]["value"] == pytest.approx(wanted, abs=1e-6)
    assert entry["second"] - entry["first"] == pytest.approx(wanted, abs=2e-6)
    assert entry["difference"]["n"] == 44
    assert entry["difference"]["ci_low"] <= wanted <= entry["difference"]["ci_high"] < 0
    # Two other runs and two metrics: Holm's correction is over four p values.
    assert found["tests"] == 4
    tested = [e for c in found["comparisons"] for e in c["metrics"].values()]
    assert min(e["p_holm"] for e in tested) == pytest.approx(
        4 * min(e["difference"]["p_value"] for e in tested)
    )


def test_the_command_prints_what_json_holds(finished):
    out, ids = finished
    pair = [out / name for name in ids[:2]]
    found, text = json.loads(rwbench("compare", *pair, "--json").stdout), rwbench("compare", *pair).stdout
    entry = found["comparisons"][0]["metrics"]["recall@1"]
    assert f"{100 * entry['difference']['value']:+.1f} points" in text
    assert 'method.retriever.name: "bm25" -> "random"' in text
    assert "Holm's correction over 1 test(s)." in text
    assert found["baseline"]["run_id"] == ids[0]


def test_only_questions_that_both_scored_are_compared(finished, tmp_path):
    out, ids = finished
    for name in ids[:2]:
        shutil.copytree(out / name, tmp_path / name)
    path = tmp_path / ids[1] / "samples.jsonl"
    first, *lines = path.read_text().splitlines(keepends=True)
    path.write_text(first.replace('"error":null', '"error":"boom"') + "".join(lines[:-1]))
    results, samples = read_results(path.parent), read_samples(path)
    of_these = summary(RunSpec.from_dict(results["spec"]), samples, len(samples))
    write_results(path.parent, results | of_these | {"samples_sha256": samples_sha256(samples)})
    found = compare_runs([tmp_path / name for name in ids[:2]])
    assert found["comparisons"][0]["metrics"]["recall@1"]["difference"]["n"] == 42


def test_runs_on_other_questions_are_refused(finished, tmp_path):
    out, ids = finished
    shutil.copytree(out / ids[1], tmp_path / ids[1])
    path = tmp_path / ids[1] / "results.json"
    results = json.loads(path.read_text())
    results["spec"]["world_seed"] = 7
    results["run_id"] = RunSpec.from_dict(results["spec"]).run_id
    path.write_text(json.dumps(results))
    with pytest.raises(ValueError, match="world_seed is 0 in one and 7 in the other"):
        compare_runs([out / ids[0], tmp_path / ids[1]])
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no finished run at .*, or finish it: rwbench run"):
        compare_runs([out / ids[0], tmp_path / ids[1]])
