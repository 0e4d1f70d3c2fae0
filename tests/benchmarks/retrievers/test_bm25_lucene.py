"""BM25 gives Lucene's own scores: a golden file written once by Apache Lucene, on rules and questions as terms."""

import json
from pathlib import Path

import numpy as np
import pytest
from rwbench.retrievers.bm25 import BM25

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bm25_lucene.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("setting", GOLDEN["scores"], ids=lambda s: f"k1={s['k1']},b={s['b']}")
def test_scores_and_what_is_retrieved_are_lucene_s(setting):
    documents, queries = GOLDEN["documents"], GOLDEN["queries"]
    ids = np.arange(len(documents), dtype=np.int32)
    # The golden terms are split at blanks already, which is what the naive tokenizer does.
    ours = BM25(tokenizer="naive", k1=setting["k1"], b=setting["b"]).scorer(ids, documents)(queries)
    for scores, wanted in zip(ours, setting["by_query"], strict=True):
        assert {str(i) for i in np.flatnonzero(scores > -np.inf)} == set(wanted)
        for document, score in wanted.items():
            assert scores[int(document)] == pytest.approx(score, rel=2e-6)


def test_the_golden_file_is_no_trivial_case():
    assert len(GOLDEN["documents"]) == 126
    found = [len(query) for query in GOLDEN["scores"][0]["by_query"]]
    assert min(found) >= 3
    assert len({score for query in GOLDEN["scores"][0]["by_query"] for score in query.values()}) > 300
