"""The training memory: the serving memory where they mean the same, gradients, checkpointing, bf16, visibility."""

from dataclasses import replace

import pytest
import torch
from dynarule.memory.training import RuleBatch, TrainingMemory
from dynarule.training.losses import lm_loss, stacked_step_loss

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, kblam_config

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
    answer = ~question & mask.bool()
    rules = RuleBatch(bank.keys_MP, bank.values_MP, question, answer, search, gold)
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


def test_reading_tokens_score_the_kept_rules_of_their_own_step(case, bank, family, tiny_model, near):
    """In the confidence layer and those that share its rules: mean over heads of q~ . k~ / sqrt(D), by loop."""
    model, (ids, mask, _, rules) = tiny_model(family), case[2]
    config = dynarule_config(WIDTH, confidence_layer=1, first_layer=1, shared_after=True, top_k=9)
    adapter = RuleAdapter(model, config)
    memory = TrainingMemory(adapter)
    reading = torch.zeros_like(ids, dtype=torch.bool)
    reading[0, [8, 9, 12]] = reading[1, 10] = True
    memory.load(replace(rules, reading_BT=reading))
    hidden = {}
    with attach(model, memory), torch.no_grad():
        inner = memory.attended
        memory.attended = lambda layer, states, block: (
            hidden.update({layer: (states, getattr(block, "q_norm", None))}) or inner(layer, states, block)
        )
        model(ids, attention_mask=mask)
    assert sorted(memory.reading) == list(range(1, adapter.num_layers))
    step_of = {(0, 8): 1, (0, 9): 1, (0, 12): 2, (1, 10): 1}
    gold = rules.gold_BSG
    for layer, (scores, positive) in memory.reading.items():
        assert torch.equal(memory.kept[layer], memory.kept[1])
        for n, ((b, t), step) in enumerate(step_of.items()):
            query = adapter[layer].query(*hidden[layer])[b, :, t]
            wanted = []
            for k, row in enumerate(memory.kept[1][b].tolist()):
                key = adapter[layer].heads(adapter[layer].keys(bank.keys_MP[row : row + 1]))[:, 0]
                wanted.append((query * key).sum(-1).mean() / query.shape[-1] ** 0.5)
                assert bool(positive[n, k]) == (row in gold[b, step].tolist())
            assert near(scores[n], torch.stack(wanted))


def both(model, ids, mask, *memories):
    """The logits of one batch under each of several memories."""
    logits = []
    for memory in memories:
        with torch.no_grad(), attach(model, memory):
            logits.append(model(ids, attention_mask=mask).logits)
    return logits


@pytest.mark.parametrize("make", (dynarule_config, kblam_config))
def test_all_rules_attended_is_the_serving_memory_s_forward(bank, tiny_model, make, family, near):
    model = tiny_model(family)
    adapter = RuleAdapter(model, make(WIDTH, confidence_layer=0, top_k=None, length_shift=20.0))
    ids, mask, _, rules = batch(bank)
    memory = TrainingMemory(adapter)
    memory.load(rules)
    ours, theirs = both(model, ids, mask, memory, RuleMemory(adapter, bank))
    with torch.no_grad():
        base = model(ids, attention_mask=mask).logits
    real = mask.bool()
    assert near(ours[real], theirs[real])
    assert not near(ours[real], base[real], units=10_000)


def test_measuring_scores_every_step_as_serving_does(bank, case, near):
    """Whatever training forces or reads ahead: `measure` must not see the answer before it is written."""
    model, adapter, (ids, mask, _, rules) = case
    memory = TrainingMemory(adapter)
    memory.measure = True
    memory.load(rules)
    serving = RuleMemory(adapter, bank, SEARCH)
    serving.question_mask_BT = rules.question_BT
    with torch.no_grad():
        with attach(model, memory):
            model(ids, attention_mask=mask)
        with attach(model, serving):
            model(ids, attention_mask=mask)
    scores = memory.scores.scores_BSK
    assert len(serving.trace) == 3 + 2
    for found in serving.trace:
        best = scores[found.row, found.step].topk(9)
        assert [f"r{i}" for i in best.indices.tolist()] == found.ids
        assert near(best.values, found.scores)


def test_the_prompt_s_set_is_what_serving_selects_at_prefill(bank, case, near):
    model, adapter, (ids, mask, _, rules) = case
    memory = TrainingMemory(adapter, pool_queries="prompt", force_gold=False)
    memory.load(rules)
    serving = RuleMemory(adapter, bank)
    with torch.no_grad():
        with attach(model, memory):
            model(ids, attention_mask=mask)
        with attach(model, serving):
            model(ids[:, :PROMPT])
    for row in range(2):
        found = next(r for r in serving.trace if r.row == row and r.layer == 2)
        assert [f"r{i}" for i in memory.kept[2][row].tolist()] == found.ids
        scores = memory.scores.scores_BSK[row, 0]
        assert near(scores, found.scores)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("measure", [True, False])
def test_a_set_per_step_is_serving_s_own_forward(bank, family, tiny_model, shared, measure, near):
    """With no gold forced, the logits are those of the memory that serves, through every <search>."""
    model = tiny_model(family)
    config = dynarule_config(WIDTH, confidence_layer=1, shared_after=shared, top_k=5, length_shift=20.0)
    adapter = RuleAdapter(model, config)
    ids, mask, _, rules = batch(bank)
    memory = TrainingMemory(adapter, pool_queries="step", force_gold=False)
    memory.measure = measure
    memory.load(rules)
    serving = RuleMemory(adapter, bank, SEARCH)
    serving.question_mask_BT = rules.question_BT
    ours, theirs = both(model, ids, mask, memory, serving)
    assert memory.kept[1].shape == (2, 3 * 5)
    for found in serving.trace:
        if found.layer == 1:
            kept = memory.kept[1][found.row].view(3, 5)[found.step]
            assert [f"r{i}" for i in kept.tolist()] == found.ids
    assert near(ours[mask.bool()], theirs[mask.bool()])


@pytest.mark.parametrize("count", [14, 15, 16])
def test_sets_per_step_as_large_as_the_pool_are_no_whole_pool(tiny_model, count, near):
    """Three sets of five among fifteen rules: they are not the fifteen rules in their order."""
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(count, WIDTH, generator=generator) for _ in range(2))
    bank = RuleBank(keys, values, [f"r{i}" for i in range(count)], [f"rule {i}" for i in range(count)])
    model = tiny_model("llama")
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=1, shared_after=True, top_k=5))
    ids, mask, _, rules = batch(bank)
    memory = TrainingMemory(adapter, pool_queries="step", force_gold=False)
    memory.load(rules)
    serving = RuleMemory(adapter, bank, SEARCH)
    serving.question_mask_BT = rules.question_BT
    ours, theirs = both(model, ids, mask, memory, serving)
    assert near(ours[mask.bool()], theirs[mask.bool()])


def test_with_sets_per_step_a_rule_counts_once_and_a_row_is_its_own(bank, tiny_model, near):
    model = tiny_model("llama")
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=1, top_k=9))
    ids, mask, _, rules = batch(bank)
    memory = TrainingMemory(adapter, pool_queries="step")

    def scores_of(batch, ids, mask):
        memory.load(batch)
        with attach(model, memory), torch.no_grad():
            model(ids, attention_mask=mask)
        return memory.scores, memory.kept[1]

    both, kept = scores_of(rules, ids, mask)
    for row in range(2):
        counted = kept[row][both.scores_BSK[row, 0] > -1e4]
        wanted = kept[row] if row == 0 else kept[row][:18]  # the second row has two steps of the three
        assert sorted(counted.tolist()) == sorted({*wanted.tolist()})
    alone = replace(
        rules,
        question_BT=rules.question_BT[1:],
        search_BS=rules.search_BS[1:, :1],
        gold_BSG=rules.gold_BSG[1:, :2],
        answer_BT=rules.answer_BT[1:],
    )
    one, _ = scores_of(alone, ids[1:], mask[1:])
    assert near(
        stacked_step_loss(one.scores_BSK, one.positives_BSK, 0.5),
        stacked_step_loss(both.scores_BSK[1:], both.positives_BSK[1:], 0.5),
    )


def test_a_set_per_step_holds_its_gold_and_is_read_alone(bank, tiny_model):
    model = tiny_model("llama")
    config = dynarule_config(WIDTH, confidence_layer=1, first_layer=1, shared_after=True, top_k=4)
    adapter = RuleAdapter(model, config)
    ids, mask, _, rules = batch(bank)
    reading = torch.zeros_like(ids, dtype=torch.bool)
    reading[0, [7, 8, 12]] = True
    memory = TrainingMemory(adapter, pool_queries="step")
    memory.load(replace(rules, reading_BT=reading))
    with attach(model, memory), torch.no_grad():
        model(ids, attention_mask=mask)
    sets = memory.kept[1].view(2, 3, 4)
    for b, t in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        assert {int(i) for i in rules.gold_BSG[b, t] if i >= 0} <= set(sets[b, t].tolist())
    for layer in (1, 2, 3):
        scores, gold = memory.reading[layer]
        for n, step in enumerate((0, 1, 2)):  # tokens 7, 8 (a <search>) and 12
            seen = torch.arange(12) // 4 == step
            assert (scores[n, ~seen] == -1e4).all() and (scores[n, seen].abs() < 100).all()
            wanted = [int(i) in rules.gold_BSG[0, step].tolist() for i in memory.kept[1][0]]
            assert torch.equal(gold[n], torch.tensor(wanted) & seen)


def test_scores_at_search_are_those_the_serving_memory_ranks_by(bank, case, near):
    model, adapter, (ids, mask, _, rules) = case
    adapter.config.confidence_layer = 0  # layer 0 sees no rule before it scores
    memory = TrainingMemory(adapter)
    memory.load(rules)
    serving = RuleMemory(adapter, bank, SEARCH)
    serving.question_mask_BT = rules.question_BT
    with torch.no_grad():
        with attach(model, memory):
            model(ids, attention_mask=mask)
        with attach(model, serving):
            model(ids, attention_mask=mask)
    side, pairs = memory.scores, []
    for found in serving.trace:
        kept = dict(
            zip(memory.kept[0][found.row].tolist(), side.scores_BSK[found.row, found.step], strict=True)
        )
        for name, score in zip(found.ids, found.scores, strict=True):
            if int(name[1:]) in kept:
                pairs.append((float(kept[int(name[1:])]), score))
    assert len(pairs) > 10 and near(*zip(*pairs, strict=True))


def test_pads_choose_nothing_and_full_dots_are_means_of_heads_times_the_root_of_their_number(case, near):
    model, adapter, (ids, mask, _, rules) = case
    found = []
    for fill, full_dot in ((0, False), (55, False), (0, True)):
        ids[1, 12:] = fill
        memory = TrainingMemory(adapter, full_dot=full_dot)
        memory.load(rules)
        with attach(model, memory), torch.no_grad():
            model(ids, attention_mask=mask)
        found.append((memory.scores, memory.kept))
    (scores, kept), (padded, also), (full, _) = found
    assert all(torch.equal(kept[layer], also[layer]) for layer in kept)
    assert near(padded.sequence_BK, scores.sequence_BK)
    assert near(full.scores_BSK, scores.scores_BSK * 4**0.5) and near(
        full.sequence_BK, scores.sequence_BK * 4**0.5
    )


def test_gold_is_forced_at_the_confidence_layer_only(case):
    model, adapter, (ids, mask, _, rules) = case
    memory = TrainingMemory(adapter)
    memory.load(rules)
    with attach(model, memory):
        model(ids, attention_mask=mask)
    for row, gold in enumerate(({0, 3, 4, 5}, {1, 2, 6})):
        assert gold <= set(memory.kept[2][row].tolist())
    free = TrainingMemory(adapter, force_gold=False)
    free.load(rules)
    with attach(model, free):
        model(ids, attention_mask=mask)
    for layer in (0, 1):
        assert torch.equal(memory.kept[layer], free.kept[layer])
    assert not torch.equal(memory.kept[2], free.kept[2])
    measured, prompt = TrainingMemory(adapter), TrainingMemory(adapter, "prompt", force_gold=False)
    measured.measure = True
    for each in (measured, prompt):
        each.load(rules)
        with attach(model, each), torch.no_grad():
            model(ids, attention_mask=mask)
    assert all(torch.equal(measured.kept[layer], prompt.kept[layer]) for layer in range(4))
    assert not {0, 3, 4, 5} <= set(memory.kept[0][0].tolist())  # so forcing there would show


@pytest.mark.parametrize("merge_from", (1, 32))
def test_gradients_reach_the_adapter_alone_and_equal_finite_differences(
    merge_from, bank, tiny_model, monkeypatch
):
    monkeypatch.setattr("dynarule.kernels.MERGE_MIN_TOKENS", merge_from)
    model = tiny_model("qwen2", torch.float64)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=9))
    ids, mask, labels, rules = batch(bank.to("cpu", torch.float64))
    memory = TrainingMemory(adapter)
    memory.load(rules)
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


@pytest.mark.parametrize("hide_later", (False, True))
def test_gradient_checkpointing_changes_nothing(case, hide_later, monkeypatch, near):
    monkeypatch.setattr("dynarule.kernels.MERGE_MIN_TOKENS", 1)
    model, adapter, (ids, mask, labels, rules) = case
    memory = TrainingMemory(adapter, hide_later=hide_later)
    memory.load(rules)
    found = []
    for checkpointing in (False, True):
        adapter.zero_grad()
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        calls = []
        original = memory.attended

        def counted(*args, original=original, calls=calls):
            calls.append(args[0])
            return original(*args)

        memory.attended = counted
        with attach(model, memory):
            loss = loss_of(model, memory, ids, mask, labels)
            loss.backward()
        memory.attended = original
        found.append((loss.detach(), [p.grad.clone() for p in adapter.parameters()], len(calls)))
    (loss, gradients, calls), (again, regained, recalls) = found
    assert (calls, recalls) == (4, 8)  # it did run the layers twice
    assert torch.equal(loss, again)
    largest = max(float(each.abs().max()) for each in gradients)
    for one, other in zip(gradients, regained, strict=True):
        assert near(other, one, scale=largest)


@pytest.mark.parametrize("masters", ("bfloat16", "float32"))
def test_bf16_is_close_to_fp32(bank, tiny_model, masters, near):
    """A bf16 base with bf16 adapters, and with fp32 adapters under autocast."""
    losses = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model("qwen2", torch.float32)
        torch.manual_seed(0)
        adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=None))
        model.to(dtype)
        if masters == "bfloat16":
            adapter.to(dtype)
        ids, mask, labels, rules = batch(bank)
        memory = TrainingMemory(adapter)
        memory.load(rules)
        with (
            attach(model, memory),
            torch.autocast("cpu", torch.bfloat16, enabled=masters == "float32" and dtype != torch.float32),
        ):
            loss = loss_of(model, memory, ids, mask, labels)
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in adapter.parameters())
        losses[dtype] = loss.item()
    found, wanted = losses[torch.bfloat16], losses[torch.float32]
    assert found != wanted
    assert near(torch.tensor(found, dtype=torch.bfloat16), wanted, units=6)


def test_visibility_by_step_hides_later_gold_from_earlier_tokens(case):
    """Change the value of a rule that is gold at step 2 alone: only tokens from the first <search> on may move."""
    model, adapter, (ids, mask, _, rules) = case
    adapter.config.top_k = 30
    outputs = {}
    for hide_later in (False, True):
        for scale in (1.0, -3.0):
            values = rules.values_MP.clone()
            values[4] *= scale
            memory = TrainingMemory(adapter, hide_later=hide_later)
            memory.load(replace(rules, values_MP=values))
            seen = []
            block = model.model.layers[2].self_attn
            hook = block.register_forward_hook(lambda m, a, out, seen=seen: seen.append(out[0]))
            with attach(model, memory), torch.no_grad():
                model(ids, attention_mask=mask)
            hook.remove()
            outputs[hide_later, scale] = seen[0]
    # Layers 0 and 1 see the rule too, so compare what layer 2 alone may hide: its mask.
    memory = TrainingMemory(adapter, hide_later=True)
    memory.load(rules)
    memory.begin(ids, mask, 0)
    visible = memory._visible(2, torch.arange(30).expand(2, -1))
    assert visible[0, :8, 4].sum() == 0 and visible[0, 8:, 4].all()  # rule 4 is gold at step 2
    assert visible[0, :11, 5].sum() == 0 and visible[0, 11:, 5].all()  # step 3
    assert visible[:, :, 10:].all() and visible[0, :, 0].all()  # others, and step 1
    assert visible[1, :9, 6].sum() == 0 and visible[1, 9:, 6].all() and visible[1, :, 4].all()
    assert memory._visible(1, torch.arange(30).expand(2, -1)) is None
    assert not torch.allclose(outputs[False, 1.0], outputs[True, 1.0])


def test_no_batch_is_the_base_model_and_misuse_says_so(bank, case):
    model, adapter, (ids, mask, _, rules) = case
    base = model(ids, attention_mask=mask).logits
    memory = TrainingMemory(adapter)
    with attach(model, memory):
        assert torch.equal(model(ids, attention_mask=mask).logits, base)
        memory.load(rules)
        with pytest.raises(ValueError, match="load each batch"):
            model(ids[:, :5])
    with pytest.raises(ValueError, match="adapter's encoder"):
        memory.load(replace(rules, keys_MP=bank.keys_MP[:, :7], values_MP=bank.values_MP[:, :7]))
    with pytest.raises(ValueError, match="2 steps, got gold rules of 3"):
        memory.load(replace(rules, search_BS=rules.search_BS[:, :1]))
    with pytest.raises(ValueError, match=r"pool_queries must be one of .* got 'answer'"):
        TrainingMemory(adapter, pool_queries="answer")
