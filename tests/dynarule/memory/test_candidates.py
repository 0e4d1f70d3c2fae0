"""Equation 3 against sets: TopK, gold added, as many others dropped, whatever the counts in a batch."""

import pytest
import torch
from dynarule.memory.training import keep_top


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


def test_more_gold_than_places_is_refused():
    gold = torch.tensor([[[0, 1, 2]]])
    with pytest.raises(ValueError, match="3 gold rules but only 2"):
        keep_top(torch.randn(1, 9), 2, gold)
    assert keep_top(torch.randn(1, 9), 3, gold).sort().values.tolist() == [[0, 1, 2]]
