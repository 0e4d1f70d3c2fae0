"""Search: exact is sorting all scores; faiss follows its bank, and nothing of a bad file reaches it."""

import math
import sys

import pytest
import torch
from dynarule.bank import (
    ExactIndex,
    FaissIndex,
    changed_bank,
    faiss_file,
    measure_recall,
    use_index,
)
from dynarule.bank.storage import hash_tensors
from dynarule.cli.app import app
from dynarule.kernels import largest
from dynarule.projection import dot_rows
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config

WIDTH = 20


def random_bank(count, width=WIDTH, seed=0, start=0, dtype=torch.float32):
    """Unit vectors around some centres, as embeddings of rules are, with shuffled ids that tell the rule."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(30, width, generator=generator)
    keys = centres[torch.randint(30, (count,), generator=generator)]
    keys += 0.7 * torch.randn(count, width, generator=generator)
    keys = torch.nn.functional.normalize(keys, dim=-1).to(dtype)
    names = (torch.randperm(count, generator=generator) + start).tolist()
    return RuleBank(keys, -keys, [f"r{i}" for i in names], [f"text of r{i}" for i in names])


def questions(bank, count=8, seed=1, spread=0.2):
    """Directions, offsets and factors like those of a layer."""
    generator = torch.Generator().manual_seed(seed)
    factor = 1 + spread * torch.rand(len(bank), generator=generator)
    close = bank.keys_MP[torch.randint(len(bank), (count,), generator=generator)].float()
    direction = close + 0.1 * torch.randn(close.shape, generator=generator)
    return direction, torch.randn(count, generator=generator), factor


def faiss_index(bank, **settings):
    pytest.importorskip("faiss")
    return FaissIndex(bank, **settings)


def overlap(rows, expected):
    """The share of expected rules that are among the rows."""
    return float((expected[..., None] == rows[:, None]).any(-1).float().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("count", "k", "scores_alive"),
    [(1, 1, None), (97, 200, None), (1024, 7, 1), (1025, 100, 1), (5000, 1500, 1), (5000, 20, 8 * 2000)],
)
def test_exact_search_is_sorting_all_scores(dtype, count, k, scores_alive, near, monkeypatch):
    if scores_alive:  # tiles of 1,024, K or 2,000 rules
        monkeypatch.setattr("dynarule.bank.index.SCORE_TILE", scores_alive)
    bank = random_bank(count, dtype=dtype)
    direction, offset, factor = query = questions(bank)
    scores, rows = ExactIndex().search(bank, *query, k)
    every = (direction.double() @ bank.keys_MP.double().T + offset.double()[:, None]) * factor.double()
    order = every.argsort(dim=-1, descending=True)[:, :k]
    assert scores.shape == rows.shape == (8, min(k, count))
    assert near(scores, every.gather(-1, order))
    assert (rows == order).float().mean() > 0.99  # scores that differ in the last digit may change places
    assert all(len(set(row)) == len(row) for row in rows.tolist())


def test_exact_search_never_holds_all_scores():
    bank = random_bank(200_000, width=4)
    most = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal most
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(one, torch.Tensor) and func is not torch.ops.aten.t.default:
                    most = max(most, one.numel())
            return out

    query = questions(bank, 256)
    with Watch():
        ExactIndex().search(bank, *query, 10)
    assert most < 256 * 200_000 / 8


def test_halves_are_summed_in_single_precision(near):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(3000, 512, generator=generator).to(torch.bfloat16)
    direction = torch.randn(3, 512, generator=generator)
    expected = direction.double() @ keys.double().T
    assert near(dot_rows(direction, keys), expected)
    assert not near(
        (direction.bfloat16() @ keys.T).float(), expected, units=1000
    )  # what it would be otherwise


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_on_a_gpu_lose_nothing_of_the_query(dtype, near):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(3000, 512, generator=generator).to(dtype)
    direction = torch.randn(3, 512, generator=generator)
    got = dot_rows(direction.cuda(), keys.cuda()).cpu()
    # What two bf16 numbers leave of an fp32 one is 2^-17 of it, 64 units.
    assert near(got, direction.double() @ keys.double().T, units=128)


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
    monkeypatch.setattr("dynarule.kernels.BLOCKED", 800)
    monkeypatch.setattr("dynarule.kernels.BLOCK", 16)
    scores = torch.randn(3, total).masked_fill(torch.rand(3, total) < 0.3, -torch.inf)
    for some in (scores, scores.round(decimals=1)):  # with many ties
        values, places = largest(some, count)
        assert torch.equal(values, some.topk(count, -1).values)
        assert torch.equal(some.gather(1, places), values)
        assert all(len(set(row)) == count for row in places.tolist())


@torch.no_grad()
def test_a_model_reads_the_bank_through_its_index_and_its_queries_can_be_replayed(bank, tiny_model, near):
    model = tiny_model("qwen2")
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    ids = torch.randint(10, 90, (2, 8), generator=torch.Generator().manual_seed(2))
    queries, exact_index = [], bank.index

    class Noting:
        def search(self, bank, *query):
            queries.append(query[:3])
            return exact_index.search(bank, *query)

    bank.index = Noting()
    with attach(model, RuleMemory(adapter, bank, 7)) as memory:
        exact = model(ids).logits
    bank.index = exact_index
    assert len(queries) == 4 and all(len(one[0]) == 2 for one in queries)
    scores, rows = bank.index.search(bank, *queries[2], 5)
    assert [[bank.ids[i] for i in row] for row in rows.tolist()] == [r.ids for r in memory.trace]
    assert near(scores, [r.scores for r in memory.trace])

    class Worst:
        def search(self, bank, direction, offset, factor, k):
            return ExactIndex().search(bank, -direction, -offset, factor, k)

    bank.index = Worst()
    with attach(model, RuleMemory(adapter, bank, 7)):
        assert not near(model(ids).logits, exact, units=10_000)


def test_recall_is_the_share_of_the_true_best():
    bank = random_bank(500)
    query = questions(bank)

    class Half:
        """Returns every second of the true best, and otherwise the worst."""

        def search(self, bank, direction, offset, factor, k):
            scores, rows = ExactIndex().search(bank, direction, offset, factor, len(bank))
            keep = torch.cat([torch.arange(0, k, 2), torch.arange(len(bank) - k // 2, len(bank))])[:k]
            return scores[:, keep], rows[:, keep]

    assert [measure_recall(bank, [query, query], Half(), k) for k in (1, 10)] == [1.0, 0.5]
    assert measure_recall(bank, [query], bank.index, 500) == 1.0


@pytest.mark.parametrize("faiss", [False, True])
@pytest.mark.parametrize("count", [3, 3000])
def test_row_id_text_and_value_belong_together_at_every_size(faiss, count, near):
    bank = random_bank(count)
    if faiss:
        bank.index = faiss_index(bank, candidates=200)
    wanted = torch.randperm(count, generator=torch.Generator().manual_seed(3))[:50]
    direction = bank.keys_MP[wanted] * 10
    scores, rows = bank.index.search(bank, direction, torch.zeros(len(wanted)), torch.ones(count), 3)
    assert rows[:, 0].tolist() == wanted.tolist()  # a unit vector is its own nearest
    for row in wanted.tolist():
        assert bank.texts[row] == f"text of {bank.ids[row]}"
        assert torch.equal(bank.values_MP[row], -bank.keys_MP[row])
    assert near(scores[:, 0], torch.full((len(wanted),), 10.0))


@pytest.mark.parametrize(("nprobe", "candidates", "share"), [(1_000, 2_900, 1.0), (2, 40, 0.0)])
def test_scores_of_candidates_are_exact_and_all_candidates_are_exact_search(nprobe, candidates, share, near):
    bank = random_bank(3000)
    direction, offset, factor = query = questions(bank)
    scores, rows = faiss_index(bank, nprobe=nprobe, candidates=candidates).search(bank, *query, 10)
    every = (direction @ bank.keys_MP.T + offset[:, None]) * factor
    assert near(scores, every.gather(-1, rows))
    assert torch.equal(scores, scores.sort(dim=-1, descending=True).values)
    assert overlap(rows, ExactIndex().search(bank, *query, 10)[1]) >= share


def test_candidates_are_ranked_with_the_factor():
    # A factor that depends on the embedding, as LayerNorm's does, and an offset that makes it matter.
    bank = random_bank(20_000, width=32)
    slope = torch.randn(32, generator=torch.Generator().manual_seed(9))
    factor = (1 + 0.2 * (bank.keys_MP @ slope)).clamp_min(0.1)
    query = questions(bank, 32)[0], torch.full((32,), 1.0), factor
    for candidates, low, high in ((4_000, 0.95, 1.0), (20, 0.0, 0.8)):  # too few, and the report says so
        index = faiss_index(bank, nprobe=1_000, candidates=candidates)
        assert low <= measure_recall(bank, [query], index, 10) <= high


@pytest.mark.parametrize("pending", [0, 50, 10_000])
def test_an_index_follows_every_change_of_its_bank(pending, near, monkeypatch):
    monkeypatch.setattr("dynarule.bank.faiss_index.PENDING", pending)
    bank = random_bank(1000)
    index = faiss_index(bank, nprobe=1_000, candidates=990)
    generator = torch.Generator().manual_seed(5)
    number = 5000
    for _ in range(25):
        some = [bank.ids[i] for i in torch.randperm(len(bank), generator=generator)[:60].tolist()]
        bank.remove(some[:40])
        new = random_bank(20, seed=number, start=number + 50)
        bank.replace(RuleBank(new.keys_MP, new.values_MP, some[40:], new.texts))
        bank.add(random_bank(45, seed=number + 1, start=number))
        number += 100
        query = questions(bank, seed=number)
        scores, rows = index.search(bank, *query, 10)
        expected, order = ExactIndex().search(bank, *query, 10)
        assert int(rows.max()) < len(bank) and all(len(set(r)) == 10 for r in rows.tolist())
        assert overlap(rows, order) > 0.95 and near(scores[:, 0], expected[:, 0])


def test_a_bank_that_shrinks_grows_and_empties_keeps_its_index(near):
    bank = random_bank(3000)
    bank.index = faiss_index(bank, nprobe=4, candidates=100)
    for change in (
        lambda: bank.remove(bank.ids[100:]),
        lambda: bank.remove(list(bank.ids)),
        lambda: bank.add(random_bank(9000, seed=2)),
        lambda: bank.to("cpu", torch.float16),
    ):
        change()
        query = questions(bank) if len(bank) else (torch.ones(2, WIDTH), torch.zeros(2), torch.zeros(0))
        scores, rows = bank.index.search(bank, *query, 10)
        assert scores.shape == rows.shape == (len(query[0]), min(10, len(bank)))
        if len(bank):
            assert near(scores[:, 0], ExactIndex().search(bank, *query, 1)[0][:, 0])


def test_bad_settings_and_a_missing_faiss_say_what_to_do(monkeypatch):
    bank = random_bank(300)
    for settings in ({"nprobe": 0}, {"candidates": -1}):
        with pytest.raises(ValueError, match="must be positive"):
            FaissIndex(bank, **settings)
    with pytest.raises(ValueError, match="empty bank"):
        FaissIndex(RuleBank(torch.zeros(0, 4), torch.zeros(0, 4), [], []))
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"dynarule\[faiss-cpu\]"):
        FaissIndex(bank)
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 200)
    monkeypatch.setattr("dynarule.bank.faiss_index.faiss_installed", lambda: False)
    assert isinstance(use_index(bank), ExactIndex)


# An index on disk: what it was when it is read again, never that of another bank, checked before faiss sees it.

COUNT = 2_500


@pytest.fixture(scope="module")
def faiss():
    return pytest.importorskip("faiss")


@pytest.fixture
def folder(faiss, tmp_path):
    """A bank in fp16 with its index, beside which other banks may be saved."""
    random_bank(COUNT, dtype=torch.float16).save(tmp_path / "bank")
    assert CliRunner().invoke(app, ["bank", "index", str(tmp_path / "bank")]).exit_code == 0
    return tmp_path / "bank"


def opened(folder):
    return FaissIndex(RuleBank.load(folder), candidates=400, folder=folder / "index")


def state(folder):
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_an_index_on_disk_is_that_in_memory_and_reading_it_writes_nothing(folder):
    before, bank = state(folder), RuleBank.load(folder)
    query = questions(bank)
    scores, rows = opened(folder).search(bank, *query, 10)
    for part, same in zip(
        (scores, rows), FaissIndex(bank, candidates=400).search(bank, *query, 10), strict=True
    ):
        assert torch.equal(part, same)
    assert overlap(rows, ExactIndex().search(bank, *query, 10)[1]) > 0.95
    assert state(folder) == before


def test_serving_takes_the_index_beside_the_bank_until_the_bank_changes(folder, monkeypatch):
    reads, read = [], faiss_file.read_index
    monkeypatch.setattr("dynarule.bank.faiss_index.read_index", lambda *a: reads.append(1) or read(*a))
    assert isinstance(use_index(RuleBank.load(folder)), ExactIndex) and not reads
    monkeypatch.setattr("dynarule.bank.faiss_index.EXACT_UP_TO", 1_000)
    bank = RuleBank.load(folder).to("cpu", torch.float32)  # as the model's dtype asks for
    assert isinstance(use_index(bank), FaissIndex) and len(reads) == 1
    query = questions(bank)
    assert overlap(bank.index.search(bank, *query, 10)[1], ExactIndex().search(bank, *query, 10)[1]) > 0.9
    bank.remove(bank.ids[:1])  # what is on disk is of another bank now
    assert isinstance(use_index(bank), FaissIndex) and len(reads) == 1
    with pytest.raises(ValueError, match="of a bank as it was loaded"):
        FaissIndex(bank, folder=folder / "index")
    bank.save(folder.with_name("other"))
    (folder / "index").rename(folder.with_name("other") / "index")
    other = RuleBank.load(folder.with_name("other"))
    assert not faiss_file.is_current(other, other.folder / "index")
    FaissIndex(other, folder=other.folder / "index")  # makes it anew
    assert faiss_file.is_current(other, other.folder / "index")
    with changed_bank(other.folder) as bank:
        bank.remove(bank.ids[:1])
    assert not (other.folder / "index").exists()


def wrapped(sizes):
    return sizes + torch.tensor([2**62, -(2**62), *[0] * (len(sizes) - 2)])


ATTACKS = {
    "a centroid": ("centroids", lambda rows: rows.index_fill(0, torch.tensor(1), math.nan)),
    "the quantizer": ("ranges", lambda numbers: numbers * math.inf),
    "sizes that wrap": ("sizes", wrapped),
    "a size too large": ("sizes", lambda sizes: sizes + 1),
    "more lists": ("sizes", lambda sizes: torch.cat([sizes, torch.zeros(1, dtype=torch.int64)])),
    "a row twice": ("rows", lambda rows: rows.clamp_min(1)),
    "no such row": ("rows", lambda rows: rows + 1),
    "another dtype": ("rows", torch.Tensor.int),
    "too few codes": ("codes", lambda codes: codes[:-1].clone()),
    "another width": ("centroids", lambda rows: rows[:, 1:].clone()),
}


def test_a_file_that_is_not_this_index_never_reaches_faiss(folder, monkeypatch):
    file = folder / "index" / faiss_file.INDEX
    data, tensors = file.read_bytes(), load_file(file)
    metadata = {"format": faiss_file.FORMAT, "bank": RuleBank.load(folder).digest}
    make_empty = faiss_file.empty_index
    monkeypatch.setattr(faiss_file, "empty_index", None)

    def refused():
        with pytest.raises(ValueError, match=r"is damaged \(.*make it again: dynarule bank index"):
            opened(folder)

    for name, attack in ATTACKS.values():
        bad = tensors | {name: attack(tensors[name])}
        true_hash = {"sha256": hash_tensors([bad[name] for name in faiss_file.TENSORS])}
        save_file(bad, file, metadata | true_hash)  # by someone who knows how
        refused()
    save_file({"rows": tensors["rows"]}, file, metadata)
    refused()
    file.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    refused()
    for bad in (
        b"",
        data[:100],
        data[:-8],
        data + bytes(8),
        b"x" * 1_000,
        (2**62).to_bytes(8, "little") + data[8:],
    ):
        file.write_bytes(bad)
        assert not faiss_file.is_current(RuleBank.load(folder), folder / "index")
    monkeypatch.setattr(faiss_file, "empty_index", make_empty)
    save_file(tensors, file, metadata)  # without a hash; what the message says to type helps
    refused()
    assert CliRunner().invoke(app, ["bank", "index", str(folder)]).exit_code == 0 and opened(folder)


def test_lists_without_rules_are_read_as_well(faiss, tmp_path):
    keys = torch.nn.functional.normalize(torch.randn(3, WIDTH), dim=-1).repeat(200, 1)
    names = [str(number) for number in range(len(keys))]
    RuleBank(keys, keys, names, [f"rule {name}" for name in names]).save(tmp_path)
    opened(tmp_path)
    assert (load_file(tmp_path / "index" / faiss_file.INDEX)["sizes"] == 0).any()
    assert opened(tmp_path)._index.ntotal == 600
