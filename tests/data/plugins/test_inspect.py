"""inspect_ai finds our task by its entry point, runs it, and reports what our scorer reports."""

from pathlib import Path

import pytest
from ruleworld_data.scoring import score_output

from ..cases import question_table

inspect_ai = pytest.importorskip(
    "inspect_ai", reason='inspect_ai is missing: pip install "ruleworld-data[inspect]"'
)
BASE = Path(__file__).parents[3] / "benchmarks/src/rwbench/models/tiny/base"
METRICS = ("exact_match", "strict_match", "missing_box")


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    from inspect_ai.model import ModelAPI

    async def count(self, text):  # inspect fetches a vocabulary to count tokens, for its mock model too
        return len(text) // 4

    monkeypatch.setattr(ModelAPI, "count_text_tokens", count)

    def run(model, limit=None, **options):
        (log,) = inspect_ai.eval(
            "ruleworld_data/ruleworld",
            model=model,
            limit=limit,
            task_args=options,
            log_dir=str(tmp_path),
            display="none",
        )
        return log

    return run


def check(log, subtask: str, count: int) -> dict[str, str]:
    """Hold what inspect reports against our scores of the outputs it logged; return these by id."""
    assert log.status == "success", log.error
    table = question_table(subtask, "mini", "tiny")
    answers = dict(zip(table["id"].to_pylist(), table["answers"].to_pylist(), strict=True))
    said = {sample.id: sample.output.completion for sample in log.samples}
    assert len(said) == len(log.samples) == count
    scores = [score_output(said[name], gold) for name, gold in answers.items() if name in said]
    reported = {score.name: score.metrics for score in log.results.scores}
    for metric in METRICS:
        (mean,) = (m.value for name, m in reported[metric].items() if name.endswith("mean"))
        assert mean == pytest.approx(sum(float(getattr(score, metric)) for score in scores) / count)
        assert any(name.endswith("stderr") for name in reported[metric])
    assert 0 < sum(score.exact_match for score in scores) < count
    return said


def test_the_model_in_the_box_gets_our_score(evaluate):
    """It was trained to answer, with another prompt than the tools': some answers are right, some are not."""
    for package in ("accelerate", "transformers"):
        pytest.importorskip(package)
    from inspect_ai.model import get_model

    # Without a template inspect writes "user: " before the prompt. Its hf models sample unless told not to.
    model = get_model(
        f"hf/{BASE}",
        chat_template="{{ messages[-1]['content'] }}",
        do_sample=False,
        device="cpu",
        dtype="float32",
    )
    options = {"split": "mini", "scale": "tiny", "rules": "gold", "max_tokens": 64}
    log = evaluate(model, 6, subtask="single_rule", **options)
    assert len(set(check(log, "single_rule", 6).values())) == 6
    assert [len(sample.metadata["rule_ids"]) for sample in log.samples] == [1] * 6
