"""Submitting a run, and predictions that were made elsewhere."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ruleworld_data.scoring import parse_boxed, split_answers
from rwbench.cli.app import app
from rwbench.leaderboard.board import row_of
from rwbench.leaderboard.files import LIMITS, METADATA, RESULTS, SAMPLES, sample_lines
from rwbench.leaderboard.metadata import Metadata
from rwbench.leaderboard.submit import import_predictions, slug_of, submit
from rwbench.leaderboard.validate import fingerprints, validate
from rwbench.methods import Method, Output, component
from rwbench.run.runner import run_spec
from rwbench.score.results import read_results
from rwbench.score.samples import read_samples
from typer.testing import CliRunner


def test_a_submission_is_three_files_of_data_without_gold(entry, runs):
    assert sorted(path.name for path in entry.folder.iterdir()) == sorted(LIMITS)
    records = [json.loads(line) for line in entry.lines]
    samples = {sample["id"]: sample for sample in read_samples(runs["bm25"] / "samples.jsonl")}
    assert {record["id"] for record in records} == set(samples)
    for record in records:
        assert not {"gold_answers", "gold_rules", "scores"} & set(record)
        assert record["retrieved"] == samples[record["id"]]["retrieved"]


def test_scores_are_those_of_the_run(entry, runs):
    """But for expected recall, which needs the search's own scores, and so is not handed in."""
    ran, handed_in = read_results(runs["bm25"]), entry.results
    assert "expected_recall@1" in ran["metrics"]
    kept = {name: value for name, value in ran["metrics"].items() if not name.startswith("expected")}
    assert handed_in["metrics"] == kept
    for name in ("run_id", "spec", "n", "details", "pool_sha256"):
        assert handed_in[name] == ran[name]


@component
class Chatty(Method):
    """Search forty times and write at length, as a model that does not stop."""

    name = "chatty-of-tests"

    def answer(self, batch, top_k):
        for pool, question in batch:
            ids = pool.ids.tolist()
            box = ", ".join(question.answers if question.index % 2 else ["8"] * len(question.answers))
            text = f"First \\boxed{{wrong}}, no <b>so</b>: \\boxed{{{box}}}."
            usage = {"calls": 1, "prompt_tokens": 900, "cost_usd": 0.01, "seconds": {"generate": 1.0}}
            answers = split_answers(box)
            yield Output(question.id, answers=answers, text=text, retrieved=[ids[:5]] * 40, usage=usage)


def test_a_run_that_searches_and_writes_without_end(workspace, small_spec, judge, entry, tmp_path):
    ran = run_spec(small_spec(Chatty()), workspace, tmp_path / "runs")
    Method.registry.remove("chatty-of-tests")
    words = Metadata.from_yaml(entry.path(METADATA).read_bytes())
    folder = submit(tmp_path / "runs" / ran["run_id"], words, tmp_path / "submissions", judge)
    row = row_of(validate(folder, judge))
    assert row["metrics"]["exact_match"] == ran["metrics"]["exact_match"]["macro"]
    assert row["metrics"]["recall@1"] == ran["metrics"]["recall@1"]["macro"]
    assert (row["track"], row["cost_usd"], row["tokens"]) == ("answers", 0.5, 900)


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
            box = parse_boxed(text)
            usage = {"calls": 1, "prompt_tokens": 2**52, "seconds": {"generate": 1.0}}
            yield Output(question.id, answers=split_answers(box or ""), text=text, usage=usage)


@pytest.mark.parametrize("most", [None, 20_000])
def test_whatever_a_model_writes_can_be_submitted_and_scores_as_in_the_run(
    workspace, small_spec, judge, entry, tmp_path, most, monkeypatch
):
    """A runaway box is wrong and stays so. Also where the outputs of all questions are too much for the file."""
    Method.registry.add("runaway-of-tests", Runaway)
    ran = run_spec(small_spec(Runaway()), workspace, tmp_path / "runs")
    Method.registry.remove("runaway-of-tests")
    words = Metadata.from_yaml(entry.path(METADATA).read_bytes())
    if most is not None:
        monkeypatch.setattr("rwbench.leaderboard.records.MAX_EXPANDED", most)
    folder = submit(tmp_path / "runs" / ran["run_id"], words, tmp_path / "submissions", judge)
    found = validate(folder, judge)
    assert found.results["metrics"] == ran["metrics"] and found.results["outcomes"] == ran["outcomes"]
    outputs = {sample["id"]: sample["output"] for sample in found.samples}
    for number, sample in enumerate(read_samples(tmp_path / "runs" / ran["run_id"] / "samples.jsonl")):
        cut = number % 8 == 4 or (most is not None and len(sample["output"]) > 500)
        assert outputs[sample["id"]] == (None if cut else sample["output"])
    if most is not None:
        assert sum(len(line) for _, line in sample_lines((folder / SAMPLES).read_bytes())) <= most


def test_words_survive_the_file(entry):
    text = entry.path(METADATA).read_text()
    again = Metadata.from_yaml(text.encode())
    assert again.to_yaml() == text
    for name in ("Ünïcödé & co", "yes", "1.0", "null", "a: b # c", "- dash", "'quoted\"", "Modell №5"):
        words = Metadata(**(vars(again) | {"name": name, "cost_usd": 12.5, "paper": "https://a.example/b"}))
        assert Metadata.from_yaml(words.to_yaml().encode()) == words
    for cost, kept in ((0.0123456789, 0.012346), (1e-5, 1e-5), (0.0, 0.0), (2e-9, 0.0)):
        words = Metadata(**(vars(again) | {"cost_usd": cost}))
        assert Metadata.from_yaml(words.to_yaml().encode()).cost_usd == kept


@pytest.mark.parametrize(
    ("name", "slug"),
    [("BM25 (naive)", "bm25-naive"), ("Ä/../ö", "a-o"), ("的", "submission"), ("a" * 99, "a" * 60)],
)
def test_folder_names_are_plain(name, slug):
    assert slug_of(name) == slug


def test_what_cannot_be_submitted_is_told_and_leaves_nothing(runs, judge, entry, tmp_path):
    words = Metadata.from_yaml(entry.path(METADATA).read_bytes())
    root = tmp_path / "submissions"
    with pytest.raises(FileNotFoundError, match="rwbench run"):
        submit(tmp_path, words, root, judge)
    copy = shutil.copytree(runs["random"], tmp_path / "runs" / runs["random"].name)
    lines = (copy / "samples.jsonl").read_text().splitlines()
    (copy / "samples.jsonl").write_text(
        "\n".join([lines[0].replace('"error":null', '"error":"x"'), *lines[1:], ""])
    )
    with pytest.raises(ValueError, match="1 questions of"):
        submit(copy, words, root, judge)
    (copy / "samples.jsonl").write_text("\n".join([*lines[1:], ""]))
    with pytest.raises(ValueError, match="1 of 50 questions are missing"):
        submit(copy, words, root, judge)
    (copy / "results.json").unlink()
    with pytest.raises(FileNotFoundError, match="rwbench resume"):
        submit(copy, words, root, judge)
    with pytest.raises(ValueError, match="looks at gold data, got 'solver'"):
        submit(runs["solver"], words, root, judge)
    assert not [path for path in root.rglob("*") if path.is_file()] if root.exists() else True
    with pytest.raises(ValueError, match="is there already"):
        submit(runs["bm25"], words, entry.folder.parent, judge, "bm25")


def test_of_two_submissions_at_once_each_is_compared_with_the_other(
    runs, judge, entry, tmp_path, monkeypatch
):
    """The same run under two names; and twice under one name, which ended in the system's own words."""
    words, root = Metadata.from_yaml(entry.path(METADATA).read_bytes()), tmp_path / "submissions"

    def slow(board):
        found = fingerprints(board)
        time.sleep(0.2)  # long enough for the other one to read what is there
        return found

    def hand_in(slug):
        try:
            return submit(runs["bm25"], words, root, judge, slug).name
        except ValueError as error:
            return str(error)

    monkeypatch.setattr("rwbench.leaderboard.submit.fingerprints", slow)
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(hand_in, ("one", "two")))
        (name,) = [path.name for path in root.iterdir()]
        assert name in told and any(f"is that of another submission, got {name}" in text for text in told)
        shutil.rmtree(root)
        told = list(pool.map(hand_in, ("one", "one")))
    assert [path.name in told for path in root.iterdir()] == [True]
    assert any("is there already; choose another --slug" in text for text in told)


def test_of_all_that_lies_in_a_folder_the_run_is_submitted(runs, tmp_path):
    """As the shell gives `runs/*`, with a report and a folder of something else beside the run."""
    run = shutil.copytree(runs["bm25"], tmp_path / "runs" / runs["bm25"].name)
    (tmp_path / "runs/report.html").write_text("<p>")
    (tmp_path / "runs/notes").mkdir()
    words = [
        "--name",
        "BM25",
        "--submitter",
        "Me",
        "--description",
        "It ranks.",
        "--to",
        str(tmp_path / "out"),
    ]

    def command(*paths):
        return CliRunner().invoke(app, ["submit", *map(str, paths), *words])

    done = command(*sorted((tmp_path / "runs").iterdir()))
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out").iterdir())) == 1
    done = command(run, runs["random"], runs["naive"], tmp_path / "runs/notes")
    assert done.exit_code == 2
    assert "3 of these 4 paths are run folders" in done.stderr and str(run) in done.stderr
    done = command(tmp_path / "runs/notes", tmp_path / "runs/report.html")
    assert done.exit_code == 2
    assert "0 of these 2 paths are run folders; a submission is of one run" in done.stderr


def test_what_kit_says_next_is_the_setting_of_the_kit(tmp_path):
    setting = "--scale tiny --split test --pool-size 100 --subtask multi_hop_2 --subtask single_rule"
    done = CliRunner().invoke(app, ["kit", str(tmp_path / "kit"), *setting.split()])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].endswith(f"--representation nl {setting}")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"id": 3}', "line 2: id must be a valid string"),
        ('{"id": "x", "answer": "8"}', "expected an object with id and any of output"),
        ('{"id": "x", "output": NaN}', "is not a finite number"),
        ('{"id": "x", "output": "\\\\boxed{1}", "answers": ["2"]}', "not what the scorer reads"),
        ("nonsense", "is not JSON"),
    ],
)
def test_rows_of_predictions_that_cannot_be_used(row, reason, judge, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "multi_hop_2-mini-0000000", "output": "\\\\boxed{1}"}\n' + row + "\n")
    with pytest.raises(ValueError, match="line 2") as told:
        import_predictions(
            path, "x", "nl", 100, tmp_path / "runs", judge, scale="tiny", subtasks=["multi_hop_2"]
        )
    assert reason in str(told.value)
    assert not (tmp_path / "runs").exists()


def test_predictions_of_another_split_and_pool_are_refused(judge, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "multi_hop_2-train-0000000", "output": "\\\\boxed{1}"}\n\n')
    with pytest.raises(ValueError, match=r"mine\.jsonl, line 1: is not the id of a question asked"):
        import_predictions(
            path, "x", "nl", 100, tmp_path / "runs", judge, scale="tiny", subtasks=["multi_hop_2"]
        )
    with pytest.raises(ValueError, match="the board has pools of 100, 500, 1,000"):
        import_predictions(path, "x", "nl", 123, tmp_path / "runs", judge, scale="tiny")


def test_validation_runs_no_method(entry, judge, monkeypatch):
    """Not even by building one from the spec: its fields may name folders and servers."""
    from rwbench.methods import Method

    def build(values):
        raise AssertionError("a method was built")

    monkeypatch.setattr(Method, "from_dict", build)
    assert validate(entry.folder, judge).folder == entry.folder.name


def test_results_meet_the_published_schema(entry):
    import jsonschema
    from rwbench.score.results import results_schema

    checker = jsonschema.validators.validator_for(results_schema())(results_schema())
    assert not list(checker.iter_errors(json.loads(entry.path(RESULTS).read_text())))
