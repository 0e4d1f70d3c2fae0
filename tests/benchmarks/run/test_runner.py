"""Runs: resume after a kill at any byte, failures on record, one spec per folder."""

import dataclasses
import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rwbench.methods import Method, Output, component
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import Options
from rwbench.retrievers.random import Random
from rwbench.run.folder import exclusive, make_plan
from rwbench.run.runner import run_spec
from rwbench.score.samples import SampleLog, read_samples
from rwbench.spec import json_line


def without_times(results):
    return {name: value for name, value in results.items() if name != "timing"}


@pytest.fixture
def broken():
    """A method that fails as its parameters say, registered for one test."""

    @component
    class Broken(Method):
        """Raises, ends early or answers out of turn at one question."""

        name = "broken"
        how: str = "raise"
        at: str = ""

        def answer(self, batch, top_k):
            for _, question in batch:
                how = self.how if question.id == self.at else ""
                if how == "end":
                    return
                if how == "raise":
                    raise RuntimeError("no luck")
                name = "another" if how == "other" else question.id
                error = "server said 500" if how == "error" else None
                answers = None if how == "none" else list(question.answers)
                yield Output(name, answers=answers, error=error)

    yield Broken
    Method.registry.remove("broken")


def test_a_run_folder_holds_spec_samples_and_results(spec, workspace, tmp_path):
    results = run_spec(spec, workspace, tmp_path)
    folder = tmp_path / spec.run_id
    assert json.loads((folder / "spec.json").read_text()) == spec.to_dict()
    assert json.loads((folder / "results.json").read_text()) == results
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    # The first of two folds each, whose ten questions are a block of the table.
    asked = [q.id for name in spec.subtasks for q in workspace.questions(name, "mini")[:20:10]]
    assert [sample["id"] for sample in samples] == asked
    assert results["n"] == {"scheduled": 22, "scored": 22, "failed": 0}
    for sample in samples:
        assert len(sample["retrieved"]) == 1
        assert 0 < len(sample["retrieved"][0]) <= 100
        gold = {rule for step in sample["gold_rules"] for rule in step}
        found = gold & set(sample["retrieved"][0][: len(gold)])
        assert sample["scores"]["recall@1"] == pytest.approx(len(found) / len(gold))
        assert sample["error"] is None
    # Metrics are means of what the samples hold, each sub-task with the same weight.
    metric, by_subtask = results["metrics"]["recall@10"], {}
    for sample in samples:
        by_subtask.setdefault(sample["subtask"], []).append(sample["scores"]["recall@10"])
    means = {name: fmean(values) for name, values in by_subtask.items()}
    found = {name: (each["value"], each["n"]) for name, each in metric["by_subtask"].items()}
    assert found == {name: (pytest.approx(mean, abs=1e-6), 2) for name, mean in means.items()}
    macro, own = fmean(means.values()), metric["macro"]
    assert own["value"] == pytest.approx(macro, abs=1e-6) and own["ci_low"] <= macro <= own["ci_high"]


def test_scores_are_right_end_to_end_for_the_solver(workspace, options, tmp_path):
    """The ceiling answers every question and its proof is the gold rules, at every scope."""
    names = {"recall@1", "recall@10", "exact_match", "strict_match"}
    for size, scope, more in ((100, "question", set()), (1984, "batch", {"recall@100"})):
        metrics = run_spec(options.spec(Solver(), "fol", size, scope), workspace, tmp_path)["metrics"]
        assert {metric["macro"]["value"] for metric in metrics.values()} == {1.0}
        assert set(metrics) == names | more


@pytest.fixture(scope="module")
def finished(workspace, tmp_path_factory):
    """A finished run: spec, its bytes, its results."""
    spec = Options(workspace, limit=1).spec(Retrieve(Random()), "nl", size=100, scope="question")
    out = tmp_path_factory.mktemp("finished")
    results = run_spec(spec, workspace, out)
    return spec, (out / spec.run_id / "samples.jsonl").read_bytes(), results


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_kill_at_any_byte_changes_nothing(data, finished, workspace, tmp_path_factory):
    spec, whole, wanted = finished
    cut = data.draw(st.integers(0, len(whole)), label="bytes left")
    out = tmp_path_factory.mktemp("cut")
    folder = out / spec.run_id
    folder.mkdir()
    (folder / "samples.jsonl").write_bytes(whole[:cut])
    if data.draw(st.booleans(), label="an old results.json lies there"):
        (folder / "results.json").write_text(json.dumps(wanted))
    assert make_plan(spec, workspace, out).done == whole[:cut].count(b"\n")
    assert without_times(run_spec(spec, workspace, out)) == without_times(wanted)
    ids = [json.loads(line)["id"] for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert ids == [json.loads(line)["id"] for line in whole.decode().splitlines()]
    kept = whole[:cut].rpartition(b"\n")
    assert (folder / "samples.jsonl").read_bytes().startswith(kept[0] + kept[1])


def test_a_finished_run_is_not_run_again(spec, workspace, tmp_path, monkeypatch):
    first = run_spec(spec, workspace, tmp_path)
    monkeypatch.setattr(Method, "run", lambda *_: pytest.fail("was run again"))
    assert make_plan(spec, workspace, tmp_path).state == "finished"
    assert run_spec(spec, workspace, tmp_path) == first


@pytest.mark.parametrize("part", ["gold_answers", "gold_rules", "fold", "scores"])
def test_a_sample_with_another_gold_or_score_is_refused(part, spec, workspace, tmp_path):
    run_spec(spec, workspace, tmp_path)
    path = tmp_path / spec.run_id / "samples.jsonl"
    sample, *others = read_samples(path)
    other = {
        "gold_answers": ["7"],
        "gold_rules": [[1]],
        "fold": sample["fold"] + 1,
        "scores": {"recall@1": 0.5},
    }
    path.write_bytes(b"".join(map(json_line, [sample | {part: other[part]}, *others])))
    with pytest.raises(ValueError, match=rf"another gold or score than question '{sample['id']}'"):
        run_spec(spec, workspace, tmp_path)
    path.write_bytes(b"".join(map(json_line, others)))
    assert run_spec(spec, workspace, tmp_path)["n"]["scored"] == len(others) + 1


def test_answers_of_another_run_are_refused(spec, options, workspace, tmp_path):
    """The same questions and pools, so gold and scores fit; or a question that the run does not ask."""
    mine, other = tmp_path / spec.run_id, options.spec(Retrieve(Random()), "nl", size=100, scope="question")
    wanted = run_spec(spec, workspace, tmp_path)
    (tmp_path / other.run_id).mkdir()
    shutil.copy(mine / "results.json", tmp_path / other.run_id)
    results = run_spec(other, workspace, tmp_path)
    assert results["run_id"] == other.run_id and results["metrics"] != wanted["metrics"]
    for name in ("results.json", "samples.jsonl"):
        shutil.copy(mine / name, tmp_path / other.run_id)
    with pytest.raises(ValueError, match=f"{other.run_id} holds another run's answer"):
        run_spec(other, workspace, tmp_path)
    (first, *others) = read_samples(mine / "samples.jsonl")
    lines = map(json_line, [first, *others, first | {"id": "single_rule-test-9999999"}])
    (mine / "samples.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match="another run's answer, to question 'single_rule-test-9999999'"):
        run_spec(spec, workspace, tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "RuntimeError: no luck"),
        ("end", "the method ended where"),
        ("other", "answered another where"),
        ("error", "server said 500"),
    ],
)
def test_one_bad_question_is_counted_and_retried(broken, how, message, workspace, options, tmp_path):
    bad = workspace.questions("multi_rule_4", "mini")[10].id
    spec = options.spec(broken(how=how, at=bad), "nl", size=1000, scope="fold")
    results = run_spec(spec, workspace, tmp_path)
    assert results["n"] == {"scheduled": 22, "scored": 21, "failed": 1}
    assert results["metrics"]["exact_match"]["macro"]["value"] == 1.0
    assert results["metrics"]["exact_match"]["by_subtask"]["multi_rule_4"]["n"] == 1
    path = tmp_path / spec.run_id / "samples.jsonl"
    (failed,) = [sample for sample in read_samples(path) if sample["error"]]
    assert failed["id"] == bad and message in failed["error"]
    assert make_plan(spec, workspace, tmp_path).state == "resume"
    assert run_spec(spec, workspace, tmp_path)["n"]["failed"] == 1
    ids = [sample["id"] for sample in read_samples(path)]
    assert len(ids) == len(set(ids)) == 22


def test_a_mean_over_the_questions_that_a_method_chose_is_no_score(broken, workspace, options, tmp_path):
    bad = workspace.questions("multi_rule_4", "mini")[10].id
    with pytest.raises(ValueError, match="answers are null for some questions only"):
        run_spec(options.spec(broken(how="none", at=bad), "nl", 1000, "fold"), workspace, tmp_path)


def test_another_spec_in_the_folder_is_named(spec, workspace, tmp_path):
    path = tmp_path / spec.run_id / "spec.json"
    path.parent.mkdir()
    path.write_text(json.dumps(dataclasses.replace(spec, pool_seed=7).to_dict()))
    with pytest.raises(ValueError, match=r"pool_seed is 7 there and 0 here.*--out"):
        run_spec(spec, workspace, tmp_path)
    for body in ("{", "null", "[" * 100_000):
        path.write_text(body)
        with pytest.raises(ValueError, match=r"spec.json is no spec.*delete the folder"):
            run_spec(spec, workspace, tmp_path)


def test_two_processes_cannot_write_one_run(spec, workspace, tmp_path):
    folder = tmp_path / spec.run_id
    folder.mkdir()
    with exclusive(folder), pytest.raises(ValueError, match="another process is running"):
        run_spec(spec, workspace, tmp_path)


def line(name, error="null"):
    """A whole sample as its line."""
    return (
        f'{{"answers":null,"error":{error},"fold":0,"gold_answers":[],"gold_rules":[],"id":"{name}","output":null,'
        '"retrieved":null,"scores":{},"seconds":0.5,"subtask":"single_rule","world_id":"w"}\n'
    ).encode()


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"nonsense\n", "nonsense"),
        (b'{"error":null,"id":"a"}\n', "subtask: Field required"),
        (line("b").replace(b'"fold":0', b'"fold":"0"'), "fold: Input should be a valid integer, got '0'"),
        (line("b").replace(b'"scores"', b'"score"'), "scores: Field required"),
    ],
)
def test_a_line_that_is_no_sample_is_named(tmp_path, broken, told):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(line("a") + broken + line("b"))
    with pytest.raises(ValueError, match=rf"line 2 is not a sample.*{told}"):
        read_samples(path)


def test_opening_a_log_drops_failures_doubles_and_the_torn_line(tmp_path):
    path: Path = tmp_path / "samples.jsonl"
    path.write_bytes(line("a") + line("b", error='"x"') + line("a") + line("c")[:-1])
    with SampleLog(path) as log:
        assert log.done == {"a"}
        log.append(json.loads(line("d")))
        assert path.read_bytes() == line("a") + line("d")
