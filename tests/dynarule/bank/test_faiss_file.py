"""An index on disk: found again what it was, never that of another bank, and nothing of a bad file reaches faiss."""

import hashlib
import json

import numpy as np
import pytest
import torch
from dynarule.bank import ExactIndex, FaissIndex, changed_bank, faiss_file, use_index
from dynarule.cli.app import app
from typer.testing import CliRunner

from dynarule import RuleBank

faiss = pytest.importorskip("faiss")
WIDTH, COUNT = 16, 2_500


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved bank of clustered unit vectors in fp16."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(30, WIDTH, generator=generator)
    keys = centres[torch.randint(30, (COUNT,), generator=generator)]
    keys = torch.nn.functional.normalize(keys + torch.randn(COUNT, WIDTH, generator=generator), dim=-1).half()
    names = [f"r{number}" for number in torch.randperm(COUNT, generator=generator).tolist()]
    folder = tmp_path_factory.mktemp("bank") / "bank"
    RuleBank(keys, -keys, names, [f"text of {name}" for name in names], "encoder").save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    RuleBank.load(saved).save(tmp_path / "bank")
    return tmp_path / "bank"


def queries(bank, count=16):
    generator = torch.Generator().manual_seed(1)
    close = bank.keys_MP[torch.randint(len(bank), (count,), generator=generator)].float()
    factor = 1 + 0.1 * torch.rand(len(bank), generator=generator)
    return close + 0.2 * torch.randn(close.shape, generator=generator), torch.zeros(count), factor


def opened(bank, place, **changes):
    return FaissIndex(bank, "fastscan", folder=place, **{"candidates": 400, "nprobe": 1_000} | changes)


def state(folder):
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_an_index_on_disk_is_that_in_memory_and_reading_it_writes_nothing(saved, tmp_path):
    bank = RuleBank.load(saved)
    query = queries(bank)
    rows = opened(bank, tmp_path / "index").search(bank, *query, 10)[1]
    assert (rows == ExactIndex().search(bank, *query, 10)[1]).float().mean() > 0.95
    before = state(tmp_path)
    assert torch.equal(opened(RuleBank.load(saved), tmp_path / "index").search(bank, *query, 10)[1], rows)
    assert torch.equal(opened(bank, None).search(bank, *query, 10)[1], rows)
    assert state(tmp_path) == before
    assert faiss.read_index(str(tmp_path / "index" / faiss_file.INDEX)).ntotal == COUNT


def test_rules_that_come_and_go_are_seen_at_once(saved, tmp_path):
    bank = RuleBank.load(saved)
    index = opened(bank, tmp_path)
    direction, offset, factor = queries(bank)
    first = bank.ids[int(index.search(bank, direction, offset, factor, 1)[1][0, 0])]
    bank.remove([first])
    best = torch.nn.functional.normalize(direction[:1], dim=-1)
    bank.add(RuleBank(best, best, ["new"], ["new rule"], "encoder"))
    factor = torch.ones(len(bank))
    rows = index.search(bank, direction, offset, factor, 5)[1]
    names = [[bank.ids[row] for row in best] for best in rows.tolist()]
    assert names[0][0] == "new" and all(first not in best for best in names)
    assert (rows == ExactIndex().search(bank, direction, offset, factor, 5)[1]).float().mean() > 0.9
    with pytest.raises(ValueError, match="of a bank as it was loaded"):
        opened(bank, tmp_path)


def test_serving_takes_the_index_beside_the_bank_until_the_bank_changes(folder, monkeypatch):
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 1_000)
    assert use_index(RuleBank.load(folder)).kind == "ivf_sq8"
    assert CliRunner().invoke(app, ["bank", "index", str(folder)]).exit_code == 0
    bank = RuleBank.load(folder).to("cpu", torch.float32)  # as the model's dtype asks for
    assert use_index(bank).kind == "fastscan"
    query = queries(bank)
    rows = bank.index.search(bank, *query, 10)[1]
    assert (rows == ExactIndex().search(bank, *query, 10)[1]).float().mean() > 0.9
    bank.remove(bank.ids[:1])  # what is on disk is of another bank now
    assert use_index(bank).kind == "ivf_sq8"
    with changed_bank(folder) as bank:
        bank.remove(bank.ids[:1])
    assert not (folder / "index").exists()


def test_the_index_of_another_bank_is_made_anew(saved, tmp_path):
    bank = RuleBank.load(saved)
    opened(bank, tmp_path / "index")
    bank.remove(bank.ids[:1])
    bank.save(tmp_path / "other")
    other = RuleBank.load(tmp_path / "other")
    assert not faiss_file.is_current(other, tmp_path / "index")
    opened(other, tmp_path / "index")
    assert faiss_file.is_current(other, tmp_path / "index")


def write(place, data, sign=True):
    """Put another file in the index's place; whoever made it could hash it, too."""
    (place / faiss_file.INDEX).write_bytes(data)
    facts = json.loads((place / faiss_file.FACTS).read_text())
    if sign:
        facts["sha256"] = hashlib.sha256(data).hexdigest()
    (place / faiss_file.FACTS).write_text(json.dumps(facts))


def other_index(bank, width=WIDTH, metric=faiss.METRIC_INNER_PRODUCT, kind="PQ4x4", drop=0):
    nlist = json.loads((bank / faiss_file.FACTS).read_text())["nlist"]
    index = faiss.index_factory(width, f"IVF{nlist},{kind}", metric)
    index.by_residual = False
    rows = np.random.default_rng(0).random((COUNT, width), np.float32)
    index.train(rows)
    index.add(rows[drop:])
    return faiss.serialize_index(index).tobytes()


def at_lists(data, change):
    """Change the numbers, of 8 bytes each, that follow the head of the lists."""
    start = data.index(b"ilar")
    words = np.frombuffer(data[start + 24 :], np.uint64, (len(data) - start - 24) // 8).copy()
    change(words)
    return data[: start + 24] + words.tobytes() + data[start + 24 + words.nbytes :]


def swap_sizes(words):  # as many rules in all, but codes are read as rows and rows as codes
    words[1], words[2] = words[1] + words[2], 0


def without_finite_centroid(data):
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    return data.replace(
        index.quantizer.reconstruct(0).tobytes(), np.full(WIDTH, np.nan, np.float32).tobytes()
    )


def at(data, place, value):
    return data[:place] + value + data[place + len(value) :]


BAD_FILES = {
    "another metric": lambda place, data: other_index(place, metric=faiss.METRIC_L2),
    "another width": lambda place, data: other_index(place, width=WIDTH // 2, kind="PQ2x4"),
    "another kind": lambda place, data: other_index(place, kind="SQ8"),
    "fewer rules": lambda place, data: other_index(place, drop=1),
    "no index": lambda place, data: b"x" * 1_000,
    "empty": lambda place, data: b"",
    "cut": lambda place, data: data[:-8],
    "more": lambda place, data: data + b"\0" * 8,
    "far more": lambda place, data: data + b"\0" * 1_000_000,
    "width": lambda place, data: at(data, 4, (2**31 - 1).to_bytes(4, "little")),
    "count": lambda place, data: at(data, 8, (2**62).to_bytes(8, "little")),
    "number of lists": lambda place, data: at_lists(data, lambda words: words.__setitem__(0, 2**60)),
    "size of a list": lambda place, data: at_lists(data, lambda words: words.__setitem__(1, 2**61)),
    "sizes": lambda place, data: at_lists(data, swap_sizes),
    "a row twice": lambda place, data: data[:-8] + data[-16:-8] if data[-16:-8] != data[-8:] else b"",
    "a row that is not there": lambda place, data: data[:-8] + COUNT.to_bytes(8, "little"),
    "not finite": lambda place, data: without_finite_centroid(data),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_file_that_is_not_this_index_never_reaches_faiss(what, saved, tmp_path, monkeypatch):
    bank = RuleBank.load(saved)
    opened(bank, tmp_path)
    data = (tmp_path / faiss_file.INDEX).read_bytes()
    bad = BAD_FILES[what](tmp_path, data)
    assert bad != data
    monkeypatch.setattr(faiss, "deserialize_index", None)
    for sign in (False, True):
        write(tmp_path, bad, sign)
        with pytest.raises(ValueError, match=r"is damaged \(.*make it again: dynarule bank index"):
            opened(bank, tmp_path)


@pytest.mark.parametrize("text", ["", "null", "[" * 2_000, '{"bank": 1}', "x" * 10_000, "\udcff"])
def test_facts_that_are_none_are_no_index(text, saved, tmp_path):
    bank = RuleBank.load(saved)
    opened(bank, tmp_path)
    (tmp_path / faiss_file.FACTS).write_bytes(text.encode(errors="surrogateescape"))
    assert not faiss_file.is_current(bank, tmp_path)


def test_a_few_full_lists_are_read_as_well(tmp_path):
    """faiss writes the sizes of lists in another way where most are empty: rules with the same key."""
    keys = torch.nn.functional.normalize(torch.randn(3, WIDTH), dim=-1).repeat(200, 1)
    names = [str(number) for number in range(len(keys))]
    RuleBank(keys, keys, names, [f"rule {name}" for name in names]).save(tmp_path / "bank")
    bank = RuleBank.load(tmp_path / "bank")
    opened(bank, tmp_path / "index")
    assert b"sprs" in (tmp_path / "index" / faiss_file.INDEX).read_bytes()
    assert opened(bank, tmp_path / "index")._index.ntotal == 600
