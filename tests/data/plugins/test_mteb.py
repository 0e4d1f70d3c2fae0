"""MTEB runs our retrieval task on encoders for real, and reports what our recall reports."""

from pathlib import Path

import numpy as np
import pytest
from ruleworld_data.scoring import union_recall

from ..cases import question_table, rule_table

mteb = pytest.importorskip("mteb", reason='mteb is missing: pip install "ruleworld-data[mteb]"')
BASE = Path(__file__).parents[3] / "benchmarks/src/rwbench/models/tiny/base"
OPTIONS = {"scale": "tiny", "split": "mini", "pool_size": 300}


def check(model, vectors, asked) -> dict[str, float]:
    """Hold what MTEB reports of a model against our recall by its vectors; return the main scores."""
    from ruleworld_data.plugins.mteb_task import RuleWorldRetrieval

    task, again = RuleWorldRetrieval(**OPTIONS), RuleWorldRetrieval(**OPTIONS)
    task.hf_subsets = again.hf_subsets = list(asked)
    (result,) = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results
    reported = {scores["hf_subset"]: scores for scores in result.scores["mini"]}
    assert set(reported) == set(asked)
    rules = rule_table("train", "tiny")
    texts = dict(zip(rules["id"].to_pylist(), rules["nl"].to_pylist(), strict=True))
    again.load_data()  # MTEB unloads the data of a task that is done
    for subtask in sorted({"single_rule", "multi_rule_5", "multi_hop_3"}.intersection(asked)):
        pool = [int(rule) for rule in again.dataset[subtask]["mini"]["corpus"]["id"]]
        assert len(pool) == len(set(pool)) == 300
        rows = question_table(subtask, "mini", "tiny").to_pylist()
        scores = vectors([row["question"] for row in rows]) @ vectors([texts[rule] for rule in pool]).T
        ranked = [[pool[i] for i in np.lexsort((pool, -of))] for of in scores]
        for name, k in {"gold": "gold", "1": 1, "10": 10, "100": 100}.items():
            recalls = [
                union_recall([r], [row["gold_rule_ids"]], k) for r, row in zip(ranked, rows, strict=True)
            ]
            expected = sum(recalls) / len(recalls)
            assert reported[subtask][f"ruleworld_recall_at_{name}"] == pytest.approx(expected)
            if name != "gold":
                assert reported[subtask][f"recall_at_{name}"] == pytest.approx(expected, abs=6e-6)
        assert 0 < reported[subtask]["main_score"] < 1
    return {subtask: scores["main_score"] for subtask, scores in reported.items()}


def test_the_first_layer_of_the_model_in_the_box_gets_our_recall():
    """In float64: in what company a text is encoded must not move a rule across a rank."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    layer = Transformer(str(BASE), model_kwargs={"dtype": "float64"}, config_kwargs={"num_hidden_layers": 1})
    pooling = Pooling(layer.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[layer, pooling], device="cpu")
    found = check(
        model, lambda texts: model.encode(texts, normalize_embeddings=True), ["single_rule", "multi_hop_3"]
    )
    assert found["single_rule"] > 0.1  # of 300 rules, by one text's words: far from chance


def test_settings_have_names_of_their_own_and_wrong_ones_are_refused():
    from ruleworld_data.plugins.mteb_task import RuleWorldRetrieval

    assert RuleWorldRetrieval().metadata.name == "RuleWorldRetrieval"
    other = RuleWorldRetrieval(representation="fol", pool_size=100_000)
    assert other.metadata.name == "RuleWorldRetrieval,representation=fol,pool_size=100000"
    with pytest.raises(ValueError, match="unknown option 'poolsize'; did you mean 'pool_size'"):
        RuleWorldRetrieval(poolsize=5)
    with pytest.raises(ValueError, match="rules must be 'pool'"):
        RuleWorldRetrieval(rules="gold")
