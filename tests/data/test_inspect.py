"""inspect_ai finds our task by its entry point, runs it on its mock model, and reports what our scorer reports."""

from __future__ import annotations

import random

import pytest
from ruleworld_data.generate import question_table
from ruleworld_data.plugins.prompts import Setting, prompt_rows
from ruleworld_data.scoring import score_output

inspect_ai = pytest.importorskip(
    "inspect_ai", reason='inspect_ai is missing: pip install "ruleworld-data[inspect]"'
)
METRICS = ("exact_match", "strict_match", "missing_box")


def outputs(answers: list[list[str]]) -> list[str]:
    """Right, half right, wrong or without a box, by the turns of a fixed die."""
    die, written = random.Random(7), []
    for gold in answers:
        fall = die.randrange(4)
        said = [*gold[:-1], "nothing"] if fall == 1 else gold * (1 + (fall == 3))
        written.append("no box" if fall == 2 else rf"so \boxed{{{', '.join(said)}}}")
    return written


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    from inspect_ai.model import ModelAPI, ModelOutput, get_model

    async def count(self, text):  # inspect fetches a vocabulary to count tokens, for its mock model too
        return len(text) // 4

    monkeypatch.setattr(ModelAPI, "count_text_tokens", count)

    def run(task: str, written: dict[str, str], **options):
        """Answer each prompt with its text, in whatever order inspect asks."""

        def say(messages, tools, tool_choice, config):
            return ModelOutput.from_content("mockllm/model", written[messages[-1].text])

        model = get_model("mockllm/model", custom_outputs=say)
        (log,) = inspect_ai.eval(
            task,
            model=model,
            task_args=options,
            log_dir=str(tmp_path),
            display="none",
        )
        return log

    return run


@pytest.mark.parametrize("subtask", ["multi_rule_8", "multi_hop_3"])
def test_the_task_scores_as_we_do_to_the_last_digit(evaluate, subtask):
    options = {"split": "mini", "scale": "tiny", "pool_size": 20}
    rows = prompt_rows(subtask, Setting(**options))
    gold = question_table(subtask, "mini", "tiny")["answers"].to_pylist()
    written = outputs(gold)
    said = {row["prompt"]: text for row, text in zip(rows, written, strict=True)}
    log = evaluate("ruleworld_data/ruleworld", said, subtask=subtask, **options)
    assert log.status == "success", log.error
    assert {s.id: s.output.completion for s in log.samples} == {
        row["id"]: text for row, text in zip(rows, written, strict=True)
    }
    scores = [score_output(text, answers) for text, answers in zip(written, gold, strict=True)]
    reported = {score.name: score.metrics for score in log.results.scores}
    for metric in METRICS:
        expected = sum(float(getattr(score, metric)) for score in scores) / len(scores)
        (mean,) = (m.value for name, m in reported[metric].items() if name.endswith("mean"))
        assert mean == expected and 0 < mean < 1
        assert any(name.endswith("stderr") for name in reported[metric])
    shown = log.samples[0].metadata["rule_ids"]
    assert len(shown) == 20


def test_a_wrong_option_is_refused_with_words(evaluate):
    with pytest.raises(Exception, match="unknown option 'pool'; did you mean 'pool_size'"):
        evaluate("ruleworld_data/ruleworld", {}, pool=20)
