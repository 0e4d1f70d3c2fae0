import dataclasses
import hashlib
import json

import pytest
from rwbench.methods import Method
from rwbench.methods.retrieve import Retrieve
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.dense import Dense
from rwbench.retrievers.fuse import RRF
from rwbench.spec import RunSpec, first_difference


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
    spec = make()
    fields = {name: value for name, value in dataclasses.asdict(spec).items() if value is not None}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert spec.run_id == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_run_id_is_pinned():
    """A change here renames every run that anybody has: raise it on purpose only."""
    spec = make(scorer_version="1", data="1")
    assert spec.run_id == "ff74ff4e22c1"


@pytest.mark.parametrize(
    "change",
    [
        {"representation": "fol"},
        {"pool_size": 101},
        {"pool_scope": "fold"},
        {"pool_within": 1000},
        {"pool_seed": 1},
        {"split": "test"},
        {"scale": "tiny"},
        {"world_seed": 1},
        {"limit": 3},
        {"top_k": 10},
        {"data": "2"},
        {"subtasks": ("single_rule",)},
        {"scorer_version": "0"},
        {"method": Retrieve(BM25(k1=0.9)).to_dict()},
    ],
)
def test_every_field_changes_the_run_id(change):
    assert make(**change).run_id != make().run_id


def test_spec_survives_json_and_rebuilds_its_method():
    method = Retrieve(RRF(parts=(BM25(tokenizer="naive"), Dense()), k=10))
    spec = make(method=method.to_dict(), limit=4)
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.run_id == spec.run_id
    assert Method.from_dict(again.method) == method


def test_a_spec_is_frozen_even_through_the_dict_it_was_given():
    given = Retrieve(BM25()).to_dict()
    spec = make(method=given)
    before = spec.run_id
    given["retriever"]["k1"] = 7.0
    assert spec.run_id == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.pool_size = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"representation": "nll"}, ["representation", "'nll'", "did you mean 'nl'"]),
        ({"split": "tets"}, ["split", "'tets'", "'test'"]),
        ({"subtasks": ("single_rul",)}, ["sub-task", "'single_rule'"]),
        ({"pool_size": 0}, ["pool_size", "0"]),
        ({"limit": -1}, ["limit", "-1"]),
        ({"pool_size": 100, "pool_within": 50}, ["pool_within=50", "pool_size=100"]),
        ({"method": {"k": 1}}, ["method", "'name'"]),
    ],
)
def test_errors_name_the_field_and_the_value(change, words):
    with pytest.raises(ValueError) as error:
        make(**change)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_unknown_fields_and_parameters_are_named_with_near_matches():
    with pytest.raises(ValueError, match="did you mean 'pool_size'"):
        RunSpec.from_dict(make().to_dict() | {"pol_size": 3})
    with pytest.raises(ValueError, match=r"parameter of retriever 'bm25' 'tokeniser'.*'tokenizer'"):
        Method.from_dict({"name": "retrieve", "retriever": {"name": "bm25", "tokeniser": "naive"}})
    with pytest.raises(ValueError, match=r"unknown method 'retreive'.*'retrieve'"):
        Method.from_dict({"name": "retreive"})


def test_first_difference_names_the_dotted_field():
    ours = make().to_dict()
    theirs = make(method=Retrieve(BM25(k1=0.9)).to_dict()).to_dict()
    assert first_difference(theirs, ours) == ("method.retriever.k1", 0.9, 1.5)
    assert first_difference(ours, dict(ours)) is None
    assert first_difference(ours, ours | {"limit": 5}) == ("limit", None, 5)
