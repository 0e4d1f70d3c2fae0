"""Training of finding alone: it learns to look ahead, its weights are those that serve, and a kill changes nothing."""

import json
from dataclasses import replace

import pytest
import torch
from dynarule.plus import RetrievalRecipe, train_retrieval
from dynarule.plus.finder import Finder
from dynarule.plus.retrieval_loop import RetrievalLoop
from dynarule.plus.searches import KnownSearch, Searches
from dynarule.training import Encoder, paper_recipe
from dynarule.training import train as train_reading
from dynarule.training.optimizers import FLOOR, whitening
from dynarule.training.pools import keyed

from dynarule import RuleAdapter, RuleBank, attach, dynarule_config, load_adapter, prepare_search, rule_memory

WIDTH, LAYER, STATES, FAN = 80, 0, 80, 3
SHORT = RetrievalRecipe(max_steps=6, batch_size=8, pool_size=20, evaluate_every=2)
LONG = RetrievalRecipe(max_steps=300, batch_size=48, pool_size=100, evaluate_every=100)
READS = {"search_heads": 2, "lookahead": 2, "lookahead_width": 4}
PAPERS = {"paper": True, "search_token": "<search>"}
PLACES = {"search_offsets": 3, "search_tail": 2}


@pytest.fixture(scope="module")
def world():
    """States with three rules each, chains of two rules, and what is asked: which end, from which start."""
    draw = keyed(5)
    after = {state: draw.permutation(STATES)[:FAN].tolist() for state in range(STATES)}
    rules = [(one, two) for one, ends in after.items() for two in ends]
    texts = [f"w{10 + one} => w{10 + two}" for one, two in rules]
    generator = torch.Generator().manual_seed(1)
    vectors = torch.nn.functional.normalize(torch.randn(STATES, WIDTH, generator=generator))
    keys, values = (vectors[[pair[side] for pair in rules]] for side in (0, 1))
    bank = RuleBank(keys, values, [str(i) for i in range(len(rules))], texts)
    rows = []
    for first, (start, middle) in enumerate(rules):
        for second, (again, end) in enumerate(rules):
            # The way must be the only one of two rules.
            ways = sum(end in after[each] for each in after[start])
            if again == middle and ways == 1 and end not in after[start]:
                steps = [
                    {"text": f"w4 w{10 + one} w5 w{10 + two}", "rule_ids": [str(rule)]}
                    for one, two, rule in ((start, middle, first), (middle, end, second))
                ]
                question = f"w2 w{10 + start} w3 w{10 + end}"
                rows.append({"question": question, "steps": steps, "answers": [f"w{10 + end}"]})
    order = keyed(6).permutation(len(rows)).tolist()
    return bank, [rows[i] for i in order[40:]], [rows[i] for i in order[:40]]


def target(row):
    first, second = (step["text"] for step in row["steps"])
    return f"<search> {first} <search> {second} w6 {row['answers'][0]}"


def later_searches(row):
    """The paper's first step is what the question asks for."""
    return target(row).removeprefix("<search> ")


def adapter_of(model, width=WIDTH, paper=False, **changes):
    settings = {"confidence_layer": LAYER, "first_layer": LAYER, "top_k": 1} | ({} if paper else READS)
    return RuleAdapter(model, dynarule_config(width, **(settings | changes)))


@pytest.fixture
def trained(world, tiny_model, tiny_tokenizer):
    """The function that trains an adapter on the world, and returns log, adapter and tokenizer."""

    def train(folder, recipe=SHORT, family="llama", resume=False, other="", **changes):
        bank, rows, held_out = world
        rows = rows[::-1] if other == "questions" else rows
        held_out = held_out[1:] if other == "held-out questions" else held_out
        if other == "rules":
            bank = RuleBank(bank.keys_MP, bank.values_MP, bank.ids, [f"{text} so" for text in bank.texts])
        model, tokenizer = tiny_model(family, hidden_size=96), tiny_tokenizer(search=True)
        prepare_search(model, tokenizer)
        if other == "model":
            model.get_decoder().layers[2].self_attn.o_proj.weight.mul_(2)
        torch.manual_seed(0)
        adapter = adapter_of(model, **changes)
        if other == "rules are read otherwise below":
            adapter[0].v.weight.data.mul_(2)
        write = later_searches if changes.get("paper") else target
        encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)}, write)
        options = {"held_out": held_out, "encoder": encoder, "resume": resume}
        log = train_retrieval(model, tokenizer, adapter, rows, bank, recipe, folder, **options)
        return log, adapter, tokenizer

    return train


def served(world, model, tokenizer, folder, write=target):
    """Recall@1 of held-out searches as answering has it, with the adapter of a folder; how many there are."""
    bank, _, held_out = world
    prepare_search(model, tokenizer)
    model = load_adapter(model, folder)
    hits = searches = 0
    for row in held_out:
        question = tokenizer(row["question"])["input_ids"]
        ids = torch.tensor([[*question, *tokenizer(write(row))["input_ids"]]])
        memory = rule_memory(model, tokenizer, bank)
        memory.search_token_id = tokenizer.convert_tokens_to_ids("<search>")
        memory.question_mask_BT = torch.arange(ids.shape[1])[None] < len(question)
        with torch.no_grad(), attach(model, memory):
            model(ids)
            best = [each.ids[0] for each in memory.trace[-2:]]
            if row in held_out[:5]:  # as it is written
                memory.question_mask_BT, cache = None, None
                for part in ids.split([len(question), *[1] * (ids.shape[1] - len(question))], 1):
                    cache = model(part, past_key_values=cache).past_key_values
        assert best == [each.ids[0] for each in memory.trace[-2:]]
        assert len(memory.trace) == 2 + (write is target)  # a <search> opens the answer
        hits += sum(one == step["rule_ids"][0] for one, step in zip(best, row["steps"], strict=True))
        searches += len(best)
    return hits / searches, searches


@pytest.mark.parametrize(
    "query",
    [{}, PLACES, {"confidence_layer": 1}, PAPERS | {"confidence_layer": 2}],
    ids=["looks ahead", "by place", "rules below", "as in the paper"],
)
def test_what_is_saved_finds_what_was_measured(world, tiny_model, trained, tmp_path, query):
    """The weights are trained in other coordinates than they serve in; layers below read rules all the same."""
    log, _, tokenizer = trained(tmp_path, **query)
    write = later_searches if "paper" in query else target
    recall, searches = served(world, tiny_model("llama", hidden_size=96), tokenizer, tmp_path, write)
    assert recall == pytest.approx(max(entry["recall"] for entry in log), abs=1.5 / searches)


def test_reading_is_learned_beside_a_finder_that_stays(world, trained, tmp_path):
    """One value a rule, read by steps as a search leaves them, in the same coordinates as finding."""
    bank, rows, _ = world
    settings = {"search_token": "<search>", "shared_after": True, "score_weight": 5.0}
    _, adapter, tokenizer = trained(tmp_path / "1", **settings)
    before = {name: value.clone() for name, value in adapter.state_dict().items()}
    changes = {"mix": None, "max_steps": 40, "batch_size": 8, "accumulation": 1, "pool_size": (1, 40)}
    recipe = paper_recipe(stage=1, learning_rate=3e-2, additions={"steps": {}, "whiten": {}}, **changes)
    encoder = Encoder(tokenizer, {name: i for i, name in enumerate(bank.ids)}, target)
    case = (adapter.model, tokenizer, adapter, rows, bank, recipe, tmp_path / "2")
    log = train_reading(*case, encoder=encoder, use_cpu=True, save_strategy="no", logging_steps=10)
    assert log[-1]["lm_loss"] < log[0]["lm_loss"] - 0.3
    place = f"layers.{LAYER}."
    moved = {name for name, value in adapter.state_dict().items() if not torch.equal(value, before[name])}
    finding = {name for name in before if place in name and not name.split(place)[1].startswith(("q.", "v."))}
    assert moved == before.keys() - finding and len(finding) > 8
    assert not any("token" in path.name for path in (tmp_path / "2").iterdir())


@pytest.mark.slow
def test_it_learns_to_look_ahead(world, tiny_model, trained, tmp_path):
    log, _, tokenizer = trained(tmp_path, LONG)
    best = max(log, key=lambda entry: entry["recall"])
    # Of a state's three rules one leads to the end: who knows the state alone guesses at the first step.
    assert best["recall"] > best["recall_state"] + 0.1
    recall, searches = served(world, tiny_model("llama", hidden_size=96), tokenizer, tmp_path)
    assert recall == pytest.approx(best["recall"], abs=1.5 / searches)


def test_a_training_that_was_killed_ends_the_same(trained, tmp_path, monkeypatch):
    below = {"confidence_layer": 1}
    whole, adapter, _ = trained(tmp_path / "whole", **below)
    step = RetrievalLoop.step

    def killed(self, number):
        if number == 3:
            raise KeyboardInterrupt
        return step(self, number)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RetrievalLoop, "step", killed)
        trained(tmp_path / "killed", **below)
    with pytest.raises(FileExistsError, match="go on with resume"):
        trained(tmp_path / "killed", **below)
    with pytest.raises(ValueError, match="started with seed 0, now it is 1"):
        trained(tmp_path / "killed", replace(SHORT, seed=1), resume=True, **below)
    for other, told in {
        "questions": "data",
        "held-out questions": "data",
        "rules": "data",
        "model": "base",
        "rules are read otherwise below": "frozen",
    }.items():
        with pytest.raises(ValueError, match=f"started with {told} .*, now it is"):
            trained(tmp_path / "killed", resume=True, other=other, **below)
    again, other, _ = trained(tmp_path / "killed", resume=True, **below)
    with pytest.raises(FileExistsError, match="done; choose a new folder"):
        trained(tmp_path / "killed", resume=True, **below)
    assert json.dumps(again) == json.dumps(whole)
    for one, two in zip(adapter.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not (tmp_path / "killed/.retrieval.safetensors").exists()


def searches_of(states, items, links=(), families=("",), tokens=None):
    """Searches of texts of as many tokens each; all of one text without a number."""
    starts = list(range(0, len(states), tokens)) if tokens else [0]
    marks = torch.zeros(2, len(states), dtype=torch.bool)
    return Searches(states, marks, starts, items, list(links), list(families) * len(starts))


def copied_words(model, keys, noise, links=(), **changes):
    """An adapter, and forty searches of six states that are near a rule's key: the rule of the same number."""
    states = keys[:40].repeat_interleave(6, 0) + noise * torch.randn(240, 96)
    items = [KnownSearch(at, 5, [at], [at], False) for at in range(40)]
    return adapter_of(model, 96, **changes), searches_of(states, items, links, tokens=6)


@torch.no_grad()
def test_a_search_of_the_papers_is_one_state(near):
    """At the prompt the mean of the question's, at <search> its own; families and chains are kept."""
    states = torch.randn(10, 8)
    items = [KnownSearch(question, at, [at], [9], at > 2) for question in (0, 1) for at in (2, 4)]
    whole = searches_of(states, items, [(2, 9)], families=("multi_hop", "multi_rule"), tokens=5)
    whole = whole._replace(
        marks=torch.tensor([[1, 1, 1, 0, 0] * 2, [0, 0, 0, 0, 1] * 2]).bool(), families=["a", "b"]
    )
    paper = whole.as_paper()
    expected = torch.stack([states[:3].mean(0), states[4], states[5:8].mean(0), states[9]])
    assert near(paper.inputs(range(4), states.device).token_BC, expected, units=2**14)
    assert (paper.families, paper.links) == (["a", "a", "b", "b"], whole.links)
    assert [item.gold for item in paper.items] == [item.gold for item in items]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_states_that_are_nearly_the_same_are_told_apart(tiny_model, family):
    """Those of one <search> share most of what they are; a query without a bias (Llama's) cannot take that out."""
    torch.manual_seed(4)
    states, keys = torch.randn(40, 96) + 50 * torch.randn(96), torch.randn(300, WIDTH)
    items = [KnownSearch(at, 0, [at], [at], False) for at in range(40)]
    adapter, known = (
        adapter_of(tiny_model(family, hidden_size=96), paper=True),
        searches_of(states, items, tokens=1),
    )
    finder = Finder(adapter[0], keys, keys, known)
    loop = RetrievalLoop(finder, known, None, range(300), RetrievalRecipe(max_steps=60, batch_size=64))
    for step in range(60):
        loop.step(step)
    finder.fold_into(adapter[0])
    with torch.no_grad():
        query_BHD = adapter[0].q(states).unflatten(-1, (-1, adapter[0].head_dim))
        found = adapter[0].score(query_BHD, keys, adapter[0].inverse_scale(keys)).argmax(-1)
    assert (found == torch.arange(40)).float().mean() > 0.9


@torch.no_grad()
def test_a_search_looks_for_its_own_words(tiny_model):
    """Untrained, it finds the rule that says what the text before it says, and a conclusion's premise follows it."""
    torch.manual_seed(4)
    keys = torch.randn(300, 96) * torch.linspace(0.5, 3, 96) + 1
    adapter, known = copied_words(tiny_model("llama", hidden_size=96), keys, 0.3)

    def shares(looked_up):
        torch.manual_seed(5)
        finder = Finder(adapter[0], keys, keys.roll(-1, 0), known)
        if looked_up:
            finder.look_up(known, 0.05)
        white = finder.white(known.inputs(range(40), keys.device))
        scores, goals = finder.scores(white, finder.keys_MP), finder.ahead.goal(white) @ finder.values_MP.T
        links = finder.ahead.link_logits(finder.keys_MP, finder.values_MP)
        hits = (
            links.argmax(0) == torch.arange(1, 301) % 300,
            scores.argmax(-1) == torch.arange(40),
            goals.argmax(-1) == (torch.arange(40) - 1) % 300,
        )
        return [float(each.float().mean()) for each in hits], scores.std(-1).mean()

    own_words, spread = shares(True)
    assert min(own_words) > 0.9 and spread == pytest.approx(0.1, rel=0.2)
    assert max(shares(False)[0]) < 0.2


@pytest.mark.parametrize("free_rate", [0.0, 1.0])
def test_what_is_learned_beside_the_own_words_has_a_rate_of_its_own(tiny_model, free_rate):
    """At none only the multiples of the words are learned; what serves is the sum of both."""
    torch.manual_seed(4)
    keys, model = torch.randn(300, 96), tiny_model("llama", hidden_size=96)
    adapter, known = copied_words(model, keys, 1.0, [(1, 0), (2, 1)], **PLACES)
    finder = Finder(adapter[0], keys, keys.roll(-1, 0), known)
    finder.look_up(known, 0.05)
    recipe = replace(SHORT, look_up=True, free_rate=free_rate)
    run = RetrievalLoop(finder, known, None, range(300), recipe, 2, 4)
    weight = finder.projection.reader.out.parametrizations.weight
    free, multiple = weight.original, weight[0].multiple
    before = multiple.detach().clone()
    for step in range(3):
        run.step(step)
    assert not torch.equal(multiple, before) and bool(free.any()) == bool(free_rate)
    for moved_little in (finder.projection.reader.offset, finder.projection.reader.tail):
        torch.nn.init.normal_(moved_little, std=3)
    finder.fold_into(adapter[0])
    raw = known.inputs(range(4), keys.device)
    white = finder.white(raw)
    for mine, ours in (
        (finder.projection.reader(white), adapter[0].reader),
        (finder.ahead.goal(white) @ finder.white_values_PP, adapter[0].lookahead.goal),
    ):
        torch.testing.assert_close(ours(raw), mine, rtol=1e-3, atol=1e-3)


def test_every_gold_rule_of_a_step_has_rivals_of_its_premise(tiny_model):
    """Not its first alone: what a creature has is gold beside the rule that a chain goes on with."""
    items = [KnownSearch(0, 0, [0, 3], [0], False)]
    known = searches_of(torch.randn(40, 96), items)
    adapter = adapter_of(tiny_model("llama", hidden_size=96), lookahead=0)
    finder = Finder(adapter[0], torch.randn(7, WIDTH), torch.randn(7, WIDTH), known)
    run = RetrievalLoop(finder, known, None, [0, 0, 0, 1, 1, 1, 2], RetrievalRecipe(hard_rules=40), 0, 0)
    rivals = run.hard_rules(items, keyed(2))
    assert len(rivals) == 40 and set(rivals) == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("link_ends", [0.5, 0.0])
def test_a_conclusion_that_nothing_follows_is_told_from_one_of_nearly_the_same_words(tiny_model, link_ends):
    """A ring of thirty rules, each with a twin of nearly the same conclusion after which no chain goes on."""
    count, generator = 30, torch.Generator().manual_seed(3)
    states, has = torch.randn(count, WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)
    creatures, after = torch.randn(count, WIDTH, generator=generator), states.roll(-1, 0)
    keys, values = torch.cat([states, creatures]), torch.cat([after, after + 0.7 * has])
    items = [KnownSearch(0, 0, [i, count + i], [i], False) for i in range(count)]
    links = [(i, (i + 1) % count) for i in range(count)]
    known = searches_of(torch.randn(40, 96), items, links)
    adapter = adapter_of(tiny_model("llama", hidden_size=96))
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
        chances = finder.ahead.link_logits(finder.keys_MP[:count], finder.values_MP).sigmoid()
    follows, twin = (part.roll(-1, 0).diagonal().mean() for part in chances.split(count, 1))
    assert follows > 0.8 and (twin < 0.2 if link_ends else twin > 0.5)


def test_what_cannot_be_trained_is_refused_in_a_line(trained, tmp_path):
    nowhere, looks_up = PAPERS | {"confidence_layer": None}, replace(SHORT, look_up=True)
    for family, recipe, changes, message in (
        ("llama", SHORT, nowhere, "finding is trained at the confidence layer, which"),
        ("qwen3", SHORT, PAPERS, "norms queries"),
        ("llama", looks_up, {}, r"look_up needs search_heads .*width 96, the bank has 80"),
    ):
        with pytest.raises(ValueError, match=message):
            trained(tmp_path, recipe, family, **changes)
    for settings, message in (
        ({"look_up": 1}, "look_up must be true or false, got 1"),
        ({"free_rate": 0.1}, r"beside the text's own words; set look_up, got 0\.1"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"learning_rate": -1}, "learning_rate must be 0 or more, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            RetrievalRecipe(**settings)


def test_whitened_embeddings_vary_alike_in_all_directions_but_those_of_noise(near):
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([10.0, 3.0, 1.0, 1e-4])
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    embeddings = torch.randn(5000, 4, generator=generator) * spread @ turn
    white = whitening(embeddings, block=1000)
    moment, wide = (embeddings.T @ embeddings / len(embeddings)).double(), white.double()
    floored = moment + FLOOR * moment.trace() / 4 * torch.eye(4)
    assert near((wide @ floored @ wide * 4).float(), torch.eye(4), scale=torch.linalg.cond(floored))
    after = (embeddings.double() @ wide @ turn.T.double()).square().mean(0)
    assert near(white, white.T) and after[:3].min() > 0.19
    assert after[3] < 1e-6  # the direction of noise is not blown up
