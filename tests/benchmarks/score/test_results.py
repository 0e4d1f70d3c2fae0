import json

import numpy as np
import pytest
from rwbench.run.runner import run_spec
from rwbench.score.results import FILE_NAME, find_results, read_results
from rwbench.score.samples import read_samples


@pytest.fixture
def run(spec, workspace, tmp_path):
    return run_spec(spec, workspace, tmp_path), tmp_path / spec.run_id


def test_metrics_are_the_means_of_the_samples(run):
    results, folder = run
    by_subtask = {}
    for sample in read_samples(folder / "samples.jsonl"):
        by_subtask.setdefault(sample["subtask"], []).append(sample["scores"]["recall@10"])
    metric = results["metrics"]["recall@10"]
    for name, values in by_subtask.items():
        assert metric["by_subtask"][name]["value"] == pytest.approx(np.mean(values), abs=1e-6)
        assert metric["by_subtask"][name]["n"] == 2
    macro = np.mean([np.mean(values) for values in by_subtask.values()])
    assert metric["macro"]["value"] == pytest.approx(macro, abs=1e-6)
    assert metric["macro"]["ci_low"] <= macro <= metric["macro"]["ci_high"]


def test_a_file_that_is_no_json_or_of_another_version_is_named(run):
    results, folder = run
    assert find_results(folder.parent) == [results]
    newer = json.dumps(results | {"schema_version": 99})
    for body, told in (("not json", "delete it"), (newer, "schema_version: Input should be 2, got 99")):
        (folder / FILE_NAME).write_text(body)
        with pytest.raises(ValueError, match=rf"results.json is not a results file \(.*{told}"):
            read_results(folder)
