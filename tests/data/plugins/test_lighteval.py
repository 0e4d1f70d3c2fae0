"""lighteval runs our tasks for real on the model in the box, and reports what our scorer reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ruleworld_data.generate import question_table
from ruleworld_data.plugins import METRICS, plugin_path
from ruleworld_data.scoring import score_output

pytest.importorskip("lighteval", reason='lighteval is missing: pip install "ruleworld-data[lighteval]"')
BASE = Path(__file__).parents[3] / "benchmarks/src/rwbench/models/tiny/base"
ASKED = 10


@pytest.fixture(autouse=True)
def no_other_tasks(monkeypatch):
    """Load our tasks only: one of lighteval's own downloads a file when it is imported."""
    from lighteval.tasks.registry import Registry

    for name in ("_load_from_files", "_load_from_subdirs"):
        monkeypatch.setattr(Registry, name, staticmethod(lambda *args: {}))


def test_the_model_in_the_box_gets_our_score_to_the_last_digit(tmp_path, monkeypatch):
    """It was trained to answer, with another prompt than the tools': some answers are right, some are not."""
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.transformers.transformers_model import TransformersModelConfig
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters

    monkeypatch.setenv("RULEWORLD_LIGHTEVAL", '{"rules": "gold", "split": "mini"}')
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    base = shutil.copytree(BASE, tmp_path / "base")  # lighteval keeps outputs beside the weights
    pipeline = Pipeline(
        tasks="ruleworld:single_rule|0",
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.ACCELERATE,
            custom_tasks_directory=str(plugin_path("lighteval")),
            max_samples=ASKED,
            bootstrap_iters=0,
        ),
        evaluation_tracker=EvaluationTracker(output_dir=str(tmp_path / "out")),
        model_config=TransformersModelConfig(
            model_name=str(base),
            device="cpu",
            dtype="float32",
            batch_size=ASKED,
            generation_parameters={"temperature": 0.0},  # max_new_tokens would cut the prompt, too
        ),
    )
    pipeline.evaluate()
    (logged,) = pipeline.evaluation_tracker.details_logger.details.values()
    said = {detail.doc.specific["id"]: detail.model_response.final_text[0] for detail in logged}
    assert len(set(said.values())) == len(said) == len(logged) == ASKED
    table = question_table("single_rule", "mini")
    gold = dict(zip(table["id"].to_pylist(), table["answers"].to_pylist(), strict=True))
    scores = [score_output(text, gold[name]) for name, text in said.items()]
    reported = pipeline.get_results()["results"]["ruleworld:single_rule:0"]
    for metric in METRICS:
        assert reported[metric] == sum(float(getattr(score, metric)) for score in scores) / ASKED
    assert 0 < reported["exact_match"] < 1
    key = pipeline.registry.task_to_configs["ruleworld:single_rule"][0].__str__(lite=True)
    assert "rules='gold'" in key  # of lighteval's cache of outputs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool_size=3", "is not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"scale": "tiny"}', "lighteval loads scale paper"),
        ('{"poolsize": 5}', "did you mean 'pool_size'"),
    ],
)
def test_a_bad_setting_is_refused_with_words(monkeypatch, text, words):
    from ruleworld_data.plugins.lighteval_tasks import read_options

    monkeypatch.setenv("RULEWORLD_LIGHTEVAL", text)
    with pytest.raises(ValueError, match=words):
        read_options()
