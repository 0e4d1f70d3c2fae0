"""Search: exact is sorting all scores, and faiss follows its bank."""

import math
import sys

import pytest
import torch
from dynarule.bank import ExactIndex, FaissIndex, use_index
from dynarule.kernels import largest
from dynarule.projection import dot_rows

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
    bank = random_bank(50_000, width=4)
    most = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal most
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(one, torch.Tensor) and func is not torch.ops.aten.t.default:
                    most = max(most, one.numel())
            return out

    query = questions(bank, 1024)
    with Watch():
        ExactIndex().search(bank, *query, 10)
    assert most < 1024 * 50_000 / 8


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
        model(ids)
    bank.index = exact_index
    assert len(queries) == 4 and all(len(one[0]) == 2 for one in queries)
    scores, rows = bank.index.search(bank, *queries[2], 5)
    assert [[bank.ids[i] for i in row] for row in rows.tolist()] == [r.ids for r in memory.trace]
    assert near(scores, [r.scores for r in memory.trace])


@pytest.mark.parametrize(("nprobe", "candidates", "share"), [(1_000, 2_900, 1.0), (2, 40, 0.0)])
def test_scores_of_candidates_are_exact_and_all_candidates_are_exact_search(nprobe, candidates, share, near):
    bank = random_bank(3000)
    direction, offset, factor = query = questions(bank)
    scores, rows = faiss_index(bank, nprobe=nprobe, candidates=candidates).search(bank, *query, 10)
    every = (direction @ bank.keys_MP.T + offset[:, None]) * factor
    assert near(scores, every.gather(-1, rows))
    assert torch.equal(scores, scores.sort(dim=-1, descending=True).values)
    assert overlap(rows, ExactIndex().search(bank, *query, 10)[1]) >= share


def test_a_bank_that_changed_is_searched_exactly_until_it_has_another_index():
    bank = random_bank(3000)
    bank.index = faiss_index(bank, nprobe=2, candidates=100)
    assert bank.index.search(bank, *questions(bank), 10)[0].shape == (8, 10)
    for change in (
        lambda: bank.remove(bank.ids[100:]),
        lambda: bank.remove(list(bank.ids)),
        lambda: bank.add(random_bank(9000, seed=2)),
        lambda: bank.to("cpu", torch.float16),
    ):
        change()
        query = questions(bank) if len(bank) else (torch.ones(2, WIDTH), torch.zeros(2), torch.zeros(0))
        pairs = zip(bank.index.search(bank, *query, 10), ExactIndex().search(bank, *query, 10), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)
    query = questions(bank)
    _, rows = faiss_index(bank, nprobe=1_000, candidates=8_900).search(bank, *query, 10)
    assert overlap(rows, ExactIndex().search(bank, *query, 10)[1]) > 0.95


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
