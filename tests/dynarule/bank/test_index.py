"""Search: tiles equal one product, approximate equals exact where it must, rows stay with their rules at every size."""

import math

import pytest
import torch
from dynarule.bank.faiss_index import FaissIndex, use_index
from dynarule.bank.index import ExactIndex
from dynarule.bank.recall import QueryBatch, measure_recall
from dynarule.kernels import largest
from dynarule.projection import dot_rows

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config

WIDTH = 20


def random_bank(count, width=WIDTH, seed=0, start=0, dtype=torch.float32):
    """Unit vectors around some centres, as embeddings of rules are, with shuffled ids that tell the rule."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(30, width, generator=generator)
    keys = centres[torch.randint(30, (count,), generator=generator)] + 0.7 * torch.randn(
        count, width, generator=generator
    )
    keys = torch.nn.functional.normalize(keys, dim=-1).to(dtype)
    names = (torch.randperm(count, generator=generator) + start).tolist()
    return RuleBank(keys, -keys, [f"r{i}" for i in names], [f"text of r{i}" for i in names])


def questions(bank, count=8, seed=1, spread=0.2):
    """Directions, offsets and factors like those of a layer."""
    generator = torch.Generator().manual_seed(seed)
    factor = 1 + spread * torch.rand(len(bank), generator=generator)
    near = bank.keys_MP[torch.randint(len(bank), (count,), generator=generator)].float()
    direction = near + 0.1 * torch.randn(near.shape, generator=generator)
    return direction, torch.randn(count, generator=generator), factor


def by_hand(bank, direction, offset, factor, k):
    """Score everything in float64 and sort."""
    scores = (direction.double() @ bank.keys_MP.double().T + offset.double()[:, None]) * factor.double()
    order = scores.argsort(dim=-1, descending=True)[:, :k]
    return scores.gather(-1, order), order


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("count", "k", "scores_alive"),
    [
        (1, 1, None),
        (97, 97, None),
        (97, 200, None),
        (1024, 7, 1),
        (1025, 100, 1),
        (5000, 1, 1),
        (5000, 20, 1),
        (5000, 1500, 1),
        (5000, 20, 8 * 2000),
    ],
)
def test_exact_search_is_sorting_all_scores(dtype, count, k, scores_alive, near, monkeypatch):
    if scores_alive:  # tiles of 1,024, K or 2,000 rules
        monkeypatch.setattr("dynarule.bank.index.SCORE_TILE", scores_alive)
    bank = random_bank(count, dtype=dtype)
    asked = questions(bank)
    scores, rows = ExactIndex().search(bank, *asked, k)
    expected, order = by_hand(bank, *asked, k)
    assert scores.shape == rows.shape == (8, min(k, count))
    assert near(scores, expected)
    assert (
        rows == order
    ).float().mean() > 0.99  # rules whose scores differ in the last digit may change places
    assert all(len(set(row)) == len(row) for row in rows.tolist())


def test_exact_search_never_holds_all_scores():
    bank = random_bank(200_000, width=4)
    direction, offset, factor = questions(bank, 256)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(one, torch.Tensor) and func is not torch.ops.aten.t.default:
                    largest = max(largest, one.numel())
            return out

    with Watch():
        ExactIndex().search(bank, direction, offset, factor, 10)
    assert largest < 256 * 200_000 / 8


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
    adapter = RuleAdapter(tiny_model("qwen3"), dynarule_config(WIDTH))
    projection = adapter[1]
    torch.nn.init.normal_(projection.k.bias)
    for parameter in projection.k.parameters():
        parameter.mul_(size)
    query = torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(0))
    naive = torch.einsum("bhd,mhd->bm", query, projection.keys(bank.keys_MP).unflatten(-1, (4, 16)))
    naive /= 4 * math.sqrt(16)
    direction, offset = projection.encoder_query(query)
    moved = (direction @ bank.keys_MP.T + offset[:, None]) * bank.inverse_scale(projection)
    assert near(moved, naive)
    scores, rows = bank.search(projection, query, 5)
    assert near(scores, naive.topk(5).values)
    assert torch.equal(rows, naive.topk(5).indices)


def faiss_index(bank, **config):
    pytest.importorskip("faiss")
    return FaissIndex(bank, **config)


KINDS = ("ivf_sq8", "fastscan")


@pytest.mark.parametrize("kind", ["exact", *KINDS])
@pytest.mark.parametrize("count", [3, 300, 3000])
def test_row_id_text_and_value_belong_together_at_every_size(kind, count, near):
    bank = random_bank(count)
    if kind != "exact":
        bank.index = faiss_index(bank, kind=kind, nlist=8, nprobe=8, candidates=200)
    wanted = torch.randperm(count, generator=torch.Generator().manual_seed(3))[:50]
    direction = bank.keys_MP[wanted] * 10
    scores, rows = bank.index.search(bank, direction, torch.zeros(len(wanted)), torch.ones(count), 3)
    best = rows[:, 0].tolist()
    assert best == wanted.tolist()  # a unit vector is its own nearest
    for row, key in zip(best, direction / 10, strict=True):
        assert bank.texts[row] == f"text of {bank.ids[row]}"
        assert torch.equal(bank.values_MP[row], -bank.keys_MP[row])
        assert near(bank.keys_MP[row], key)
    assert near(scores[:, 0], torch.full((len(wanted),), 10.0))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_reads_everything_is_exact(kind, near):
    bank = random_bank(3000)
    index = faiss_index(bank, kind=kind, nlist=16, nprobe=16, candidates=2900)
    asked = questions(bank)
    for got, expected in zip(
        index.search(bank, *asked, 10), ExactIndex().search(bank, *asked, 10), strict=True
    ):
        assert near(got.float(), expected.float())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_found_rules_are_exact(kind, near):
    bank = random_bank(3000)
    direction, offset, factor = asked = questions(bank)
    scores, rows = faiss_index(bank, kind=kind, nlist=16, nprobe=2, candidates=40).search(bank, *asked, 10)
    every = (direction @ bank.keys_MP.T + offset[:, None]) * factor
    assert near(scores, every.gather(-1, rows))
    assert torch.equal(scores, scores.sort(dim=-1, descending=True).values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pending", [0, 25, 10_000])
def test_an_index_follows_every_change_of_its_bank(kind, pending, near):
    bank = random_bank(1000)
    index = faiss_index(bank, kind=kind, nlist=4, nprobe=4, candidates=990, pending=pending)
    generator = torch.Generator().manual_seed(5)
    number = 5000
    for _ in range(25):
        some = [bank.ids[i] for i in torch.randperm(len(bank), generator=generator)[:60].tolist()]
        bank.remove(some[:40])
        new = random_bank(20, seed=number, start=number + 50)
        bank.replace(RuleBank(new.keys_MP, new.values_MP, some[40:], new.texts))
        bank.add(random_bank(45, seed=number + 1, start=number))
        number += 100
        asked = questions(bank, seed=number)
        scores, rows = index.search(bank, *asked, 10)
        expected, order = ExactIndex().search(bank, *asked, 10)
        assert int(rows.max()) < len(bank) and all(len(set(r)) == 10 for r in rows.tolist())
        assert (rows[..., None] == order[:, None]).any(-1).float().mean() > 0.95
        assert near(scores[:, 0], expected[:, 0])
    assert index._index.ntotal < 4 * len(bank)  # stale entries do not pile up


def test_a_bank_that_shrinks_grows_and_empties_keeps_its_index(near):
    bank = random_bank(3000)
    bank.index = faiss_index(bank, nlist=16, nprobe=4, candidates=100)
    for change in (
        lambda: bank.remove(bank.ids[100:]),
        lambda: bank.remove(list(bank.ids)),
        lambda: bank.add(random_bank(9000, seed=2)),
        lambda: bank.to("cpu", torch.float16),
    ):
        change()
        asked = questions(bank) if len(bank) else (torch.ones(2, WIDTH), torch.zeros(2), torch.zeros(0))
        scores, rows = bank.index.search(bank, *asked, 10)
        assert scores.shape == rows.shape == (len(asked[0]), min(10, len(bank)))
        if len(bank):
            assert near(scores[:, 0], ExactIndex().search(bank, *asked, 1)[0][:, 0])


def test_candidates_are_ranked_with_the_factor():
    # A factor that depends on the embedding, as LayerNorm's does, and an offset that makes it matter.
    bank = random_bank(20_000, width=32)
    slope = torch.randn(32, generator=torch.Generator().manual_seed(9))
    factor = (1 + 0.2 * (bank.keys_MP @ slope)).clamp_min(0.1)
    direction, _, _ = questions(bank, 32)
    asked = QueryBatch(direction, torch.full((32,), 1.0), factor)
    index = faiss_index(bank, nlist=20, nprobe=20, candidates=4_000)
    assert measure_recall(bank, [asked], index, (10,)).recall[10] > 0.95
    index = faiss_index(bank, nlist=20, nprobe=20, candidates=20)  # too few, and the report says so
    assert measure_recall(bank, [asked], index, (10,)).recall[10] < 0.8


def test_recall_is_the_share_of_the_true_best():
    bank = random_bank(500)
    asked = QueryBatch(*questions(bank))

    class Half:
        """Finds every second of the true best, and otherwise the worst."""

        def search(self, bank, direction, offset, factor, k):
            scores, rows = ExactIndex().search(bank, direction, offset, factor, len(bank))
            keep = torch.cat([torch.arange(0, k, 2), torch.arange(len(bank) - k // 2, len(bank))])[:k]
            return scores[:, keep], rows[:, keep]

    report = measure_recall(bank, [asked, asked], Half(), (1, 10))
    assert report.recall == {1: 1.0, 10: 0.5} and report.worst == 0.5 and report.queries == 16
    assert measure_recall(bank, [asked], bank.index, (1, 10, 500)).recall == {1: 1.0, 10: 1.0, 500: 1.0}
    for bad in ((0,), (501,), ()):
        with pytest.raises(ValueError, match="every k must be 1 to 500"):
            measure_recall(bank, [asked], bank.index, bad)
    with pytest.raises(ValueError, match="no queries"):
        measure_recall(bank, [], bank.index)
    bank.remove(bank.ids[:1])
    with pytest.raises(ValueError, match="recorded with 500 rules, the bank holds 499"):
        measure_recall(bank, [asked], bank.index)


@torch.no_grad()
def test_a_model_reads_the_bank_through_its_index_and_its_queries_can_be_replayed(bank, tiny_model, near):
    model = tiny_model("qwen2")
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
    ids = torch.randint(10, 90, (2, 8), generator=torch.Generator().manual_seed(2))
    asked, exact_index = [], bank.index

    class Noting:
        def search(self, bank, *query):
            asked.append(QueryBatch(*query[:3]))
            return exact_index.search(bank, *query)

    bank.index = Noting()
    with attach(model, RuleMemory(adapter, bank, 7)) as memory:
        exact = model(ids).logits
    bank.index = exact_index
    assert len(asked) == 4 and all(len(one.direction_BP) == 2 for one in asked)
    scores, rows = bank.index.search(bank, *asked[2], 5)
    assert [[bank.ids[i] for i in row] for row in rows.tolist()] == [r.ids for r in memory.trace]
    assert near(scores, [r.scores for r in memory.trace])

    class Worst:
        def search(self, bank, direction, offset, factor, k):
            return ExactIndex().search(bank, -direction, -offset, factor, k)

    bank.index = Worst()
    with attach(model, RuleMemory(adapter, bank, 7)):
        assert not near(model(ids).logits, exact, units=10_000)


def test_the_choice_of_index(monkeypatch):
    from dynarule.bank import faiss_index as module

    bank = random_bank(300)
    assert isinstance(use_index(bank), ExactIndex)
    monkeypatch.setattr(module, "EXACT_UP_TO", 200)
    monkeypatch.setattr(module, "faiss_installed", lambda: False)
    assert isinstance(use_index(bank), ExactIndex)
    monkeypatch.undo()
    monkeypatch.setattr(module, "EXACT_UP_TO", 200)
    if module.faiss_installed():
        assert isinstance(use_index(bank), FaissIndex)
        assert isinstance(bank.index, FaissIndex)


def test_bad_settings_and_a_missing_faiss_say_what_to_do(monkeypatch):
    import sys

    for config in ({"kind": "hnsw"}, {"nprobe": 0}, {"pending": -1}):
        with pytest.raises(ValueError, match="must"):
            FaissIndex(random_bank(10), **config)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"dynarule\[faiss-cpu\]"):
        FaissIndex(random_bank(10))
    with pytest.raises(ValueError, match="empty bank"):
        FaissIndex(RuleBank(torch.zeros(0, 4), torch.zeros(0, 4), [], []))
    with pytest.raises(ValueError, match="divisible by 4"):
        FaissIndex(random_bank(10, width=6), "fastscan")


@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("total", [900, 1024, 5_000])
def test_the_largest_of_many_scores_are_those_of_topk(count, total, monkeypatch):
    monkeypatch.setattr("dynarule.kernels.BLOCKED", 800)
    monkeypatch.setattr("dynarule.kernels.BLOCK", 16)
    scores = torch.randn(3, total).masked_fill(torch.rand(3, total) < 0.3, -torch.inf)
    for each in (scores, scores.round(decimals=1)):  # with many ties
        values, places = largest(each, count)
        assert torch.equal(values, each.topk(count, -1).values)
        assert torch.equal(each.gather(1, places), values)
        assert all(len(set(row)) == count for row in places.tolist())
