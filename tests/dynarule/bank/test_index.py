"""Search is sorting all scores."""

import math

import pytest
import torch
from dynarule.bank.index import largest
from dynarule.projection import dot_rows

from dynarule import RuleAdapter, dynarule_config

WIDTH = 20


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
    monkeypatch.setattr("dynarule.bank.index.BLOCKED", 800)
    monkeypatch.setattr("dynarule.bank.index.BLOCK", 16)
    scores = torch.randn(3, total).masked_fill(torch.rand(3, total) < 0.3, -torch.inf)
    for some in (scores, scores.round(decimals=1)):  # with many ties
        values, places = largest(some, count)
        assert torch.equal(values, some.topk(count, -1).values)
        assert torch.equal(some.gather(1, places), values)
        assert all(len(set(row)) == count for row in places.tolist())
