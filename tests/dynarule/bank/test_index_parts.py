"""An index on disk: found again what it was, made in parts that a kill leaves, and never that of another bank."""

import pytest
import torch
from dynarule.bank import changed_bank, index_parts
from dynarule.bank.faiss_index import FaissIndex, use_index
from dynarule.bank.index import ExactIndex
from dynarule.cli.app import app
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dynarule import RuleBank

pytest.importorskip("faiss")
WIDTH, COUNT = 16, 2_500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a saved bank of clustered unit vectors in fp16."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(30, WIDTH, generator=generator)
    keys = centres[torch.randint(30, (COUNT,), generator=generator)]
    keys = torch.nn.functional.normalize(keys + torch.randn(COUNT, WIDTH, generator=generator), dim=-1).half()
    names = [f"r{number}" for number in torch.randperm(COUNT, generator=generator).tolist()]
    folder = tmp_path_factory.mktemp("bank") / "bank"
    RuleBank(keys, -keys, names, [f"text of {name}" for name in names], "encoder").save(folder)
    return folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(index_parts, "BLOCK", 600)


def questions(bank, count=16):
    generator = torch.Generator().manual_seed(1)
    near = bank.keys_MP[torch.randint(len(bank), (count,), generator=generator)].float()
    factor = 1 + 0.1 * torch.rand(len(bank), generator=generator)
    return near + 0.2 * torch.randn(near.shape, generator=generator), torch.zeros(count), factor


def opened(bank, place, **changes):
    return FaissIndex(bank, "fastscan", folder=place, **{"candidates": 400, "nprobe": 1_000} | changes)


def test_an_index_on_disk_finds_what_exact_search_finds_and_is_read_again(folder, tmp_path):
    bank, told = RuleBank.load(folder), []
    made = opened(bank, tmp_path, progress=lambda *done: told.append(done))
    assert told == [(number, 5) for number in range(1, 6)]
    asked = questions(bank)
    exact = ExactIndex().search(bank, *asked, 10)[1]
    found = made.search(bank, *asked, 10)[1]
    assert (found == exact).float().mean() > 0.95
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = opened(RuleBank.load(folder), tmp_path)
    assert torch.equal(again.search(bank, *asked, 10)[1], found)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_build_that_was_stopped_goes_on_to_the_same_parts(folder, tmp_path):
    bank = RuleBank.load(folder)
    opened(bank, tmp_path / "whole")

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(bank, tmp_path / "stopped", progress=stop)
    assert len(list((tmp_path / "stopped").glob("0*"))) == 2
    opened(bank, tmp_path / "stopped")
    whole, stopped = (sorted((tmp_path / each).iterdir()) for each in ("whole", "stopped"))
    assert [path.name for path in whole] == [path.name for path in stopped] and len(whole) == 6
    for one, other in zip(map(load_file, whole), map(load_file, stopped), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_rules_that_come_and_go_are_seen_at_once(folder, tmp_path):
    bank = RuleBank.load(folder)
    index = opened(bank, tmp_path)
    asked = questions(bank)
    first = bank.ids[int(index.search(bank, *asked, 1)[1][0, 0])]
    bank.remove([first])
    direction, offset, _ = asked
    best = torch.nn.functional.normalize(direction[:1], dim=-1)
    bank.add(RuleBank(best, best, ["new"], ["new rule"], "encoder"))
    factor = torch.ones(len(bank))
    rows = index.search(bank, direction, offset, factor, 5)[1]
    names = [[bank.ids[row] for row in found] for found in rows.tolist()]
    assert names[0][0] == "new" and all(first not in found for found in names)
    assert (rows == ExactIndex().search(bank, direction, offset, factor, 5)[1]).float().mean() > 0.9
    with pytest.raises(ValueError, match="of a bank as it was loaded"):
        opened(bank, tmp_path)


def test_parts_of_another_bank_are_refused_with_both_named(folder, tmp_path):
    bank = RuleBank.load(folder)
    opened(bank, tmp_path / "index")
    bank.remove(bank.ids[:1])
    bank.save(tmp_path / "other")
    other = RuleBank.load(tmp_path / "other")
    with pytest.raises(ValueError, match=f"bank is '[0-9a-f]{{64}}' there and '{other.digest}' here"):
        opened(other, tmp_path / "index")
    with pytest.raises(ValueError, match="seed is '0' there and '3' here"):
        opened(RuleBank.load(folder), tmp_path / "index", seed=3)


def test_a_damaged_part_is_named(folder, tmp_path):
    bank = RuleBank.load(folder)
    opened(bank, tmp_path)
    path = tmp_path / "00002-of-00005.safetensors"
    about = {"format": index_parts.FORMAT, "bank": bank.digest, "nlist": str(62), "seed": "0"}
    nlist = opened(bank, tmp_path).nlist
    about["nlist"] = str(nlist)
    codes = load_file(path)["codes"]
    save_file({"codes": codes[:-1]}, path, about)
    with pytest.raises(ValueError, match="bytes for 2,500 rules; make them again"):
        opened(bank, tmp_path)
    codes[0, 0] = 255
    save_file({"codes": codes}, path, about)
    with pytest.raises(ValueError, match=f"name list 255 of {nlist}"):
        opened(bank, tmp_path)
    path.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"00002-of-00005\.safetensors is damaged .*dynarule bank index"):
        opened(bank, tmp_path)


def test_serving_takes_the_index_beside_the_bank(folder, monkeypatch):
    bank = RuleBank.load(folder)
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 1_000)
    assert use_index(bank).kind == "ivf_sq8"
    opened(bank, folder / "index")
    assert use_index(bank).kind == "fastscan"
    bank.remove(bank.ids[:1])  # what is on disk is of another bank now
    assert use_index(bank).kind == "ivf_sq8"


def test_serving_keeps_the_index_where_the_embeddings_move_and_only_reads_it(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 1_000)
    RuleBank.load(folder).save(tmp_path / "bank")
    opened(RuleBank.load(tmp_path / "bank"), tmp_path / "bank" / "index")
    monkeypatch.setattr(index_parts, "part_of", None)  # a folder that this process may not write to
    bank = RuleBank.load(tmp_path / "bank").to("cpu", torch.float32)  # as the model's dtype asks for
    assert use_index(bank).kind == "fastscan"
    asked = questions(bank)
    found = bank.index.search(bank, *asked, 10)[1]
    assert (found == ExactIndex().search(bank, *asked, 10)[1]).float().mean() > 0.9
    (tmp_path / "bank" / "index" / "00003-of-00005.safetensors").unlink()
    assert use_index(bank).kind == "ivf_sq8"


def test_a_changed_bank_loses_its_index_and_gets_another(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 1_000)
    place = tmp_path / "bank"
    RuleBank.load(folder).save(place)
    opened(RuleBank.load(place), place / "index")
    with changed_bank(place) as bank:
        bank.remove(bank.ids[:1])
    assert not (place / "index").exists()
    changed = RuleBank.load(place)
    assert use_index(changed).kind == "ivf_sq8"
    assert CliRunner().invoke(app, ["bank", "index", str(place)]).exit_code == 0
    assert use_index(changed).kind == "fastscan"
