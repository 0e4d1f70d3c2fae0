"""Tokens, BM25, fusion and ties, each against something written independently."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rwbench.retrievers import Hits, Retriever, rank
from rwbench.retrievers.bm25 import BM25
from rwbench.retrievers.fuse import RRF, fuse
from rwbench.retrievers.random import Random
from rwbench.retrievers.tokenize import identifier_aware, naive

FOL = [
    "Tiny_cat(A) => Has(A, Strong_horn, 14)",
    "Lose_Strong_fin(A, 1) => Drop_Mineral_fur(A, 2)",
    "Chase(A, B) => In(B, Bridge)",
    "Chase(A, B) => Drop_Floral_paw(B, 1)",
    "In(A, Desert) => Slightly_disappointed(A)",
]
NL = [
    "If A is a tiny cat, it has 14 strong horns.",
    "If A loses 1 strong fin, A will drop 2 mineral furs.",
    "If A chases B, B will enter the bridge.",
    "If A chases B, B will drop 1 floral paw.",
    "If A is in the desert, A will be slightly disappointed.",
]
IDS = np.array([40, 10, 30, 20, 50], dtype=np.int32)


def lucene_bm25(query, texts, tokenize, k1=1.5, b=0.75):
    """Twenty lines of textbook: idf(t) * tf / (tf + k1 * (1 - b + b * len / mean len)), summed over query terms."""
    docs = [Counter(tokenize(text)) for text in texts]
    mean = sum(doc.total() for doc in docs) / len(docs)
    scores = []
    for doc in docs:
        total = 0.0
        for term in tokenize(query):
            df = sum(term in other for other in docs)
            idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
            norm = k1 * (1 - b + b * doc.total() / mean)
            total += idf * doc[term] / (doc[term] + norm) if doc[term] else 0.0
        scores.append(total)
    return scores


def test_naive_tokens_keep_symbols_whole():
    assert naive(FOL[0]) == ("tiny_cat(a)", "=>", "has(a,", "strong_horn,", "14)")


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


@pytest.mark.parametrize(("texts", "tokenizer"), [(FOL, "aware"), (NL, "aware"), (NL, "naive")])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4)])
@pytest.mark.parametrize(
    "query", ["How many strong horns has a tiny cat?", "a chases b; chases", "If the fin is in the desert"]
)
def test_bm25_scores_are_lucene_s(texts, tokenizer, k1, b, query):
    retriever = BM25(tokenizer=tokenizer, k1=k1, b=b)
    wanted = lucene_bm25(query, texts, {"aware": identifier_aware, "naive": naive}[tokenizer], k1, b)
    found = retriever.scorer(IDS, texts)([query])[0]
    np.testing.assert_allclose(np.where(found == -np.inf, 0, found), wanted, atol=1e-8)
    assert max(wanted) > 0
    by_hand = [i for _, i in sorted((-s, int(i)) for s, i in zip(wanted, IDS, strict=True) if s > 0)]
    assert retriever.index(IDS, texts).search([query], 5)[0].ids.tolist() == by_hand


def test_naive_bm25_finds_nothing_in_fol_and_aware_bm25_does():
    query = "How many strong horns has a tiny cat?"
    assert len(BM25(tokenizer="naive").index(IDS, FOL).search([query], 5)[0].ids) == 0
    assert BM25().index(IDS, FOL).search([query], 1)[0].ids.tolist() == [40]


def test_rules_with_the_same_terms_tie_and_the_lower_id_wins_before_the_cut():
    texts = ["Chase(A, B) => In(B, Bridge)"] * 40
    ids = np.random.default_rng(0).permutation(40).astype(np.int32)
    hits = BM25().index(ids, texts).search(["who is on the bridge"], 3)[0]
    assert hits.ids.tolist() == [0, 1, 2]
    assert len(set(hits.scores.tolist())) == 1


def test_rules_tie_whatever_the_order_their_terms_add_up_in():
    """The same three weights, added in two orders, differ in the last bit; such rules must still tie."""
    filler = ["q q2"] * 2 + ["r t"] * 6
    texts = ["p q r", "t q2 s", *filler]
    ids = np.array([9, 4, *range(20, 28)], dtype=np.int32)
    query = "p t q q2 r s"
    by_hand = lucene_bm25(query, texts, naive)
    assert by_hand[0] > by_hand[1]
    assert by_hand[0] == pytest.approx(by_hand[1], abs=1e-12)
    hits = BM25(tokenizer="naive").index(ids, texts).search([query], 2)[0]
    assert hits.ids.tolist() == [4, 9]
    assert hits.scores[0] == hits.scores[1]


@settings(max_examples=200, deadline=None)
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


def test_ranking_does_not_depend_on_the_order_of_the_pool():
    order = np.random.default_rng(1).permutation(len(IDS))
    for retriever in (BM25(), Random()):
        ours = retriever.index(IDS, NL).search(["a chases b"], 5)[0]
        theirs = retriever.index(IDS[order], [NL[i] for i in order]).search(["a chases b"], 5)[0]
        assert ours.ids.tolist() == theirs.ids.tolist()


def test_random_is_uniform_keyed_by_query_and_the_same_in_every_pool():
    ids = np.arange(1000, dtype=np.int32)
    index = Random().index(ids, [""] * 1000)
    lists = [hits.ids for hits in index.search([f"question {i}" for i in range(300)], 1000)]
    assert not np.array_equal(lists[0], lists[1])
    assert not np.array_equal(
        Random(seed=1).index(ids, [""] * 1000).search(["question 0"], 1000)[0].ids, lists[0]
    )
    places = np.array([np.flatnonzero(ranked == 7)[0] for ranked in lists])
    # Mean of 300 uniform places in 0..999: 499.5 with standard error 16.7.
    assert abs(places.mean() - 499.5) < 4 * 16.7
    some = np.array([5, 17, 900, 7], dtype=np.int32)
    within = Random().index(some, [""] * 4).search(["question 0"], 4)[0].ids.tolist()
    assert within == [int(i) for i in lists[0] if i in set(some.tolist())]


def fake(name, order):
    """A retriever that ranks by a fixed list."""

    class Fixed(Retriever):
        def scorer(self, ids, texts):
            place = {rule: len(order) - i for i, rule in enumerate(order)}
            return lambda queries: np.array([[place.get(int(i), -math.inf) for i in ids]] * len(queries))

    Fixed.name = name
    return Fixed()


def test_rrf_by_hand():
    fused = RRF(parts=(fake("one", [1, 2, 3]), fake("two", [3, 4])), k=60, depth=100)
    hits = fused.index(np.arange(1, 7, dtype=np.int32), [""] * 6).search(["q"], 10)[0]
    wanted = {1: 1 / 61, 2: 1 / 62, 3: 1 / 63 + 1 / 61, 4: 1 / 62}
    assert hits.ids.tolist() == [3, 1, 2, 4]  # 2 and 4 tie: lower id first; 5 and 6 are in no list
    np.testing.assert_allclose(hits.scores, [wanted[i] for i in hits.ids.tolist()], atol=1e-11)


def test_rrf_looks_no_deeper_than_depth():
    fused = RRF(parts=(fake("one", [1, 2, 3]), fake("two", [3, 2])), depth=1)
    hits = fused.index(np.arange(1, 4, dtype=np.int32), [""] * 3).search(["q"], 10)[0]
    assert hits.ids.tolist() == [1, 3]


def fused_here(lists, k):
    """RRF as its paper writes it: the sum over lists of 1 / (k + place)."""
    scores = Counter()
    for ranked in lists:
        scores.update({rule: 1 / (k + place) for place, rule in enumerate(ranked, 1)})
    return scores


def fused_by_ranx(lists, k):
    from ranx import Run
    from ranx.fusion.rrf import rrf

    runs = [Run({"q": {str(i): 1000.0 - n for n, i in enumerate(ranked)}}) for ranked in lists]
    return {int(rule): score for rule, score in rrf(runs, k=k).to_dict()["q"].items()}


def recall_here(found, gold, cut):
    return len(set(found[:cut]) & set(gold)) / len(gold)


def recall_by_ranx(found, gold, cut):
    from ranx import Qrels, Run, evaluate

    run = Run({"q": {str(i): 1000.0 - n for n, i in enumerate(found)}})
    return evaluate(Qrels({"q": {str(i): 1 for i in gold}}), run, f"recall@{cut}")


# ranx compiles for a minute; where nothing is compiled the same test has references of three lines.
@pytest.mark.parametrize(
    ("fused", "recall"),
    [
        pytest.param(fused_here, recall_here, id="by hand"),
        pytest.param(fused_by_ranx, recall_by_ranx, id="ranx", marks=pytest.mark.slow),
    ],
)
def test_rrf_and_recall_against_another_implementation(fused, recall):
    from ruleworld_data.scoring import union_recall
    from rwbench.score.scoring import RECALL_BUDGETS

    rng = np.random.default_rng(3)
    for _ in range(20):
        lists = [rng.permutation(500)[:100].tolist() for _ in range(2)]
        found = fuse([Hits(np.array(part, dtype=np.int32), np.zeros(100)) for part in lists], 60)
        assert dict(zip(found.ids.tolist(), found.scores, strict=True)) == pytest.approx(
            fused(lists, 60), abs=1e-9
        )
        scores = np.full(500, -np.inf)
        scores[found.ids] = found.scores
        hits = rank(np.arange(500, dtype=np.int32), scores, 100).ids.tolist()
        gold = rng.permutation(500)[:8].tolist()
        # With 8 gold rules Recall@1 is Recall@8.
        for name, cut in (("10", 10), ("100", 100), ("1", 8)):
            assert union_recall([hits], [gold], RECALL_BUDGETS[name]) == pytest.approx(
                recall(hits, gold, cut), abs=1e-9
            )


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match="unknown tokenizer 'awear'"):
        BM25(tokenizer="awear")
    with pytest.raises(ValueError, match=r"b=1\.5"):
        BM25(b=1.5)
    with pytest.raises(ValueError, match="at least two parts"):
        RRF(parts=(BM25(),))
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        BM25().index(IDS, NL).search(["q"], 0)
