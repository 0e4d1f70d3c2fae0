"""Training of finding alone: it learns to look ahead, its weights are those that serve, and a kill changes nothing."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from dynarule.plus import RetrievalRecipe, train_retrieval
from dynarule.plus.finder import FLOOR, Finder, whitening
from dynarule.plus.reader import SearchInput
from dynarule.plus.retrieval_loop import RetrievalLoop
from dynarule.plus.searches import KnownSearch, Searches
from dynarule.training import Encoder
from dynarule.training.pools import keyed

from dynarule import PlusMemory, RuleAdapter, RuleBank, attach, dynarule_config, load_adapter, prepare_search

WIDTH, LAYER, STATES, FAN = 80, 0, 80, 3


@pytest.fixture(scope="module")
def world():
    """States with three rules each, chains of two rules, and what is asked: which end, from which start."""
    draw = keyed(5)
    after = {state: draw.permutation(STATES)[:FAN].tolist() for state in range(STATES)}
    rules = [(one, two) for one, ends in after.items() for two in ends]
    texts = [f"w{10 + one} => w{10 + two}" for one, two in rules]
    vectors = torch.nn.functional.normalize(
        torch.randn(STATES, WIDTH, generator=torch.Generator().manual_seed(1))
    )
    keys, values = (vectors[[pair[side] for pair in rules]] for side in (0, 1))
    bank = RuleBank(keys, values, [str(i) for i in range(len(rules))], texts)
    rows = []
    for first, (start, middle) in enumerate(rules):
        for second, (again, end) in enumerate(rules):
            # The way must be the only one of two rules.
            ways = sum(end in after[each] for each in after[start])
            if again == middle and ways == 1 and end not in after[start]:
                steps = [f"w4 w{10 + start} w5 w{10 + middle}", f"w4 w{10 + middle} w5 w{10 + end}"]
                rows.append(
                    {
                        "question": f"w2 w{10 + start} w3 w{10 + end}",
                        "steps": [
                            {"text": text, "rule_ids": [str(rule)]}
                            for text, rule in zip(steps, (first, second), strict=True)
                        ],
                        "answers": [f"w{10 + end}"],
                    }
                )
    order = keyed(6).permutation(len(rows)).tolist()
    return bank, [rows[i] for i in order[40:]], [rows[i] for i in order[:40]]


def target(row):
    first, second = (step["text"] for step in row["steps"])
    return f"<search> {first} <search> {second} w6 {row['answers'][0]}"


def trained(world, tiny_model, tiny_tokenizer, folder, recipe, resume=False, **changes):
    bank, rows, held_out = world
    model, tokenizer = tiny_model("llama", hidden_size=96), tiny_tokenizer(search=True)
    prepare_search(model, tokenizer)
    torch.manual_seed(0)
    settings = {
        "confidence_layer": LAYER,
        "first_layer": LAYER,
        "top_k": 1,
        "search_heads": 2,
        "lookahead": 2,
        "lookahead_width": 4,
    }
    adapter = RuleAdapter(model, dynarule_config(WIDTH, **(settings | changes)))
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)}, target)
    log = train_retrieval(
        model,
        tokenizer,
        adapter,
        rows,
        bank,
        recipe,
        folder,
        held_out=held_out,
        encoder=encoder,
        resume=resume,
    )
    return log, adapter, tokenizer


SHORT = RetrievalRecipe(max_steps=6, batch_size=8, pool_size=20, evaluate_every=2, warmup_ratio=0.0)
LONG = RetrievalRecipe(max_steps=300, batch_size=48, pool_size=100, evaluate_every=100)


def served(world, tiny_model, tokenizer, folder):
    """Recall@1 of held-out searches as answering has it, with the adapter of a folder; how many there are."""
    bank, _, held_out = world
    model = tiny_model("llama", hidden_size=96)
    prepare_search(model, tokenizer)
    model = load_adapter(model, folder)
    search, hits, searches = tokenizer.convert_tokens_to_ids("<search>"), 0, 0
    for row in held_out:
        question = tokenizer(row["question"])["input_ids"]
        ids = torch.tensor([[*question, *tokenizer(target(row))["input_ids"]]])
        with torch.no_grad(), attach(model, PlusMemory(model, bank, search)) as memory:
            memory.question_mask_BT = torch.arange(ids.shape[1])[None] < len(question)
            model(ids)
        found = [each.ids[0] for each in memory.trace if each.step]
        hits += sum(one == step["rule_ids"][0] for one, step in zip(found, row["steps"], strict=True))
        searches += len(found)
    return hits / searches, searches


PAPERS = {"search_heads": 0, "lookahead": 0}
PLACES = {"search_offsets": 3, "search_tail": 2}


@pytest.mark.parametrize(
    "query", [{}, PAPERS, PLACES], ids=["looks ahead", "as in the paper", "by the last step's place"]
)
def test_what_is_saved_finds_what_was_measured(world, tiny_model, tiny_tokenizer, tmp_path, query):
    """The weights are trained in other coordinates than they serve in."""
    log, _, tokenizer = trained(world, tiny_model, tiny_tokenizer, tmp_path, SHORT, **query)
    recall, searches = served(world, tiny_model, tokenizer, tmp_path)
    assert recall == pytest.approx(max(entry["recall"] for entry in log), abs=1.5 / searches)


@torch.no_grad()
def test_what_is_folded_asks_the_same_of_raw_states(tiny_model):
    """Six steps of training move an offset too little for the test above to see one that was lost."""
    adapter = RuleAdapter(
        tiny_model("llama", hidden_size=96),
        dynarule_config(
            WIDTH, confidence_layer=0, first_layer=0, search_heads=2, search_offsets=3, search_tail=2
        ),
    )
    torch.manual_seed(2)
    states = torch.randn(40, 96) * torch.linspace(0.5, 3, 96) + 1
    searches = Searches(states, torch.zeros(2, 40, dtype=torch.bool), [0], [], [], [])
    finder = Finder(adapter[0], torch.randn(100, WIDTH), torch.randn(100, WIDTH), searches)
    for parameter in finder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    finder.projection.reader.offset.normal_(std=3)
    finder.projection.reader.tail.normal_(std=3)
    finder.fold_into(adapter[0])
    kinds = torch.tensor([[0, 0, 0, 0, 0, 1, 2, 2, 3]])
    asked = SearchInput(states[None, :9], kinds, states[8][None])
    torch.testing.assert_close(
        adapter[0].reader(asked), finder.projection.reader(finder.white(asked)), rtol=1e-3, atol=1e-3
    )


@torch.no_grad()
def test_a_search_looks_for_its_own_words(tiny_model):
    """Untrained, it finds the rule that says what the text before it says, and a conclusion's premise follows it."""
    adapter = RuleAdapter(
        tiny_model("llama", hidden_size=96),
        dynarule_config(96, confidence_layer=0, first_layer=0, search_heads=2, lookahead=2),
    )
    torch.manual_seed(4)
    keys, tokens = torch.randn(300, 96) * torch.linspace(0.5, 3, 96) + 1, 6
    states = keys[:40].repeat_interleave(tokens, 0) + 0.3 * torch.randn(40 * tokens, 96)
    items = [KnownSearch(at, tokens - 1, [at], [at], False) for at in range(40)]
    marks = torch.zeros(2, len(states), dtype=torch.bool)
    known = Searches(states, marks, list(range(0, len(states), tokens)), items, [], [""] * 40)

    def found(looked_up):
        torch.manual_seed(5)
        finder = Finder(adapter[0], keys, keys.roll(-1, 0), known)
        if looked_up:
            finder.look_up(known, 0.05)
        asked = finder.white(known.asked(range(40), keys.device))
        scores, goals = finder.scores(asked, finder.keys_MP), finder.ahead.goal(asked) @ finder.values_MP.T
        links = finder.ahead.link_logits(finder.keys_MP, finder.values_MP)
        follows = [float((links.argmax(0) == torch.arange(1, 301) % 300).float().mean())]
        for each, gold in ((scores, torch.arange(40)), (goals, (torch.arange(40) - 1) % 300)):
            follows.append(float((each.argmax(-1) == gold).float().mean()))
        return follows, scores.std(-1).mean()

    (links, rules, goals), spread = found(True)
    assert min(links, rules, goals) > 0.9 and spread == pytest.approx(0.1, rel=0.2)
    assert max(found(False)[0]) < 0.2


@pytest.mark.parametrize("free_rate", [0.0, 1.0])
def test_what_is_learned_beside_the_own_words_has_a_rate_of_its_own(tiny_model, free_rate):
    """At none only the multiples of the words are learned; what serves is the sum of both."""
    config = dynarule_config(96, confidence_layer=0, first_layer=0, search_heads=2, lookahead=2)
    adapter = RuleAdapter(tiny_model("llama", hidden_size=96), config)
    torch.manual_seed(4)
    keys, tokens = torch.randn(300, 96), 6
    states = keys[:40].repeat_interleave(tokens, 0) + torch.randn(40 * tokens, 96)
    items = [KnownSearch(at, tokens - 1, [at], [at], False) for at in range(40)]
    marks = torch.zeros(2, len(states), dtype=torch.bool)
    known = Searches(states, marks, list(range(0, len(states), tokens)), items, [(1, 0), (2, 1)], [""] * 40)
    finder = Finder(adapter[0], keys, keys.roll(-1, 0), known)
    finder.look_up(known, 0.05)
    run = RetrievalLoop(
        finder, known, None, range(300), replace(SHORT, look_up=True, free_rate=free_rate), 2, 4
    )
    weight = finder.projection.reader.out.parametrizations.weight
    free, multiple = weight.original, weight[0].multiple
    before = multiple.detach().clone()
    for step in range(3):
        run.step(step)
    assert not torch.equal(multiple, before) and bool(free.any()) == bool(free_rate)
    finder.fold_into(adapter[0])
    asked = known.asked(range(4), keys.device)
    for mine, served in (
        (finder.projection.reader, adapter[0].reader),
        (finder.ahead.goal, adapter[0].lookahead.goal),
    ):
        got = mine(finder.white(asked))
        got = got if mine is finder.projection.reader else got @ finder.white_values_PP
        torch.testing.assert_close(served(asked), got, rtol=1e-3, atol=1e-3)


def twins_after_training(tiny_model, link_ends):
    """Train links alone; return how well premises follow the conclusions before them, and those conclusions' twins.

    A ring of thirty rules, each with a twin of nearly the same conclusion after which no chain goes on.
    """
    count, generator = 30, torch.Generator().manual_seed(3)
    states, has = torch.randn(count, WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)
    creatures = torch.randn(count, WIDTH, generator=generator)
    after = states.roll(-1, 0)
    keys, values = torch.cat([states, creatures]), torch.cat([after, after + 0.7 * has])
    items = [KnownSearch(0, 0, [i, count + i], [i], False) for i in range(count)]
    links = [(i, (i + 1) % count) for i in range(count)]
    known = Searches(
        torch.randn(40, 96), torch.zeros(2, 40, dtype=torch.bool), [0], items, links, ["multi_hop"]
    )
    adapter = RuleAdapter(
        tiny_model("llama", hidden_size=96),
        dynarule_config(WIDTH, confidence_layer=0, first_layer=0, search_heads=2, lookahead=2),
    )
    torch.manual_seed(0)
    finder = Finder(adapter[0], keys, values, known)
    recipe = RetrievalRecipe(link_ends=link_ends)
    run = RetrievalLoop(finder, known, None, list(range(2 * count)), recipe, 2, 4)
    assert run.chain_ends == list(range(count, 2 * count))
    for step in range(60):
        run.optimizer.zero_grad()
        run.link_loss(links, keyed(1, step)).backward()
        run.optimizer.step()
    with torch.no_grad():
        logits = finder.ahead.link_logits(finder.keys_MP[:count], finder.values_MP).sigmoid()
    return logits[:, :count].roll(-1, 0).diagonal().mean(), logits[:, count:].roll(-1, 0).diagonal().mean()


def test_every_gold_rule_of_a_step_has_rivals_of_its_premise(tiny_model):
    """Not its first alone: what a creature has is gold beside the rule that a chain goes on with."""
    premises = [0, 0, 0, 1, 1, 1, 2]
    items = [KnownSearch(0, 0, [0, 3], [0], False)]
    known = Searches(torch.randn(40, 96), torch.zeros(2, 40, dtype=torch.bool), [0], items, [], ["multi_hop"])
    adapter = RuleAdapter(
        tiny_model("llama", hidden_size=96),
        dynarule_config(WIDTH, confidence_layer=0, first_layer=0, search_heads=2),
    )
    finder = Finder(adapter[0], torch.randn(7, WIDTH), torch.randn(7, WIDTH), known)
    run = RetrievalLoop(finder, known, None, premises, RetrievalRecipe(hard_rules=40), 0, 0)
    rivals = run.hard_rules(items, keyed(2))
    assert len(rivals) == 40 and set(rivals) == {0, 1, 2, 3, 4, 5}


def test_a_conclusion_that_nothing_follows_is_told_from_one_of_nearly_the_same_words(tiny_model):
    follows, twin = twins_after_training(tiny_model, 0.5)
    assert follows > 0.8 and twin < 0.2
    follows, twin = twins_after_training(tiny_model, 0.0)
    assert follows > 0.8 and twin > 0.5


@pytest.mark.slow
def test_it_learns_to_look_ahead(world, tiny_model, tiny_tokenizer, tmp_path):
    log, _, tokenizer = trained(world, tiny_model, tiny_tokenizer, tmp_path, LONG)
    best = max(log, key=lambda entry: entry["recall"])
    # Of a state's three rules one leads to the end: who knows the state alone guesses at the first step.
    assert best["recall"] > best["recall_state"] + 0.1
    recall, searches = served(world, tiny_model, tokenizer, tmp_path)
    assert recall == pytest.approx(best["recall"], abs=1.5 / searches)


def test_a_training_that_was_killed_ends_the_same(world, tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    whole, adapter, _ = trained(world, tiny_model, tiny_tokenizer, tmp_path / "whole", SHORT)
    from dynarule.plus import retrieval_loop as retrieval

    real, calls = retrieval.write_whole, []

    def killed(path, content):
        real(path, content)
        calls.append(path.name)
        if calls.count("retrieval.json") == 1 and path.name == "retrieval.json":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retrieval, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(world, tiny_model, tiny_tokenizer, tmp_path / "killed", SHORT)
    with pytest.raises(FileExistsError, match="go on with resume"):
        trained(world, tiny_model, tiny_tokenizer, tmp_path / "killed", SHORT)
    again, other, _ = trained(world, tiny_model, tiny_tokenizer, tmp_path / "killed", SHORT, resume=True)
    assert json.dumps(again) == json.dumps(whole)
    for (name, one), (_, two) in zip(
        adapter.layers.named_parameters(), other.layers.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name


def test_what_cannot_be_trained_is_refused_in_a_line(world, tiny_model, tiny_tokenizer, tmp_path):
    with pytest.raises(ValueError, match="rules join from layer 0, below the confidence layer 2"):
        trained(world, tiny_model, tiny_tokenizer, tmp_path, SHORT, first_layer=0, confidence_layer=2)
    with pytest.raises(ValueError, match="needs an adapter with a confidence_layer"):
        trained(world, tiny_model, tiny_tokenizer, tmp_path, SHORT, **PAPERS, confidence_layer=None)
    model, tokenizer = tiny_model("qwen3", hidden_size=96), tiny_tokenizer(search=True)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=LAYER, first_layer=LAYER, **PAPERS))
    with pytest.raises(ValueError, match="norms its queries"):
        train_retrieval(model, tokenizer, adapter, world[1], world[0], SHORT, tmp_path)
    with pytest.raises(ValueError, match=r"look_up needs search_heads .*width 96, the bank has 80"):
        trained(world, tiny_model, tiny_tokenizer, tmp_path / "words", replace(SHORT, look_up=True))
    with pytest.raises(ValueError, match="look_up must be true or false, got 1"):
        RetrievalRecipe(look_up=1)
    with pytest.raises(ValueError, match=r"beside the text's own words; set look_up, got 0\.1"):
        RetrievalRecipe(free_rate=0.1)
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        RetrievalRecipe(batch_size=0)
    with pytest.raises(ValueError, match="learning_rate must be 0 or more, got -1"):
        RetrievalRecipe(learning_rate=-1)


def test_finding_is_trained_on_one_device(tiny_model, monkeypatch):
    """On one that has no numbers, nor autocast, and refuses what is on another, as an accelerator does."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    config = dynarule_config(96, confidence_layer=0, first_layer=0, search_heads=2, lookahead=2)
    adapter = RuleAdapter(tiny_model("llama", hidden_size=96), config).to("meta")
    items = [KnownSearch(0, 5, [0], [0], False)]
    known = Searches(torch.randn(6, 96), torch.zeros(2, 6, dtype=torch.bool), [0], items, [(1, 0)], [""])
    keys = torch.empty(300, 96, device="meta")
    finder = Finder(adapter[0], keys, keys, known)
    finder.look_up(known, 0.05)
    assert finder.scores(finder.white(known.asked([0], keys.device)), keys).device == keys.device
    finder.fold_into(adapter[0])


def test_whitened_embeddings_vary_alike_in_all_directions_but_those_of_noise(near):
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([10.0, 3.0, 1.0, 1e-4])
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    embeddings = torch.randn(5000, 4, generator=generator) * spread @ turn
    white = whitening(embeddings, block=1000)
    assert near(white, white.T)
    moment, wide = (embeddings.T @ embeddings / len(embeddings)).double(), white.double()
    floored = moment + FLOOR * moment.trace() / 4 * torch.eye(4)
    condition = torch.linalg.cond(floored)
    assert near((wide @ floored @ wide * 4).float(), torch.eye(4), scale=condition)
    after = (embeddings.double() @ wide @ turn.T.double()).square().mean(0)
    assert after[:3].min() > 0.19 and after[3] < 1e-6  # the direction of noise is not blown up
