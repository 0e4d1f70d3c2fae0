"""The bank: built from anything, changed while serving, written whole or not at all; rows stay with their rules."""

import copy
import json
import math
import pickle
import random

import pytest
import torch
from dynarule.bank import storage
from dynarule.bank.clauses import parts_of
from dynarule.bank.encoders import PREMISE_KEYS
from dynarule.bank.rows import largest
from dynarule.projection import dot_rows
from safetensors import safe_open
from safetensors.torch import save_file

from dynarule import RuleAdapter, RuleBank, dynarule_config

from ..conftest import WIDTH, FakeEncoder

encode = FakeEncoder()


def make(count, start=0, prefix="r"):
    """Rules whose embeddings can be computed again from their texts."""
    texts = [f"If A is {prefix}{i}, it has {i} horns." for i in range(start, start + count)]
    return RuleBank.from_texts(texts, None, encode, [f"{prefix}{i}" for i in range(start, start + count)])


ALIKE = [("caf\u00e9", "cafe\u0301"), ("w1", "w\u200b1"), ("w1", "\U000e0041w1"), ("w 1", " w\u00a0 1\ufe0f")]
"""Texts that a reader does not tell apart."""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ids": ["a", "a", "b"]}, "id 'a' comes twice"),
        ({"texts": ["x", " ", "z"]}, "rule 'b' has no text"),
        ({"texts": ["x", "\u200b\U000e0041\u2060\u3164", "z"]}, "rule 'b' has no text"),
        ({"texts": ["x", None, "z"]}, "rule 'b' has no text, got None"),
        ({"texts": ["x", "y", "x"]}, "rules 'a' and 'c' are the same text"),
        *(({"ids": [one, other, "b"]}, "comes twice") for one, other in ALIKE),
        *(({"texts": [one, "y", other]}, "rules 'a' and 'c' are the same text") for one, other in ALIKE),
        ({"texts": "xyz"}, "must be a list of texts, got the one text 'xyz'"),
        ({"texts": ["x"]}, "3 ids but 1 texts"),
        ({"keys_UP": torch.zeros(2, 4)}, "as many as ids"),
    ],
)
def test_bad_banks_are_refused(change, complaint):
    given = {"keys_UP": torch.zeros(3, 4), "values_VP": torch.zeros(3, 4)}
    with pytest.raises(ValueError, match=complaint):
        RuleBank(**(given | {"ids": ["a", "b", "c"], "texts": ["x", "y", "z"]} | change))


def test_a_refused_change_changes_nothing():
    """Under another id a text would take two of the K places; once it is gone, it may come back."""
    bank = RuleBank.from_texts(["a", "b", "caf\u00e9"], None, encode, ["1", "2", "caf\u00e9"])

    def of(texts, ids, encoder=bank.encoder):
        return RuleBank(encode(texts), encode(texts), ids, texts, encoder)

    before = bank.ids, bank.texts, bank.keys, bank.version
    for change, message in (
        (lambda: bank.add(of(["x", "b"], ["4", "5"])), "rules '2' and '5' are the same text"),
        (lambda: bank.replace(of(["b"], ["1"])), "rules '2' and '1' are the same text"),
        (lambda: bank.add(of(["x"], ["2"])), "'2' is in the bank already"),
        (lambda: bank.add(of(["x"], ["cafe\u0301"])), "is in the bank already"),
        (lambda: bank.add(of(["cafe\u0301"], ["4"])), "and '4' are the same text"),
        (lambda: bank.remove([1]), "no rule 1 in"),
        (lambda: bank.replace(of(["x", "y"], ["1", "new"])), "no rule 'new'"),
        (lambda: bank.remove(["1", "gone"]), "no rule 'gone'"),
        (lambda: bank.add(of(["x"], ["4"], "another")), "encode them with the bank's encoder"),
    ):
        with pytest.raises((ValueError, KeyError), match=message):
            change()
        assert (bank.ids, bank.texts, bank.keys, bank.version) == before
    bank.replace(of(["b", "a"], ["1", "2"]))  # what one leaves, another may take
    assert bank.texts == ("b", "a", "caf\u00e9")
    bank.remove(["cafe\u0301"])
    bank.add(of(["c"], ["6"]))
    assert bank.ids == ("1", "2", "6")


def test_an_added_rule_copies_the_others_once(monkeypatch):
    """Twice, and written, an added rule among 20,000 took a second of CPU."""
    bank, copied = make(9), []
    bank.add(make(1, start=20))
    cat, found = torch.cat, bank._row_of
    monkeypatch.setattr(torch, "cat", lambda parts, *more: copied.append(cat(parts, *more)) or copied[-1])
    bank.add(make(1, start=9))
    held = {bank.keys.different.data_ptr(), bank.values.different.data_ptr()}
    assert held <= {tensor.data_ptr() for tensor in copied} and len(bank.keys) == 11
    assert bank._row_of is found and bank.row("r9") == 10  # nor are the others' ids read again


def test_what_belongs_together_is_changed_together_or_refused():
    """A text that was put in place of another was read, and found by the other's embedding."""
    bank = make(3)
    assert isinstance(bank.ids, tuple) and isinstance(bank.texts, tuple)
    with pytest.raises(AttributeError):
        bank.texts = ["a", "b", "c"]
    for dtype in (torch.int32, torch.complex64, torch.float8_e4m3fn):
        with pytest.raises(ValueError, match="must be fp32, bf16 or fp16"):
            bank.to("cpu", dtype)
    large = RuleBank(torch.ones(1, 4), torch.full((1, 4), 1e6), ["a"], ["x"])
    with pytest.raises(ValueError, match="value embedding of rule 'a' is not finite"):
        large.to("cpu", torch.float16)
    assert (large.dtype, bank.dtype, bank.ids) == (torch.float32, torch.float32, ("r0", "r1", "r2"))
    for message, call in (
        ("rules come as a RuleBank, got a list", lambda: bank.add(["If a, b."])),
        ("3 rules, 1 premises", lambda: RuleBank.from_texts(bank.texts, None, encode, premises=["a"])),
        (r"encode must be a function.*open_encoder", lambda: RuleBank.from_texts(["a"], None, "minilm")),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    numpy = RuleBank.from_texts(bank.texts, None, lambda texts: encode(texts).numpy(), bank.ids)
    assert torch.equal(numpy.keys_MP, bank.keys_MP)


def test_a_bank_never_writes_to_tensors_it_was_given():
    """Two banks may be made from one tensor of embeddings, or of rows of them."""
    given, rows = encode(["a", "b"]), torch.tensor([0, 1, 1, 0], dtype=torch.int32)
    copy = given.clone()
    first = RuleBank(given, given, ["1", "2"], ["a", "b"])
    second = RuleBank(first.keys_MP, first.values_MP, first.ids, first.texts)
    second.replace(RuleBank.from_texts(["z"], None, encode, ["1"], encoder=""))
    second.to("cpu").replace(RuleBank.from_texts(["y"], None, encode, ["2"], encoder=""))
    assert torch.equal(first.keys_MP, copy) and not torch.equal(second.keys_MP, copy)
    one, other = (
        RuleBank(given, given, list("wxyz"), list("abcd"), value_rows_M=rows, key_rows_M=rows) for _ in "12"
    )
    one.remove(["w", "x"])
    assert torch.equal(given, copy) and rows.tolist() == [0, 1, 1, 0]
    assert torch.equal(other.values_MP, given[rows.long()])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda bank: pickle.loads(pickle.dumps(bank))])
def test_a_copy_holds_the_same_rules_and_changes_alone(copied, tiny_model):
    """Of a bank that has served, too: what it computed for a model's layers stays with it."""
    bank = RuleBank.from_texts(["if a then b", "if c then b"], None, encode, premises=["a or so", None])
    projection = RuleAdapter(tiny_model("llama"), dynarule_config(bank.encoder_dim))[0]
    bank.inverse_scale(projection)
    other = copied(bank)
    assert (other.ids, other.texts, other.parts) == (bank.ids, bank.texts, bank.parts)
    assert torch.equal(other.keys_MP, bank.keys_MP) and torch.equal(other.values_MP, bank.values_MP)
    assert torch.equal(other.inverse_scale(projection), bank.inverse_scale(projection))
    other.remove(["0"])
    assert bank.ids == ("0", "1") and "if a then b" in bank.parts


def test_inverse_scales_follow_changes_and_compute_only_changed_rows(tiny_model, monkeypatch):
    projection = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))[1]
    torch.nn.init.normal_(projection.k.bias)
    bank = make(50)
    whole = type(projection).inverse_scale
    counts = []
    monkeypatch.setattr(
        type(projection), "inverse_scale", lambda self, rows: counts.append(len(rows)) or whole(self, rows)
    )
    bank.inverse_scale(projection)
    bank.add(make(3, 50))
    bank.remove(["r7", "r52"])
    bank.replace(RuleBank.from_texts(["other"], None, encode, ["r9"]))
    with torch.inference_mode():
        got = bank.inverse_scale(projection)
    bank.add(make(1, 60))
    got = bank.inverse_scale(projection)
    assert torch.allclose(got, whole(projection, bank.keys_MP), rtol=1e-5)
    assert counts[0] == 50 and sum(counts[1:]) < 10
    with torch.no_grad():
        projection.k.weight.mul_(2.0)
    assert torch.allclose(bank.inverse_scale(projection), whole(projection, bank.keys_MP), rtol=1e-5)
    bank.keys_MP.mul_(torch.linspace(0.1, 5, len(bank))[:, None])  # of a user who does not know better
    assert torch.allclose(bank.inverse_scale(projection), whole(projection, bank.keys_MP), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_saved_is_loaded_and_changed_without_touching_the_file(tmp_path, dtype):
    odd = ["line\nbreak", "caf\u00e9 \u2028 \u2192", 'quo"te']
    bank = make(30).to("cpu", dtype)
    bank.add(RuleBank.from_texts(odd, None, encode, odd))
    bank.remove(["r3"])
    bank.save(tmp_path / "bank")
    before = (tmp_path / "bank" / "bank.safetensors").read_bytes()
    loaded = RuleBank.load(tmp_path / "bank")
    assert (loaded.ids, loaded.texts, loaded.encoder) == (bank.ids, bank.texts, "minilm@1")
    assert loaded.keys_MP.dtype == dtype and torch.equal(loaded.keys_MP, bank.keys_MP)
    assert torch.equal(loaded.values_MP, bank.values_MP)
    loaded.add(make(5, 100))
    loaded.replace(RuleBank.from_texts(["other"], None, encode, ["r5"]))
    loaded.remove(["r7"])
    assert len(loaded.ids) == len(set(loaded.ids)) == 36
    assert [loaded.row(name) for name in loaded.ids] == list(range(36))
    assert torch.equal(loaded.keys_MP, encode(loaded.texts).to(dtype))
    assert torch.equal(loaded.values_MP, encode([parts_of(t)[1] for t in loaded.texts]).to(dtype))
    assert (tmp_path / "bank" / "bank.safetensors").read_bytes() == before
    RuleBank(torch.zeros(0, 4), torch.zeros(0, 4), [], []).save(tmp_path / "empty")
    assert len(RuleBank.load(tmp_path / "empty")) == 0


def rewrite(folder, rules=None, metadata=None, true_hash=False, **tensors):
    """Write a bank's file again, with other contents."""
    path = folder / "bank.safetensors"
    with safe_open(path, "pt") as file:
        held = {name: file.get_tensor(name).clone() for name in file.keys()} | tensors  # noqa: SIM118
        stated = file.metadata() | (metadata or {})
    if rules is not None:
        held["rules"] = torch.frombuffer(bytearray(rules.encode()), dtype=torch.uint8)
    if true_hash:  # by someone who knows how
        stated["sha256"] = storage.hash_tensors([held[name] for name in storage.TENSORS])
    save_file(held, path, stated)


NUMBERS = [str(i) for i in range(10)]


def of_bytes(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def of_rules(value):
    return lambda path: rewrite(
        path.parent, value if isinstance(value, str) else json.dumps(value), true_hash=True
    )


def of_tensors(**tensors):
    return lambda path: rewrite(path.parent, true_hash=True, **tensors)


def ones(width, dtype):
    return {side: torch.ones(10, width).to(dtype) for side in ("keys", "values")}


DAMAGE = [
    (of_bytes(lambda data: data[:-100]), "damaged"),
    (of_bytes(lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]), "it was edited"),
    (lambda path: rewrite(path.parent, keys=torch.zeros(9, WIDTH)), "it was edited"),
    (lambda path: rewrite(path.parent, metadata={"format": "3"}), "format '3', this version reads"),
    # By someone who knows how to hash what is no bank.
    (of_rules([["a"] * 10, [None] * 10]), "damaged"),
    (of_rules([["a"], ["b"]]), "damaged"),
    (of_rules(["0123456789", "abcdefghij"]), "no lists"),
    (of_rules("[" * 100_000), "damaged"),
    (of_rules([NUMBERS, [" "] * 10]), "has no text"),
    (of_rules([NUMBERS, [f"{i} \ud800" for i in range(10)]]), "half a surrogate pair"),
    *(
        (of_rules([NUMBERS, NUMBERS, {"3": pair}]), "premise and conclusion|surrogates")
        for pair in ("ab", None, ["a"], ["a", 1], ["a", " "], ["\ud800", "b"], {"a": 1, "b": 2})
    ),
    *((of_rules([NUMBERS, NUMBERS, odd]), "damaged") for odd in ({"10": ["a", "b"]}, [], 3)),
    (of_rules([NUMBERS, NUMBERS, {}, {}]), "damaged"),
    (of_tensors(**ones(3, torch.int64)), "fp32, bf16 or fp16, both alike, .* got torch.int64"),
    (of_tensors(keys=torch.ones(10, WIDTH).half()), "got torch.float16 and torch.float32"),
    (of_tensors(keys=torch.full((10, WIDTH), torch.inf)), "the key embedding of rule 'r0' is not finite"),
    (of_tensors(keys=torch.full((10, WIDTH), 1e30)), "the key embedding of rule 'r0' is not finite, or too"),
    (
        of_tensors(value_rows=torch.full((10,), 10, dtype=torch.int32)),
        "value rows must be whole numbers, 0 to 9",
    ),
    (of_tensors(key_rows=torch.full((10,), -1, dtype=torch.int32)), "key rows must be whole numbers, 0 to 9"),
    (of_tensors(key_rows=torch.zeros(10)), "key rows must be whole numbers, 0 to 9"),
]


@pytest.mark.parametrize(("damage", "complaint"), DAMAGE)
def test_what_is_no_bank_is_one_line(tmp_path, damage, complaint):
    make(10).save(tmp_path)
    damage(tmp_path / "bank.safetensors")
    with pytest.raises(ValueError, match=complaint) as caught:
        RuleBank.load(tmp_path)
    assert "build or save it again" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_bank_is_saved_where_there_is_none_or_one_to_replace(tmp_path):
    folder = tmp_path / "bank"
    make(5).save(folder)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        make(6).save(folder)
    make(6).save(folder, overwrite=True)
    assert len(RuleBank.load(folder)) == 6
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".lock", "bank", "bank.safetensors"]
    (tmp_path / "plain").touch()  # as readable for others as any file
    assert (folder / "bank.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    with pytest.raises(ValueError, match="not a rule bank"):
        make(5).save(tmp_path / "notes", overwrite=True)
    with pytest.raises(FileNotFoundError, match=r"RuleBank\.save"):
        RuleBank.load(tmp_path / "notes")


def test_rules_of_one_premise_share_a_key_and_changes_keep_rows_with_their_rules(tiny_model, near, tmp_path):
    """Such a bank is the one that holds a key and a value for every rule, in order; so is what is saved."""
    fingerprint = "words" + PREMISE_KEYS
    read = []

    def made(numbers, shared):
        texts = [f"If A is s{i % 7}, it has {i // 3} horns." for i in numbers]
        names = [str(i) for i in numbers]
        if shared:
            return RuleBank.from_texts(
                texts, None, lambda few: read.append(few) or encode(few), names, fingerprint
            )
        keys = encode([parts_of(text)[0] for text in texts])
        return RuleBank(keys, encode([parts_of(text)[1] for text in texts]), names, texts, fingerprint)

    projection = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))[1]
    query_BHD = torch.randn(5, projection.k.out_features // projection.head_dim, projection.head_dim)

    def same(one, other):
        for bank in (one, other):
            assert list(zip(bank.ids, bank.texts, strict=True)) == list(expected.items())
            assert torch.equal(bank.keys_MP, encode([parts_of(text)[0] for text in expected.values()]))
            assert torch.equal(bank.values_MP, encode([parts_of(text)[1] for text in expected.values()]))
            assert [bank.row(name) for name in bank.ids] == list(range(len(bank)))
        rows = torch.randperm(len(one))[:4]
        assert torch.equal(one.keys[rows], other.keys[rows])
        allowed_BM = torch.rand(5, len(one)) < 0.7
        for allowed in (None, allowed_BM):
            (found, _), (wanted, _) = (
                each.search(projection, query_BHD, 3, allowed) for each in (one, other)
            )
            assert near(found, wanted, units=500)

    one, other = (made(range(60), shared) for shared in (True, False))
    assert len(one.keys.different) == 7 and all(len(few) == len(set(few)) for few in read)
    draw, expected = random.Random(0), dict(zip(other.ids, other.texts, strict=True))
    for step in range(15):
        some = draw.sample(one.ids, 5)
        fresh = range(100 + 10 * step, 105 + 10 * step)
        for bank, shared in ((one, True), (other, False)):
            new = made(fresh, shared)
            if step % 3 == 0:
                bank.add(new)
            elif step % 3 == 1:
                bank.remove(some)
            else:
                bank.replace(RuleBank(new.keys_MP, new.values_MP, some, new.texts, fingerprint))
        if step % 3 == 1:
            expected = {name: text for name, text in expected.items() if name not in some}
        else:
            expected |= dict(zip(new.ids if step % 3 == 0 else some, new.texts, strict=True))
        same(one, other)
        assert len(one.keys.different) <= 2 * len(one) + 5
    one.save(tmp_path / "bank")
    saved = RuleBank.load(tmp_path / "bank")
    same(saved, other)
    assert len(saved.keys.different) == len(saved.keys.at(torch.arange(len(saved))).unique()) < len(saved)
    other.add(made(range(1000, 1005), True))  # one that shares none takes one that does
    one.add(made(range(1000, 1005), False))
    expected |= dict(zip(other.ids[-5:], other.texts[-5:], strict=True))
    same(one, other)


@pytest.mark.parametrize("fingerprint", ["characters", "characters" + PREMISE_KEYS])
def test_each_different_text_is_embedded_once_block_by_block(fingerprint, monkeypatch):
    monkeypatch.setattr("dynarule.bank.embedding_cache.BLOCK", 8)
    texts = [f"If A is w{i % 4}, it has {i // 2} horns." for i in range(20)]
    blocks, counts = [], []
    options = {
        "encoder": fingerprint,
        "dtype": torch.float16,
        "progress": lambda *count: counts.append(count),
    }
    bank = RuleBank.from_texts(texts, None, lambda block: blocks.append(block) or encode(block), **options)
    read = [text for block in blocks for text in block]
    keys = texts if fingerprint == "characters" else [parts_of(text)[0] for text in texts]
    assert len(read) == len(set(read)) == len({*keys, *(parts_of(text)[1] for text in texts)})
    assert max(map(len, blocks)) == 8 and counts[-1] == (len(read), len(read)) and len(counts) == len(blocks)
    assert len(bank.keys.different) == len(set(keys)) and len(bank.values.different) == 10
    assert torch.equal(bank.keys_MP, encode(keys).half())
    assert torch.equal(bank.values_MP, encode([parts_of(text)[1] for text in texts]).half())


def test_an_embedding_that_does_not_fit_its_dtype_is_named():
    with pytest.raises(
        ValueError, match=r"the embedding of 'If b, c.' does not fit torch.float16; use --dtype fp32"
    ):
        RuleBank.from_texts(
            ["If a, c.", "If b, c."],
            None,
            lambda few: torch.tensor([[1.0], [1e6], [1.0]]),
            dtype=torch.float16,
        )
    with pytest.raises(ValueError, match=r"must return \(3, width\) for 3 texts, got \(1, 2\)"):
        RuleBank.from_texts(["If a, c.", "If b, c."], None, lambda few: torch.zeros(1, 2))


# Search is sorting all scores.


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_lose_nothing_of_the_query(dtype, device, near):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(3000, 512, generator=generator).to(dtype)
    direction = torch.randn(3, 512, generator=generator)
    expected = direction.double() @ keys.double().T
    with torch.profiler.profile() as done:
        got = dot_rows(direction.to(device), keys.to(device)).cpu()
    # one buffer for all tiles
    assert device == "cuda" or "aten::_to_copy" not in {each.name for each in done.events()}
    # What two bf16 numbers leave of an fp32 one is 2^-17 of it, 64 units.
    assert near(got, expected, units=64 if device == "cpu" else 128)
    # what it would be otherwise
    assert not near((direction.to(dtype) @ keys.T).float(), expected, units=256)


@pytest.mark.parametrize("size", [1.0, 1e-2])
@torch.no_grad()
def test_a_query_in_encoder_space_scores_as_projected_keys_do(size, bank, tiny_model, near):
    """Keys as small as the norm's epsilon too."""
    projection = RuleAdapter(tiny_model("qwen3"), dynarule_config(WIDTH))[1]
    torch.nn.init.normal_(projection.k.bias)
    for parameter in projection.k.parameters():
        parameter.mul_(size)
    query = torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(0))
    naive = torch.einsum("bhd,mhd->bm", query, projection.keys(bank.keys_MP).unflatten(-1, (4, 16)))
    naive /= 4 * math.sqrt(16)
    scores, rows = bank.search(projection, query, 5)
    assert near(scores, naive.topk(5).values) and torch.equal(rows, naive.topk(5).indices)


@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("total", [900, 1024, 5_000])
def test_the_largest_of_many_scores_are_those_of_topk(count, total, monkeypatch):
    monkeypatch.setattr("dynarule.bank.rows.BLOCKED", 800)
    monkeypatch.setattr("dynarule.bank.rows.BLOCK", 16)
    scores = torch.randn(3, total).masked_fill(torch.rand(3, total) < 0.3, -torch.inf)
    for some in (scores, scores.round(decimals=1)):  # with many ties
        values, places = largest(some, count)
        assert torch.equal(values, some.topk(count, -1).values)
        assert torch.equal(some.gather(1, places), values)
        assert all(len(set(row)) == count for row in places.tolist())
