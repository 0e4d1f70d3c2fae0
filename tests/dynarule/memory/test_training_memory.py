"""The training memory: the serving memory where they mean the same, gradients, checkpointing, bf16, visibility."""

from dataclasses import replace

import pytest
import torch
from dynarule.memory.selection import project
from dynarule.memory.training import RuleBatch, StepScores, TrainingMemory, keep_top
from dynarule.training.losses import lm_loss, stacked_step_loss

from dynarule import RuleAdapter, RuleMemory, attach, dynarule_config, kblam_config

WIDTH, SEARCH = 20, 7
PROMPT = 6


def batch(bank):
    """Two rows of 14 tokens, the second right-padded by two, with two and one <search>."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(10, 90, (2, 14), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    search = torch.tensor([[8, 11], [9, -1]])
    ids[0, 8] = ids[0, 11] = ids[1, 9] = SEARCH
    question = torch.zeros_like(ids, dtype=torch.bool)
    question[:, :PROMPT] = True
    gold = torch.tensor([[[0, 3], [4, -1], [5, -1]], [[1, -1], [2, 6], [-1, -1]]])
    labels = ids.masked_fill(question | ~mask.bool(), -100)
    rules = RuleBatch(bank.keys_MP, bank.values_MP, question, search, gold)
    return ids, mask, labels, rules


def loss_of(model, memory, ids, mask, labels):
    logits = model(ids, attention_mask=mask).logits
    side = memory.scores
    predicting = logits[:, :-1][labels[:, 1:] != -100]
    return lm_loss(predicting, labels) + stacked_step_loss(side.scores_BSK, side.positives_BSK, 0.5)


@pytest.fixture
def case(bank, tiny_model, family):
    model = tiny_model(family)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=9))
    return model, adapter, batch(bank)


def forward(model, ids, mask, *memories):
    """The logits of one batch under each of several memories."""
    logits = []
    for memory in memories:
        with torch.no_grad(), attach(model, memory):
            logits.append(model(ids, attention_mask=mask).logits)
    return logits


def loaded(adapter, rules, measure=False, **settings):
    memory = TrainingMemory(adapter, **settings)
    memory.measure = measure
    memory.load(rules)
    return memory


@pytest.mark.parametrize(("beside", "ahead"), [(0, 0.0), (1, 0.0), (2, 1.0)])
@pytest.mark.parametrize(("mark", "place"), [(None, "behind"), ("w7", "behind"), (None, "premise")])
def test_each_step_reads_its_own_rules(bank, tiny_model, mark, place, beside, ahead):
    """Those of the first are read from the question on, or where a mark of the base's own opens it, from there on.

    Before a first search behind a premise others are read, and never a gold rule. One of a step's rules is weighed
    down by nothing, as the best of a search; later steps' may be read ahead. Others are the first of the step's search.
    """
    adapter = RuleAdapter(tiny_model("llama"), dynarule_config(WIDTH, search_token=mark, search_place=place))
    *_, rules = batch(bank)
    rows = torch.arange(len(rules.keys_MP)).flip(0).expand(2, -1)
    steps = {"beside": beside, "from": 3.0, "to": 8.0, "spread": 2.0, "ahead": ahead}
    memory = loaded(adapter, rules, all_rules=True, steps=steps)
    scores = torch.randn(*rules.gold_BSG.shape[:2], rows.shape[1], generator=torch.manual_seed(0))
    memory.scores = StepScores(scores, scores > 0, scores[:, 0])
    places, seen, shift = memory._as_found(rows, steps)
    assert len({*places.tolist()}) == seen.shape[-1] == shift.shape[-1]
    for row, starts in enumerate([(0, 8, 11), (0, 9)]):
        pool = rows[row].tolist()
        others = set(pool) - set(rules.gold_BSG[row].flatten().tolist())
        kept = [pool[at] for at in places.tolist()]
        for token in range(14):
            step = sum(start <= token for start in starts) - 1
            if mark and not step:
                assert not seen[row, token].any()
                continue
            own, later = (
                set(rules.gold_BSG[row, at].flatten().tolist()) & set(pool)
                for at in (step, slice(step, None))
            )
            read = {rule for rule, see in zip(kept, seen[row, token].tolist(), strict=True) if see}
            best = sorted(others, key=lambda rule: -float(scores[row, step, pool.index(rule)]))[:beside]
            assert mark or read & others == set(best)
            assert len(read & others) == min(beside, len(others))
            if place == "premise" and not step:
                assert read <= others
                continue
            assert read - others == (later if ahead else own)
            weights = dict(zip(kept, shift[row, 0, token].tolist(), strict=True))
            assert not own or [weights[rule] for rule in own].count(0.0) == 1
            lowest = {rule: (-2, 0) if rule in own else (-8, -3) for rule in kept}
            assert all(lowest[rule][0] <= weights[rule] <= lowest[rule][1] for rule in kept)


def test_scores_say_which_of_the_kept_rules_are_read(bank, tiny_model, near):
    """So much weight leaves the best alone, in the layer that finds and in those that share what it keeps."""
    model = tiny_model("llama")
    config = dynarule_config(WIDTH, first_layer=1, confidence_layer=1, shared_after=True, top_k=4)
    adapter, (ids, mask, *_) = RuleAdapter(model, config), batch(bank)
    changes = {"top_k": 1}, {"score_weight": 1e6}, {}
    one, best, all_four = forward(
        model, ids, mask, *(RuleMemory(adapter, bank, config=replace(config, **change)) for change in changes)
    )
    assert near(best[mask.bool()], one[mask.bool()], units=2000)
    assert not near(all_four[mask.bool()], one[mask.bool()], units=2000)


def test_each_step_weighs_what_it_reads_by_its_search_as_serving_does(bank, tiny_model):
    """Counted from the best of what it reads, whatever weights the recipe of the steps has."""
    settings = {"search_place": "premise", "confidence_layer": 2, "shared_after": True, "score_weight": 4.0}
    adapter = RuleAdapter(tiny_model("llama"), dynarule_config(WIDTH, top_k=3, **settings))
    *_, rules = batch(bank)
    steps = {"beside": 2.0, "from": 3.0, "to": 8.0, "spread": 2.0, "ahead": 0.0}
    memory = loaded(adapter, rules, all_rules=True, steps=steps)
    rows = torch.arange(len(rules.keys_MP)).expand(2, -1)
    scores = torch.randn(*rules.gold_BSG.shape[:2], rows.shape[1], generator=torch.manual_seed(0))
    memory.scores = StepScores(scores, scores > 0, scores[:, 0])
    places, seen, shift = memory._as_found(rows, steps)
    for row, starts in enumerate([(0, 8, 11), (0, 9)]):
        for token in range(14):
            of_step = scores[row, sum(start <= token for start in starts) - 1][places]
            read = seen[row, token]
            torch.testing.assert_close(shift[row, 0, token][read], 4 * (of_step[read] - of_step[read].max()))


@pytest.mark.parametrize("make", (dynarule_config, kblam_config))
def test_all_rules_attended_is_the_serving_memory_s_forward(bank, tiny_model, make, family, near):
    model = tiny_model(family)
    adapter = RuleAdapter(model, make(WIDTH, confidence_layer=0, top_k=None, length_shift=20.0))
    ids, mask, _, rules = batch(bank)
    ours, theirs = forward(model, ids, mask, loaded(adapter, rules), RuleMemory(adapter, bank))
    with torch.no_grad():
        base = model(ids, attention_mask=mask).logits
    real = mask.bool()
    assert near(ours[real], theirs[real])
    assert not near(ours[real], base[real], units=10_000)


def test_measuring_selects_and_scores_every_step_as_serving_does(bank, case, near):
    """Whatever training forces or reads ahead: `measure` must not see the answer before it is written."""
    model, adapter, (ids, mask, _, rules) = case
    memory, serving = loaded(adapter, rules, measure=True), RuleMemory(adapter, bank, SEARCH)
    serving.question_mask_BT = rules.question_BT
    forward(model, ids, mask, memory, serving)
    assert len(serving.trace) == 3 + 2
    for found in serving.trace:
        best = memory.scores.scores_BSK[found.row, found.step].topk(9)
        assert [f"r{i}" for i in best.indices.tolist()] == found.ids
        assert near(best.values, found.scores)
        if not found.step:
            assert [f"r{i}" for i in memory.kept[2][found.row].tolist()] == found.ids


def test_pads_choose_nothing(case, near):
    model, adapter, (ids, mask, _, rules) = case
    memories = [loaded(adapter, rules) for _ in range(2)]
    for fill, memory in zip((0, 55), memories, strict=True):
        ids[1, 12:] = fill
        forward(model, ids, mask, memory)
    one, other = memories
    assert all(torch.equal(one.kept[layer], other.kept[layer]) for layer in one.kept)
    assert near(one.scores.sequence_BK, other.scores.sequence_BK)


def test_gold_is_forced_at_the_confidence_layer_only(case):
    model, adapter, (ids, mask, _, rules) = case
    whole, prompt = loaded(adapter, rules), loaded(adapter, rules, prompt_queries=True)
    measured = loaded(adapter, rules, measure=True)
    forward(model, ids, mask, whole, prompt, measured)
    for row, gold in enumerate(rules.gold_BSG.tolist()):
        for memory in (whole, prompt):
            kept = memory.kept[2][row].tolist()
            for step, wanted in enumerate(gold):
                marked = [kept[at] for at in memory.scores.positives_BSK[row, step].nonzero().flatten()]
                assert sorted(marked) == sorted(rule for rule in wanted if rule >= 0)
    for layer in (0, 1):
        assert torch.equal(prompt.kept[layer], measured.kept[layer])
        assert not torch.equal(prompt.kept[layer], whole.kept[layer])
    assert not torch.equal(prompt.kept[2], measured.kept[2])
    assert not {0, 3, 4, 5} <= set(whole.kept[0][0].tolist())  # so forcing there would show


@pytest.mark.parametrize("merge_from", (1, 32))
def test_gradients_reach_the_adapter_alone_and_equal_finite_differences(
    merge_from, bank, tiny_model, monkeypatch
):
    monkeypatch.setattr("dynarule.kernels.MERGE_MIN_TOKENS", merge_from)
    model = tiny_model("qwen2", torch.float64)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=9))
    ids, mask, labels, rules = batch(bank.to("cpu", torch.float64))
    memory = loaded(adapter, rules)
    with attach(model, memory):
        loss_of(model, memory, ids, mask, labels).backward()
        assert all(p.grad is None for name, p in model.named_parameters() if "dynarule_" not in name)
        for name, parameter in adapter.named_parameters():
            if name.endswith("k.bias"):
                continue  # checked below like the others, but LayerNorm may leave it small
            assert parameter.grad.abs().max() > 0, name
        for name in ("2.k.weight", "2.q.weight", "2.v.weight", "0.v.weight", "1.k.weight", "1.q.bias"):
            parameter = adapter.layers.get_parameter(name)
            place = tuple(int(i) for i in (parameter.grad.abs() == parameter.grad.abs().max()).nonzero()[0])
            before, values = parameter[place].item(), []
            for step in (1e-3, -1e-3):  # transformers' RMSNorm rounds to fp32, so no smaller
                with torch.no_grad():
                    parameter[place] = before + step
                    values.append(loss_of(model, memory, ids, mask, labels).item())
                    parameter[place] = before
            rounding = torch.finfo(torch.float32).eps * values[0] / 2e-3
            assert (values[0] - values[1]) / 2e-3 == pytest.approx(
                parameter.grad[place].item(), rel=3e-3, abs=rounding
            ), name


def test_layers_that_are_computed_again_read_the_same_rules_or_none(case):
    """Gradient checkpointing has the gradients of the whole; what would read other rules is refused."""
    model, adapter, (ids, mask, labels, rules) = case
    model.train()
    adapter.requires_grad_(True)

    def gradients(between=lambda memory: None, leave=False):
        adapter.zero_grad()
        memory = loaded(adapter, rules)
        with attach(model, memory):
            loss = loss_of(model, memory, ids, mask, labels)
            between(memory)
            if not leave:
                loss.backward()
        loss.backward() if leave else None
        return [parameter.grad.clone() for parameter in adapter.parameters() if parameter.grad is not None]

    whole = gradients()
    model.enable_input_require_grads()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert all(torch.equal(one, other) for one, other in zip(gradients(), whole, strict=True))
    for between in (
        lambda memory: memory.load(rules),
        lambda memory: memory.load(None),
        lambda memory: model(ids, attention_mask=mask),
    ):
        with pytest.raises(ValueError, match="backward after each forward"):
            gradients(between)
    with pytest.raises(ValueError, match="no rule memory is attached any more"):
        gradients(leave=True)
    model.activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match='"use_reentrant": False'):
        gradients()


def test_no_batch_is_the_base_model(case):
    model, adapter, (ids, mask, *_) = case
    base = model(ids, attention_mask=mask).logits
    memory = TrainingMemory(adapter)
    with attach(model, memory):
        assert torch.equal(model(ids, attention_mask=mask).logits, base)


def test_autocast_rounds_no_projection_of_rules(bank, tiny_model):
    """Embeddings that share nearly all they have keep what tells them apart."""
    projection = RuleAdapter(tiny_model("llama"), dynarule_config(WIDTH))[1]
    alike = bank.keys_MP[:1] + 1e-4 * bank.keys_MP
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = project(projection, alike, alike)
    with torch.no_grad():
        expected = projection.keys(alike), projection.values(alike)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other)


# Equation 3 against sets: TopK, gold added, as many others dropped, whatever the counts in a batch.


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
