"""verl loads our reward function by the path that its configuration gives, and calls it."""

import importlib.util
import json
from pathlib import Path

import pytest
from ruleworld_data.environments import EnvConfig, instance
from ruleworld_data.plugins import plugin_path
from ruleworld_data.plugins.verl_reward import compute_score, rows

CONFIG = EnvConfig(("multi_hop_2",), pool_size=20)


def test_rows_and_scores():
    (row, *_) = made = rows(CONFIG, range(5))
    assert len(made) == 5 and row["prompt"][0]["content"] == instance(CONFIG, 0).prompt
    truth = row["reward_model"]["ground_truth"]
    good = compute_score(row["data_source"], instance(CONFIG, 0).answer, truth, row["extra_info"])
    assert good["score"] == good["exact"] == 1.0
    assert compute_score("ruleworld", "no", truth)["score"] == 0.0
    with pytest.raises(ValueError, match="metadata"):
        compute_score("ruleworld", "no", "12")
    assert json.loads(json.dumps(made)) == made


def test_verl_finds_the_function():
    """By verl's own loader, read from its file: importing verl itself takes the packages of a GPU machine."""
    found = importlib.util.find_spec("verl")
    if found is None:
        pytest.skip("verl is missing: pip install --no-deps verl==0.9.1")
    path = Path(found.origin).parent / "utils/import_utils.py"
    spec = importlib.util.spec_from_file_location("verl_import_utils", path)
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    compute = loader.load_extern_object(module_path=str(plugin_path("verl")), object_name="compute_score")
    row = rows(CONFIG, [3])[0]
    arguments = {"data_source": row["data_source"], "ground_truth": row["reward_model"]["ground_truth"]}
    answer = instance(CONFIG, 3).answer
    assert compute(solution_str=answer, extra_info=row["extra_info"], **arguments)["score"] == 1.0
