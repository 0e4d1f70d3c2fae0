"""Embeddings on disk: no text is encoded twice, by any process."""

import multiprocessing
import shutil
import sqlite3
from contextlib import closing

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


def test_a_damaged_file_is_named(tmp_path):
    cache = EmbeddingCache(Counting(), tmp_path)
    cache(["a", "b"])
    for damaged in (cache.path.read_bytes()[:1000], b"no database at all" * 1000):
        cache.path.write_bytes(damaged)
        with pytest.raises(OSError, match=r"cannot read the embedding cache .* delete it"):
            cache(["a"])
        assert cache.path.read_bytes() == damaged


def test_a_cache_of_an_older_version_is_read_and_written(tmp_path):
    """Its rows have a third column."""
    cache = EmbeddingCache(Counting(), tmp_path)
    rows = cache(["a"])
    with closing(sqlite3.connect(cache.path)) as database, database:
        database.execute("ALTER TABLE embeddings ADD COLUMN checksum INTEGER")
    assert torch.equal(cache(["a", "b"])[:1], rows) and cache.encode.seen == ["a", "b"]
