"""Tokens, fusion and ties, each against something written independently; BM25 against Lucene's own scores."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rwbench.retrievers import Retriever, component, rank
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.fuse import RRF
from rwbench.retrievers.random import Random
from rwbench.retrievers.tokenize import identifier_aware

IDS = np.array([40, 10, 30, 20, 50], dtype=np.int32)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Tiny_cat(A) => Has(A, Strong_horn, 14)", "tini cat a has a strong horn 14"),
        ("a tiny cat's 14 strong horns", "a tini cat s 14 strong horn"),
        ("x2 Celestial_garden", "x 2 celesti garden"),
        ("in the desert", "in the desert"),
        ("", ""),
    ],
)
def test_aware_tokens_split_identifiers_stem_and_keep_digits_and_stop_words(text, terms):
    assert identifier_aware(text) == tuple(terms.split())


def test_naive_bm25_finds_nothing_in_fol_and_aware_bm25_does(search):
    ids, rules = np.array([8, 3]), ["Tiny_cat(A) => Has(A, Strong_horn, 14)", "In(A, Desert) => Sad(A)"]
    found = (
        search(BM25(tokenizer=way), ids, rules, ["Has it strong horns?"], 1) for way in ("naive", "aware")
    )
    assert [hits.ids.tolist() for (hits,) in found] == [[], [8]]


def test_rules_tie_whatever_the_order_their_terms_add_up_in(search):
    """The same three weights, added in two orders, differ in the last bit; such rules must still tie."""
    filler = ["q q2"] * 2 + ["r t"] * 6
    texts = ["p q r", "t q2 s", *filler]
    ids = np.array([9, 4, *range(20, 28)], dtype=np.int32)
    counts = Counter(term for text in texts for term in text.split())
    idf = {term: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for term, n in counts.items()}
    norm = 1 + 1.5 * (1 - 0.75 + 0.75 * 3 / 2.2)
    first, second = (sum(idf[term] / norm for term in text.split()) for text in texts[:2])
    assert first > second
    hits = search(BM25(tokenizer="naive"), ids, texts, ["p t q q2 r s"], 2)[0]
    assert hits.ids.tolist() == [4, 9] and hits.scores[0] == hits.scores[1] == pytest.approx(first)


@settings(max_examples=200)
@given(
    scores=st.lists(st.sampled_from([-math.inf, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=40),
    k=st.integers(1, 45),
    seed=st.integers(0, 99),
)
def test_rank_equals_a_full_sort_by_score_then_id(scores, k, seed):
    ids = np.random.default_rng(seed).permutation(len(scores)).astype(np.int32)
    pairs = sorted((-s, int(i)) for s, i in zip(scores, ids, strict=True) if s > -math.inf)[:k]
    hits = rank(ids, np.array(scores), k)
    assert hits.ids.tolist() == [i for _, i in pairs]
    assert hits.scores.tolist() == [-s for s, _ in pairs]


def test_random_is_uniform_keyed_by_query_and_the_same_in_every_pool(search):
    ids = np.arange(1000, dtype=np.int32)
    asked = [f"question {i}" for i in range(300)]
    lists = [hits.ids for hits in search(Random(), ids, [""] * 1000, asked, 1000)]
    assert not np.array_equal(lists[0], lists[1])
    assert not np.array_equal(search(Random(seed=1), ids, [""] * 1000, ["question 0"], 1000)[0].ids, lists[0])
    places = np.array([np.flatnonzero(ranked == 7)[0] for ranked in lists])
    # Mean of 300 uniform places in 0..999: 499.5 with standard error 16.7.
    assert abs(places.mean() - 499.5) < 4 * 16.7
    some = np.array([5, 17, 900, 7], dtype=np.int32)
    within = search(Random(), some, [""] * 4, ["question 0"], 4)[0].ids.tolist()
    assert within == [int(i) for i in lists[0] if i in set(some.tolist())]


def fake(name, order):
    """A retriever that ranks by a fixed list."""

    class Fixed(Retriever):
        def scorer(self, ids, texts):
            place = {rule: len(order) - i for i, rule in enumerate(order)}
            return lambda query: np.array([place.get(int(i), -math.inf) for i in ids])

    Fixed.name = name
    return Fixed()


def test_rrf_by_hand(search):
    fused = RRF(parts=(fake("one", [1, 2, 3]), fake("two", [3, 4])), k=60, depth=100)
    hits = search(fused, np.arange(1, 7, dtype=np.int32), [""] * 6, ["q"], 10)[0]
    wanted = {1: 1 / 61, 2: 1 / 62, 3: 1 / 63 + 1 / 61, 4: 1 / 62}
    assert hits.ids.tolist() == [3, 1, 2, 4]  # 2 and 4 tie: lower id first; 5 and 6 are in no list
    np.testing.assert_allclose(hits.scores, [wanted[i] for i in hits.ids.tolist()], atol=1e-11)
    shallow = RRF(parts=(fake("one", [1, 2, 3]), fake("two", [3, 2])), depth=1)
    (hits,) = search(shallow, np.arange(1, 4, dtype=np.int32), [""] * 3, ["q"], 10)
    assert hits.ids.tolist() == [1, 3]


# A golden file written once by Apache Lucene, on rules and questions as terms.

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bm25_lucene.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("setting", GOLDEN["scores"], ids=lambda s: f"k1={s['k1']},b={s['b']}")
def test_scores_and_what_is_retrieved_are_lucene_s(setting):
    documents, queries = GOLDEN["documents"], GOLDEN["queries"]
    ids = np.arange(len(documents), dtype=np.int32)
    # The golden terms are split at blanks already, which is what the naive tokenizer does.
    ours = BM25(tokenizer="naive", k1=setting["k1"], b=setting["b"]).scorer(ids, documents)
    for scores, wanted in zip(map(ours, queries), setting["by_query"], strict=True):
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
    code += "for search in BM25, BothEnds: search().scorer(numpy.arange(2), ['a wet fox', 'an owl'])('fox')\n"
    code += "print('searched')\nimport jax.lax"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    run = [sys.executable, "-c", code + "\nprint('imported', jax.__name__)"]
    done = subprocess.run(run, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert done.stdout.splitlines() == ["searched", "jax was started", "imported jax"], done.stderr


@pytest.mark.parametrize("scores", [[np.nan, 1, 2, 3, 4], [3, 2, 1], [[1, 2, 3, 4, 5]]])
def test_scores_that_are_not_one_a_rule_are_refused(scores):
    with pytest.raises(ValueError, match="each of 5 rules needs a score"):
        rank(IDS, np.array(scores, dtype=float), 3)
    assert rank(IDS, np.array([2, 0, 1, 3, 0], dtype=np.uint8), 5).ids.tolist() == [20, 40, 30, 10, 50]


def test_a_pool_is_prepared_once_for_equal_retrievers_also_with_fields_that_have_no_hash(monkeypatch):
    monkeypatch.setattr(Retriever.registry, "_entries", {})
    prepared = []

    @component
    class Weighted(Retriever):
        name = "weighted"
        weights: dict[str, float]

        def scorer(self, ids, texts):
            prepared.append(self)
            return lambda query: [self.weights.get(text, 0) for text in texts]

    pool = SimpleNamespace(ids=IDS, texts="abcde")
    made = [Weighted({"c": 1.0, "d": weight}) for weight in (2, 2, 0.5)]
    assert [search.search(pool, "", 1).ids.tolist() for search in made] == [[20], [20], [30]]
    assert len(prepared) == 2
