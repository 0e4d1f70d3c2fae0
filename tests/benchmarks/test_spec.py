import dataclasses
import hashlib
import json
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError
from rwbench.methods import Method
from rwbench.methods.retrieve import Retrieve
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.dense import Dense
from rwbench.retrievers.fuse import RRF
from rwbench.score.results import find_results
from rwbench.spec import RunSpec, in_words, spec_differences

CASES = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def make(**changes):
    fields = {
        "method": Retrieve(BM25()).to_dict(),
        "representation": "nl",
        "pool_size": 100,
        "pool_scope": "question",
        "data": "1",
    }
    return RunSpec(**(fields | changes))


def test_run_id_is_the_hash_of_sorted_json_without_nulls():
    """A change here renames every run that anybody has: raise it on purpose only."""
    spec = make(scorer_version="1", data="1")
    fields = {name: value for name, value in dataclasses.asdict(spec).items() if value is not None}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert spec.run_id == hashlib.sha256(text.encode()).hexdigest()[:12] == "ff74ff4e22c1"


@pytest.mark.parametrize("same", [None, "", "hops=4", "parts=4,thresholds=false"])
def test_the_paper_s_point_has_one_spelling_and_old_run_ids(same):
    assert make(dials=same).run_id == make().run_id and "dials" not in make(dials=same).to_dict()
    turned = make(dials="crowd=12,hops=6", data="1.1.0", subtasks=("multi_hop_6",))
    assert turned.run_id == make(dials=" hops=6, crowd=12", data="1.1.0", subtasks=("multi_hop_6",)).run_id


def test_spec_survives_json_and_rebuilds_its_method():
    method = Retrieve(RRF(parts=(BM25(tokenizer="naive"), Dense()), k=10))
    given = method.to_dict()
    spec = make(method=given, limit=4)
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    given["retriever"]["k"] = 7  # frozen even through the dict it was given
    assert again == spec and again.run_id == spec.run_id
    assert Method.from_dict(again.method) == method
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.pool_size = 1


@pytest.mark.parametrize(("change", "words"), CASES["spec"])
def test_errors_name_the_field_and_the_value(change, words):
    with pytest.raises(ValidationError) as error:
        make(**change)
    told = in_words(error.value)
    assert "\n" not in told and all(word in told for word in words), told


def test_unknown_fields_and_parameters_are_named_with_near_matches():
    with pytest.raises(ValueError, match="did you mean 'pool_size'"):
        RunSpec.from_dict(make().to_dict() | {"pol_size": 3})
    with pytest.raises(ValueError, match=r"parameter of retriever 'bm25' 'tokeniser'.*'tokenizer'"):
        Method.from_dict({"name": "retrieve", "retriever": {"name": "bm25", "tokeniser": "naive"}})
    with pytest.raises(ValueError, match=r"unknown method 'retreive'.*'retrieve'"):
        Method.from_dict({"name": "retreive"})


def test_differences_name_the_dotted_field():
    ours = make().to_dict()
    theirs = make(method=Retrieve(BM25(k1=0.9)).to_dict()).to_dict()
    assert spec_differences(theirs, ours) == {"method.retriever.k1": [0.9, 1.5]}
    assert spec_differences(ours, dict(ours)) == {}
    assert spec_differences(ours, ours | {"limit": 5}) == {"limit": [None, 5]}


def test_committed_runs_keep_their_ids():
    """Every run and submission in the repository is found again by its spec."""
    runs = [run for folder in BENCHMARKS.glob("results/*") for run in find_results(folder)]
    assert len(runs) > 800
    for run in runs:
        assert RunSpec.from_dict(run["spec"]).run_id == run["run_id"]
    entries = [
        json.loads(path.read_text()) for path in BENCHMARKS.glob("leaderboard/submissions/*/submission.json")
    ]
    assert entries
    assert {RunSpec.from_dict(entry["spec"]).run_id for entry in entries} <= {run["run_id"] for run in runs}
