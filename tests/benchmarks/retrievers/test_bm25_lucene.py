"""BM25 gives Lucene's own scores: a golden file written once by Apache Lucene, on rules and questions as terms."""

import json
import os
import subprocess
import sys
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


@pytest.mark.parametrize("texts", [["...", "!?"], ["", "a"]])
def test_rules_without_words_are_not_found(texts, search):
    assert not len(search(BM25(), np.arange(2), texts, ["cat"], 2)[0].ids)


def test_jax_is_not_started(tmp_path):
    """bm25s starts it where it is installed; on a GPU it takes three quarters of the memory, and models find none."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('jax was started')")
    (tmp_path / "jax" / "lax.py").write_text("top_k = max")
    code = "import numpy\nfrom rwbench.retrievers.bm25 import BM25\nfrom rwbench.retrievers.both_ends import BothEnds\n"
    code += (
        "for search in BM25, BothEnds: search().scorer(numpy.arange(2), ['a wet fox', 'an owl'])(['fox'])\n"
    )
    code += "print('searched')\nimport jax.lax"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    run = [sys.executable, "-c", code + "\nprint('imported', jax.__name__)"]
    done = subprocess.run(run, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert done.stdout.splitlines() == ["searched", "jax was started", "imported jax"], done.stderr
