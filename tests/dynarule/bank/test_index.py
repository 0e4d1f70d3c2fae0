"""Search is sorting all scores, and never holds them all."""

import math

import pytest
import torch
from dynarule.bank.index import best_rules
from dynarule.kernels import largest
from dynarule.projection import dot_rows

from dynarule import RuleAdapter, RuleBank, dynarule_config

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
    scores, rows = best_rules(bank, *query, k)
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
        best_rules(bank, *query, 10)
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
