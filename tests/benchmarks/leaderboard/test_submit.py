"""Submitting a run, and predictions that were made elsewhere."""

import json

import pytest
from ruleworld_data.scoring import read_answers
from rwbench.leaderboard.board import row_of
from rwbench.leaderboard.files import LIMITS
from rwbench.leaderboard.judge import METHOD, board_spec, write_kit
from rwbench.leaderboard.submissions import import_predictions, read_words, submit, validate
from rwbench.methods import Method, Output, component
from rwbench.run.folder import finished_run
from rwbench.run.runner import run_spec
from rwbench.score.results import read_results
from rwbench.score.samples import read_samples

from .conftest import WORDS


def test_a_submission_is_two_files_of_data_without_gold_that_score_as_the_run(entry, runs):
    sizes = {path.name: path.stat().st_size for path in entry.folder.iterdir()}
    assert sizes.keys() == LIMITS.keys() and all(sizes[name] < LIMITS[name] for name in LIMITS)
    assert entry.words["spec"] == json.loads((runs["bm25"] / "spec.json").read_text())
    samples = {sample["id"]: sample for sample in read_samples(runs["bm25"] / "samples.jsonl")}
    records = [json.loads(line) for line in entry.lines]
    assert {record["id"]: record["retrieved"] for record in records} == {
        name: sample["retrieved"] for name, sample in samples.items()
    }
    assert not any({"gold_answers", "gold_rules", "scores"} & record.keys() for record in records)
    ran, ours = read_results(runs["bm25"]), validate(entry.folder).results
    assert all(ours[name] == ran[name] for name in ("metrics", "run_id", "spec", "n", "pool_sha256"))


@component
class Runaway(Method):
    """Every text that a model can end in: boxes without end, an answer like a book, marks, a server that lies."""

    name = "runaway-of-tests"

    def answer(self, batch, top_k):
        for number, (_, question) in enumerate(batch):
            right = ", ".join(question.answers)
            text = [
                f"\\boxed{{{right}}}",
                "\\boxed{" + "8, " * 500 + "}",
                "\\boxed{" + "very " * 3_000 + "}",
                f"\\boxed{{{right}, {'x' * 3_000}}}",
                "thought " * 40_000 + f"\\boxed{{{right}}}",
                f"\ufeff\x00\x1b[31m\u2028\U0001f600 \\boxed{{{right}}}",
                "finish[8]",
                "\ud800 \\boxed{\udc00}",
            ][number % 8]
            usage = {"calls": 1, "prompt_tokens": 2**52, "seconds": {"generate": 1.0}}
            yield Output(question.id, answers=read_answers(text) or [], text=text, usage=usage)


def test_whatever_a_model_writes_can_be_submitted_and_scores_as_in_the_run(
    workspace, small_spec, hand_in, tmp_path, monkeypatch
):
    """A runaway box is wrong and stays so."""
    ran = run_spec(small_spec(Runaway()), workspace, tmp_path / "runs")
    Method.registry.remove("runaway-of-tests")
    folder = hand_in(tmp_path / "runs" / ran["run_id"], tmp_path / "submissions")
    accepted = validate(folder)
    assert accepted.results["metrics"] == ran["metrics"]
    assert accepted.results["outcomes"] == ran["outcomes"]
    row = row_of(accepted)
    assert (row["track"], row["calls"]) == ("answers", 1)
    outputs = {sample["id"]: sample["output"] for sample in accepted.samples}
    for number, sample in enumerate(read_samples(tmp_path / "runs" / ran["run_id"] / "samples.jsonl")):
        assert outputs[sample["id"]] == (None if number % 8 == 4 else sample["output"])
    monkeypatch.setattr("rwbench.leaderboard.records.MAX_EXPANDED", 20_000)
    with pytest.raises(ValueError, match=r"would be too large .* shorten the outputs"):
        hand_in(tmp_path / "runs" / ran["run_id"], tmp_path / "others")


def test_what_cannot_be_submitted_is_named_and_leaves_nothing(runs, hand_in, entry, tmp_path):
    root = tmp_path / "submissions"
    with pytest.raises(FileNotFoundError, match="rwbench run"):
        hand_in(tmp_path, root)
    results, (first, *others) = finished_run(runs["random"])
    with pytest.raises(ValueError, match="1 questions of the run failed"):
        submit(results, [first | {"error": "x"}, *others], WORDS, root, "mine")
    with pytest.raises(ValueError, match="1 of 50 questions are missing"):
        submit(results, others, WORDS, root, "mine")
    with pytest.raises(ValueError, match="looks at gold data, got 'solver'"):
        hand_in(runs["solver"], root)
    assert not [path for path in root.rglob("*") if path.is_file()]
    with pytest.raises(ValueError, match="is there already"):
        hand_in(runs["bm25"], entry.folder.parent, "bm25")
    with pytest.raises(ValueError, match="got 'My method'; rename the file"):
        hand_in(runs["bm25"], root, "My method")
    with pytest.raises(FileNotFoundError, match="it says name = "):
        read_words(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"id": "x", "answer": "8"}', "answer: Extra inputs are not"),
        ('{"id": "multi_hop_2-train-0000000", "usage": {"calls": null}}', "not the id of a question asked"),
    ],
)
def test_rows_of_predictions_that_cannot_be_used(row, reason, workspace, tmp_path):
    write_kit(tmp_path / "kit", board_spec(METHOD, "nl", 100, "tiny", subtasks=["multi_hop_2"]))
    path = tmp_path / "mine.jsonl"
    good = json.dumps({"id": workspace.questions("multi_hop_2", "mini")[0].id, "output": "\\boxed{1}"})
    path.write_text(f"{good}\n{row}\n")
    with pytest.raises(ValueError, match=rf"mine\.jsonl, line 2: .*{reason}"):
        import_predictions(tmp_path / "kit", path, "x", "nl", tmp_path / "runs")
    # a folder with questions of one setting and pools of another would score silently
    for other in (100, 1000):
        with pytest.raises(FileExistsError, match="kit exists already; choose a new folder"):
            write_kit(tmp_path / "kit", board_spec(METHOD, "nl", other, "tiny"))
    for body in (
        "null",
        "{}",
        "[1]",
        "[" * 100_000,
        "\ud800".encode(errors="surrogatepass").decode("latin-1"),
    ):
        (tmp_path / "kit/setting.json").write_text(body, encoding="latin-1")
        with pytest.raises(ValueError, match=r"setting\.json is not as `rwbench kit` writes it"):
            import_predictions(tmp_path / "kit", path, "x", "nl", tmp_path / "runs")
    with pytest.raises(FileNotFoundError, match="is no kit; write one: rwbench kit"):
        import_predictions(tmp_path, path, "x", "nl", tmp_path / "runs")
    with pytest.raises(ValueError, match="the board has pools of 100, 500, 1,000"):
        board_spec(METHOD, "nl", 123, "tiny")
    assert not (tmp_path / "runs").exists()
