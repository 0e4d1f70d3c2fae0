"""Which questions a limit leaves."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from ruleworld_data.spec import SUBTASKS, Dials, subtasks_of
from rwbench.methods.retrieve import Retrieve
from rwbench.methods.solver import Solver
from rwbench.recipes import Options
from rwbench.report.rows import mistakes
from rwbench.report.setting import Setting
from rwbench.retrievers.bm25 import BM25
from rwbench.run.books import source_of
from rwbench.run.data import DataSource, select
from rwbench.run.pools import pools_of
from rwbench.run.runner import run_spec
from rwbench.score.results import check_results
from rwbench.spec import RunSpec


def test_a_run_makes_the_data_that_it_names():
    source = DataSource("tiny", 7)
    spec = Options(source, limit=1).spec(Retrieve(BM25()), "nl", 100, "question")
    assert spec.data == "1.1.0" and source_of(spec) == source
    with pytest.raises(ValueError, match=r"unknown version '2.0'"):
        source_of(replace(spec, data="2.0.0"))


def test_a_world_made_with_dials_is_run_and_made_again_from_the_spec(tmp_path):
    """Deeper chains and wider questions are asked, the solver answers all of them, BM25 finds their rules."""
    dials = Dials.parse("hops=6, crowd=12,parts=5, thresholds=true")
    source = DataSource("tiny", version="1.1", dials=dials)
    options = Options(source, limit=1)
    specs = [options.spec(method, "fol", 200, "question") for method in (Solver(), Retrieve(BM25()))]
    for spec in specs:
        values = json.loads(json.dumps(spec.to_dict()))
        assert values["dials"] == "hops=6,parts=5,crowd=12,thresholds=true" == str(dials)
        assert RunSpec.from_dict(values) == spec and source_of(RunSpec.from_dict(values)) == source
        assert spec.subtasks == subtasks_of(dials) and {"multi_hop_6", "multi_rule_10"} < {*spec.subtasks}
    solved, found = (run_spec(spec, source_of(spec), tmp_path) for spec in specs)
    assert solved["n"] == {"scheduled": 15, "scored": 15, "failed": 0}
    assert solved["metrics"]["exact_match"]["macro"]["value"] == 1.0
    assert 0 < found["metrics"]["recall@1"]["macro"]["value"] < 1
    check_results(json.loads(json.dumps(found)))
    assert "dials hops=6,parts=5,crowd=12,thresholds=true" in Setting((found,)).title()
    assert mistakes(solved, tmp_path) == {"correct": "15"}
    with pytest.raises(ValueError, match=r"asks for dials=None, this source has 'hops=6,.*'"):
        pools_of(Options(DataSource("tiny", version="1.1")).spec(Solver(), "fol", 200, "question"), source)


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_a_limit_takes_the_folds_in_turn(workspace, limit):
    for name in SUBTASKS:
        questions = workspace.questions(name, "mini")
        chosen = select(questions, limit)
        counts = Counter(question.fold for question in chosen)
        assert sum(counts.values()) == limit
        assert set(counts) == set(range(min(limit, 5)))
        assert max(counts.values()) - min(counts.values()) <= 1
        assert [q.index for q in chosen] == sorted(q.index for q in chosen)
        # A larger limit asks the same questions and more: a short run is a part of a long one.
        assert {q.id for q in chosen} < {q.id for q in select(questions, limit + 1)} or limit == 50
    assert select(questions, None) == select(questions, 10**6) == questions
    unfolded = workspace.questions("single_rule", "test")
    assert select(unfolded, limit) == unfolded[:limit]
