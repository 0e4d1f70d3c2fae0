"""Equation 3 against sets: TopK, gold added, as many others dropped, whatever the counts in a batch."""

import pytest
import torch
from dynarule.memory.selection import mean_query
from dynarule.memory.training import keep_top, pool_scores

from dynarule import RuleAdapter, dynarule_config

WIDTH = 20


def keep_dim(scores, top_k, gold):
    """Equation 3 with Python sets: best K, gold added, lowest-scored others removed."""
    ranked = sorted(range(len(scores)), key=lambda m: -scores[m])
    kept = ranked[:top_k]
    kept += [m for m in dict.fromkeys(gold) if m not in kept]
    for m in sorted(kept, key=lambda m: scores[m]):
        if len(kept) > top_k and m not in gold:
            kept.remove(m)
    return set(kept)


def test_keep_dim_equals_its_definition_for_different_gold_counts_and_steps():
    scores = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    gold = torch.full((5, 3, 2), -1)
    gold[0, 0, 0] = int(scores[0].argmin())  # one step, one rule, the worst of all
    gold[1, :, 0] = torch.tensor([3, 9, 3])  # the same rule in two steps
    gold[2] = torch.tensor([[0, 39], [11, 0], [7, 8]])
    gold[3, 0] = scores[3].topk(2).indices  # already kept
    rows = keep_top(scores, 8, gold)
    assert rows.shape == (5, 8)
    for b in range(5):
        wanted = [m for m in gold[b].flatten().tolist() if m >= 0]
        assert set(rows[b].tolist()) == keep_dim(scores[b].tolist(), 8, wanted)
        kept = scores[b, rows[b]]
        assert torch.equal(kept, kept.sort(descending=True).values)
    assert (
        set(keep_top(scores, 8)[0].tolist())
        == set(scores[0].topk(8).indices.tolist())
        != set(rows[0].tolist())
    )
    assert keep_top(scores, None, gold).shape == (5, 40) == keep_top(scores, 99).shape


def test_more_gold_than_places_and_gold_outside_the_pool_are_refused():
    gold = torch.tensor([[[0, 1, 2]]])
    with pytest.raises(ValueError, match="3 gold rules but only 2"):
        keep_top(torch.randn(1, 9), 2, gold)
    assert keep_top(torch.randn(1, 9), 3, gold).sort().values.tolist() == [[0, 1, 2]]
    with pytest.raises(ValueError, match="0 to 1"):
        keep_top(torch.randn(1, 2), 2, gold)


@pytest.mark.parametrize("count", (12, 50))  # fewer and more rules than encoder dimensions
def test_pool_scores_are_the_mean_over_unpadded_tokens_and_heads_of_every_dot_product(
    count, tiny_model, near
):
    adapter = RuleAdapter(tiny_model("qwen2"), dynarule_config(WIDTH))
    torch.nn.init.normal_(adapter[0].k.bias)
    torch.manual_seed(1)
    hidden, keys = torch.randn(2, 6, 48), torch.randn(count, WIDTH)
    tokens = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    query, key = adapter[0].query(hidden), adapter[0].keys(keys)
    naive = torch.zeros(2, count)
    for b in range(2):
        for m in range(count):
            at = [t for t in range(6) if tokens[b, t]]
            naive[b, m] = sum(query[b, :, t].flatten() @ key[m] for t in at) / len(at) / 4 / 12**0.5
    scores = pool_scores(adapter[0], mean_query(query, tokens), keys)
    assert not scores.requires_grad
    assert near(scores, naive)
    assert not near(mean_query(query, tokens)[0], mean_query(query, torch.ones_like(tokens))[0], units=10_000)
