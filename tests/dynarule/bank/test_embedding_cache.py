"""Embeddings on disk: no text is encoded twice, by any process, and what was damaged is encoded again."""

import multiprocessing
import shutil

import pytest
import torch
from dynarule.bank import EmbeddingCache, embedding_cache

from dynarule import RuleBank


class Counting:
    """An encoder that counts what it is asked."""

    fingerprint = "counting"

    def __init__(self):
        self.seen = []

    def __call__(self, texts):
        self.seen += list(texts)
        return torch.tensor([[len(t), *(float(ord(c)) for c in t[:5].ljust(5))] for t in texts])


def test_the_cache_encodes_new_texts_only_also_in_the_next_process(tmp_path):
    first, second = Counting(), Counting()
    texts = ["bb", "a", "bb"]
    assert torch.equal(EmbeddingCache(first, tmp_path)(texts), Counting()(texts))
    again = EmbeddingCache(second, tmp_path)
    assert torch.equal(again(["ccc", "a", "bb"]), Counting()(["ccc", "a", "bb"]))
    assert first.seen == ["bb", "a"] and second.seen == ["ccc"]
    assert RuleBank.from_texts(["If x, y.", "If z, y."], None, again).encoder == "counting"
    assert second.seen[1:] == ["If x, y.", "If z, y.", "y"]


def test_caches_of_two_encoders_do_not_mix_even_where_a_file_was_copied(tmp_path):
    mine, other = EmbeddingCache(Counting(), tmp_path), Counting()
    mine(["a"])
    theirs = EmbeddingCache(other, tmp_path, fingerprint="other")
    theirs(["b"])
    shutil.copy(mine.path, theirs.path)
    theirs(["a"])
    assert other.seen == ["b", "a"]
    with pytest.raises(ValueError, match="no fingerprint"):
        EmbeddingCache(lambda texts: texts, tmp_path)


def count_in(folder):
    counter = Counting()
    EmbeddingCache(counter, folder)([f"text {i}" for i in range(50)])
    return len(counter.seen)


def test_two_processes_share_the_work(tmp_path, monkeypatch):
    """What another process encodes while one waits for its turn is not encoded again."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sum(pool.map(count_in, [tmp_path, tmp_path])) == 50
    late, turn = Counting(), embedding_cache.changing

    def other_was_first(folder):
        monkeypatch.setattr(embedding_cache, "changing", turn)
        EmbeddingCache(Counting(), tmp_path)(["a", "b"])
        return turn(folder)

    monkeypatch.setattr(embedding_cache, "changing", other_was_first)
    assert torch.equal(EmbeddingCache(late, tmp_path)(["a", "b", "c"]), Counting()(["a", "b", "c"]))
    assert late.seen == ["c"]


def test_a_bounded_cache_forgets_the_oldest(tmp_path):
    encode = Counting()
    cache = EmbeddingCache(encode, tmp_path, most=2)
    rows = cache(["a", "b", "c"])
    assert torch.equal(cache(["c", "b"]), rows[[2, 1]]) and len(encode.seen) == 3
    assert torch.equal(cache(["a"]), rows[:1]) and encode.seen[3:] == ["a"]


def test_a_damaged_embedding_is_encoded_again_and_a_damaged_file_is_named(tmp_path):
    texts = [letter * 100 for letter in "abcdefghij"]
    cache, encode, healed = (EmbeddingCache(Counting(), tmp_path) for _ in range(3))
    expected = cache(texts)
    data = bytearray(cache.path.read_bytes())
    data[data.index(torch.tensor([100.0, 98.0]).numpy().tobytes()) + 2] ^= 64  # of "b" * 100
    cache.path.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="encoding 1 texts again that are damaged in"):
        assert torch.equal(encode(texts), expected)
    assert encode.encode.seen == ["b" * 100]
    assert torch.equal(healed(texts), expected) and healed.encode.seen == []
    for damaged in (bytes(data[: len(data) // 2]), b"no database at all" * 1000):
        cache.path.write_bytes(damaged)
        with pytest.raises(OSError, match=r"cannot read the embedding cache .* delete it"):
            cache(texts)
        assert cache.path.read_bytes() == damaged
