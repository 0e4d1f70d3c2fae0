"""Equations 4 and 5, SR-KI's and KBLaM's losses against loops over the formulas, values and gradients in float64."""

import math
from functools import partial

import pytest
import torch
from dynarule.memory.training import step_queries
from dynarule.projection import score_keys
from dynarule.training.losses import IGNORE, lm_loss, stacked_step_loss, step_recall

BATCH, HEADS, TOKENS, DIM, KEPT = 4, 3, 9, 5, 7
STEPS = [  # gold places among the kept rules, by instance and step: overlapping steps, one step, all positive, none
    [[0, 2], [2], [5]],
    [[1]],
    [[0, 1, 2, 3, 4, 5, 6], [3]],
    [],
]
SEARCH = torch.tensor([[4, 7], [-1, -1], [6, -1], [-1, -1]])
QUESTION = torch.tensor([[0, 1, 1, 1, 0, 0, 0, 0, 0]] * BATCH).bool()


def positives():
    gold = torch.zeros(BATCH, 3, KEPT, dtype=torch.bool)
    for b, steps in enumerate(STEPS):
        for t, places in enumerate(steps):
            gold[b, t, places] = True
    return gold


def loop_scores(query, key, b, t):
    """Equation 4 with plain sums."""
    places = QUESTION[b].nonzero().flatten().tolist() if t == 0 else [int(SEARCH[b, t - 1])]
    scores = []
    for m in range(KEPT):
        total = 0.0
        for p in places:
            for h in range(HEADS):
                total = total + sum(query[b, h, p, d] * key[b, m, h * DIM + d] for d in range(DIM))
        scores.append(total / len(places) / HEADS / math.sqrt(DIM))
    return scores


def loop_stacked(scores_of, temperature):
    """Equation 5, second term: every sum written out."""
    losses = []
    for b, steps in enumerate(STEPS):
        total, count = 0.0, 0
        for t, places in enumerate(steps):
            a = scores_of(b, t)
            for i in places:
                others = [j for j in range(KEPT) if j not in places or j == i]
                denominator = sum(torch.exp(a[j] / temperature) for j in others)
                total = total - torch.log(torch.exp(a[i] / temperature) / denominator)
                count += 1
        if count:
            losses.append(total / count)
    return sum(losses) / len(losses)


def assert_agree(near, fast, slow, tensors):
    """Values and gradients agree, and the gradients are not zero."""
    assert near(fast, slow)
    gradients = (torch.autograd.grad(loss, tensors) for loss in (fast, slow))
    for one, other in zip(*gradients, strict=True):
        assert near(one, other) and other.abs().max() > 1e-3


@pytest.mark.parametrize("temperature", (0.05, 1.0))
def test_the_stacked_step_loss_is_equation_5(temperature, near):
    generator = torch.Generator().manual_seed(0)
    shapes = (BATCH, HEADS, TOKENS, DIM), (BATCH, KEPT, HEADS * DIM)
    query, key = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes
    )
    scores = score_keys(step_queries(query, QUESTION, SEARCH), key)
    fast = stacked_step_loss(scores, positives(), temperature)
    slow = loop_stacked(partial(loop_scores, query, key), temperature)
    assert_agree(near, fast, slow, (query, key))
    assert not torch.allclose(fast, stacked_step_loss(scores, positives(), temperature * 1.1))


def test_no_gold_anywhere_is_zero_with_a_gradient():
    scores = torch.randn(2, 2, 3, requires_grad=True)
    loss = stacked_step_loss(scores, torch.zeros(2, 2, 3, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and torch.equal(scores.grad, torch.zeros_like(scores))


def test_srki_takes_the_gold_of_all_steps_at_once(near):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(BATCH, KEPT, generator=generator, dtype=torch.float64, requires_grad=True)
    losses = []
    for b, steps in enumerate(STEPS):
        gold = {i for places in steps for i in places}
        rest = [scores[b, j] for j in range(KEPT) if j not in gold]
        rows = [torch.stack([scores[b, i], *rest])[None] / 0.05 for i in gold]
        if rows:
            losses.append(
                sum(torch.nn.functional.cross_entropy(row, torch.tensor([0])) for row in rows) / len(rows)
            )
    fast = stacked_step_loss(scores[:, None], positives().any(1)[:, None])
    assert_agree(near, fast, sum(losses) / len(losses), (scores,))


@pytest.mark.parametrize("per_instance", (False, True))
def test_language_model_loss_counts_tokens_or_instances(per_instance, near):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(3, 6, 11, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[-100, -100, 3, 4, 5, 6], [-100, 2, -100, -100, -100, -100], [-100] * 6])
    logs = logits.log_softmax(-1)
    rows = [[-logs[b, n - 1, labels[b, n]] for n in range(1, 6) if labels[b, n] >= 0] for b in range(3)]
    slow = (sum(rows[0]) / 4 + rows[1][0]) / 2 if per_instance else sum(sum(row) for row in rows) / 5
    predicting = logits[:, :-1][labels[:, 1:] != IGNORE]
    assert_agree(near, lm_loss(predicting, labels, per_instance), slow, (logits,))
    if not per_instance:  # and what transformers computes
        from transformers.loss.loss_utils import ForCausalLMLoss

        assert near(lm_loss(predicting, labels).float(), ForCausalLMLoss(logits, labels, 11))


def test_language_model_loss_of_halves_is_that_of_their_numbers():
    generator = torch.Generator().manual_seed(5)
    logits = (4 * torch.randn(600, 50, generator=generator)).bfloat16().requires_grad_()
    labels = torch.cat([torch.tensor([IGNORE]), torch.randint(50, (600,), generator=generator)])[None]
    exact = torch.nn.functional.cross_entropy(
        wide := logits.detach().double().requires_grad_(), labels[0, 1:]
    )
    loss = lm_loss(logits, labels)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(exact.item(), rel=1e-3)
    ours, (wanted,) = torch.autograd.grad(loss, logits)[0], torch.autograd.grad(exact, wide)
    assert ours.dtype == torch.bfloat16 and (ours - wanted).norm() < 0.01 * wanted.norm()


def test_step_recall_takes_as_many_rules_as_a_step_has_gold():
    scores = torch.tensor([[[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [9.0, 0.0, 0.0, 0.0]]])
    gold = torch.tensor([[[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]]).bool()
    hits, steps = step_recall(scores, gold)
    assert (float(hits), int(steps)) == (1.5, 2)
