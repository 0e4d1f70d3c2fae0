"""lighteval runs our tasks for real on a tiny model, and reports what our scorer reports."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest
from ruleworld_data.generate import question_table
from ruleworld_data.plugins import plugin_path
from ruleworld_data.plugins.scores import METRICS
from ruleworld_data.scoring import score_output

pytest.importorskip("lighteval", reason='lighteval is missing: pip install "ruleworld-data[lighteval]"')
save_constant_model = runpy.run_path(str(Path(__file__).with_name("constant_model.py")))[
    "save_constant_model"
]
ASKED = 20


@pytest.fixture(autouse=True)
def no_other_tasks(monkeypatch):
    """Load our tasks only: one of lighteval's own downloads a file when it is imported."""
    from lighteval.tasks.registry import Registry

    for name in ("_load_from_files", "_load_from_subdirs"):
        monkeypatch.setattr(Registry, name, staticmethod(lambda *args: {}))


def evaluate(task: str, model: Path, out: Path):
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.transformers.transformers_model import TransformersModelConfig
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters

    pipeline = Pipeline(
        tasks=task,
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.ACCELERATE,
            custom_tasks_directory=str(plugin_path("lighteval")),
            max_samples=ASKED,
            bootstrap_iters=0,
        ),
        evaluation_tracker=EvaluationTracker(output_dir=str(out)),
        model_config=TransformersModelConfig(
            model_name=str(model),
            device="cpu",
            dtype="float32",
            batch_size=5,
            generation_parameters={"max_new_tokens": 2, "temperature": 0.0},
        ),
    )
    pipeline.evaluate()
    return pipeline


def test_a_real_model_gets_our_score_to_the_last_digit(tmp_path, monkeypatch):
    monkeypatch.setenv("RULEWORLD_LIGHTEVAL", '{"rules": "gold", "split": "mini"}')
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    table = question_table("multi_hop_2", "mini").select(["id", "answers"]).to_pylist()
    (favourite,), _ = Counter(tuple(row["answers"]) for row in table).most_common(1)[0]
    model = save_constant_model(tmp_path / "model", rf"\boxed{{{favourite}}}")
    pipeline = evaluate("ruleworld:multi_hop_2|0", model, tmp_path / "out")
    (logged,) = pipeline.evaluation_tracker.details_logger.details.values()
    gold = {row["id"]: row["answers"] for row in table}
    asked = [detail.doc.specific["id"] for detail in logged]
    assert len(asked) == len(set(asked)) == ASKED
    said = [detail.model_response.final_text[0] for detail in logged]
    assert all(rf"\boxed{{{favourite}}}" in text for text in said)
    scores = [score_output(text, gold[name]) for text, name in zip(said, asked, strict=True)]
    reported = pipeline.get_results()["results"]["ruleworld:multi_hop_2:0"]
    for metric in METRICS:
        assert reported[metric] == sum(float(getattr(score, metric)) for score in scores) / ASKED
    assert reported["exact_match"] == sum(gold[name] == [favourite] for name in asked) / ASKED


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
    from ruleworld_data.plugins.lighteval_tasks import read_setting

    monkeypatch.setenv("RULEWORLD_LIGHTEVAL", text)
    with pytest.raises(ValueError, match=words):
        read_setting()
