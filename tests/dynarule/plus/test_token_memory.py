"""Token memory: reading is a plain forward with the rules before the text; finding is what the text alone asks for."""

import math

import pytest
import torch
from dynarule.plus.memory import SearchResult
from tokenizers.processors import TemplateProcessing

from dynarule import RuleAdapter, RuleBank, RuleStates, TokenMemory, attach, dynarule_config, generate

from ..conftest import WIDTH, random_bank

SEARCH, LAYER, K = 7, 2, 3


@pytest.fixture
def ready(tiny_model, tiny_tokenizer, rules):
    """Makes a model, a tokenizer and a memory whose adapter's queries have left those of the base."""

    def make(family="llama", layer=LAYER, **changes):
        model, tokenizer = tiny_model(family), tiny_tokenizer()
        config = dynarule_config(WIDTH, confidence_layer=layer, top_k=K, reading="tokens", **changes)
        adapter, generator = RuleAdapter(model, config), torch.Generator().manual_seed(8)
        for parameter in () if "lookahead" in changes else adapter[layer].parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
        states = RuleStates(model, tokenizer)
        return model, tokenizer, TokenMemory(adapter, rules, SEARCH, states=states)

    return make


@pytest.fixture
def rules():
    """A bank of 12 rules of 2 to 6 words."""
    generator = torch.Generator().manual_seed(1)
    torch.randn(2, 12, WIDTH, generator=generator)
    lengths = torch.randint(2, 7, (12,), generator=generator).tolist()
    words = [torch.randint(10, 80, (n,), generator=generator).tolist() for n in lengths]
    return random_bank([" ".join(f"w{w}" for w in row) for row in words])


def text_with_searches():
    ids = torch.randint(10, 90, (19,), generator=torch.Generator().manual_seed(3))
    ids[[11, 15]] = SEARCH
    return ids


def reference(model, tokenizer, ids, prompt, sets, shifts=None, stay=(0,)):
    """A plain forward over the rules' tokens and the text: who sees whom is a mask, who stands where a position.

    ``sets`` are rules of the prompt, then of each <search>; ``shifts`` are added to the text's scores of each, or of
    each of its tokens; ``stay`` are the sets that each token sees besides its own step's.
    """
    lines = [(n, tokenizer(rule)["input_ids"]) for n, rules in enumerate(sets) for rule in rules]
    each = [shift for row in shifts for shift in row] if shifts else [0.0] * len(lines)
    added = [
        shift
        for row, (_, line) in zip(each, lines, strict=True)
        for shift in (row if isinstance(row, list) else [row] * len(line))
    ]
    owner = [n for n, line in lines for _ in line] + [-1] * len(ids)
    line_of = [at for at, (_, line) in enumerate(lines) for _ in line] + [-1] * len(ids)
    places = [p - len(line) for _, line in lines for p in range(len(line))] + list(range(len(ids)))
    window = getattr(model.config, "sliding_window", None) or 1000
    total, first = len(owner), len(owner) - len(ids)
    sees = torch.zeros(total, total, dtype=torch.bool)
    step = 0
    for i in range(total):
        step += i - first >= prompt and int(ids[i - first]) == SEARCH
        for j in range(i + 1):
            same = line_of[i] == line_of[j] and places[i] - places[j] < window
            sees[i, j] = same or (i >= first and j < first and owner[j] in (*stay, step))
    mask = torch.zeros(1, 1, total, total)
    mask[..., first:, :first] = torch.tensor(added)
    mask = mask.masked_fill(~sees, torch.finfo(torch.float32).min)
    everything = torch.tensor([[token for _, line in lines for token in line] + ids.tolist()])
    out = model(everything, attention_mask=mask, position_ids=torch.tensor([places]), use_cache=False)
    return out.logits[0, first:]


def read(model, memory, ids, prompt=9):
    """The logits of one text."""
    memory.question_mask_BT = torch.arange(len(ids))[None] < prompt
    with attach(model, memory):
        return model(ids[None]).logits[0]


READINGS = {
    "sdpa": {},
    "eager": {},
    "weighed": {"score_weight": 3.0},
    "limited": {"score_weight": 3.0, "score_limit": 0.2},
    "together": {"score_weight": 3.0, "together": True},
}


@pytest.mark.parametrize(
    ("family", "reading"),
    [("llama", reading) for reading in READINGS]
    + [(other, "together") for other in ("qwen2", "qwen3", "mistral")],
)
@torch.no_grad()
def test_reading_is_a_plain_forward_with_the_rules_before_the_text(family, reading, ready, near):
    """Rules that fit worse are attended to less, to a limit; together they are one text, the best one first."""
    settings = READINGS[reading]
    model, tokenizer, memory = ready(family, **settings)
    if reading == "eager":
        model.set_attn_implementation("eager")
    ids = text_with_searches()
    logits = read(model, memory, ids)
    alone = sets = [each.texts for each in memory.trace]
    weight, lowest = settings.get("score_weight", 0.0), -settings.get("score_limit", math.inf)
    shifts = [[max(weight * (s - r.scores[0]), lowest) for s in r.scores] for r in memory.trace]
    assert len(sets) == 3 and len({tuple(each) for each in sets}) > 1
    wrong = [(sets[:1] * 3, shifts[:1] * 3), ([[], *sets[1:]], [[], *shifts[1:]])]
    if weight:
        assert min(map(min, shifts)) < -0.15
        wrong.append((sets, None))
    if reading == "together":
        pairs = [zip(*each, strict=True) for each in zip(sets, shifts, strict=True)]
        shifts = [[[shift for text, shift in of_set for _ in text.split()]] for of_set in pairs]
        sets = [[" ".join(each)] for each in sets]
        wrong = [(sets, None), (alone, None)]
    model.set_attn_implementation("eager")
    assert near(logits, reference(model, tokenizer, ids, 9, sets, shifts))
    for other in wrong:
        assert not near(logits, reference(model, tokenizer, ids, 9, *other))


@pytest.mark.parametrize(
    ("limit", "shifts"), [(None, [0.0, -3.0, -6.0]), (2.0, [0.0, -2.0, -2.0]), (9.0, [0.0, -3.0, -6.0])]
)
def test_a_rule_that_only_a_plan_brings_stays_readable(limit, shifts, ready):
    """It counts as the last of the K, and never less than the limit."""
    _, _, memory = ready(score_weight=3.0, score_limit=limit)
    result = SearchResult({0: 5.0, 1: 4.0, 2: 3.0}, [0, 1, 3])
    assert memory._weights(result) == dict(zip((0, 1, 3), shifts, strict=True))


@pytest.mark.parametrize("family", ["qwen3", "mistral"])
@torch.no_grad()
def test_with_a_look_ahead_a_prompt_asks_what_a_search_behind_it_would(family, ready, near):
    """By itself, padded in a batch, and with an answer behind it; the answer's own searches ask what they did."""
    model, _, memory = ready(family, search_heads=2, lookahead=2, lookahead_width=4)
    generator = torch.Generator().manual_seed(2)
    for parameter in memory.adapter[LAYER].parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    prompt = torch.tensor([[0, 0, 31, 45, 52], [61, 17, 23, 38, 44]])
    text = torch.cat([prompt, torch.full((2, 1), SEARCH), prompt[1:].repeat(2, 4)], 1)
    mask = (text > 0).long()

    def searches(length):
        memory.question_mask_BT = ((torch.arange(26) < 5) & mask.bool())[:, :length]
        with attach(model, memory):
            model(text[:, :length], attention_mask=mask[:, :length], use_cache=False)
        return {(each.row, each.step): each for each in memory.trace}

    alone, answered = searches(5), searches(26)
    for row in (0, 1):
        expected = answered[row, 1]
        for each in (alone[row, 0], answered[row, 0]):
            assert (each.ids, each.way) == (expected.ids, expected.way)
            assert near(each.scores, expected.scores, units=500)
    assert answered[0, 1].ids != answered[1, 1].ids


def padded(texts):
    """Texts with padding before them, and where they are none."""
    width = max(map(len, texts))
    ids, mask = (torch.zeros(len(texts), width, dtype=torch.long) for _ in range(2))
    for row, text in enumerate(texts):
        ids[row, width - len(text) :], mask[row, width - len(text) :] = text, 1
    return ids, mask


@pytest.mark.parametrize(
    ("family", "layer", "weight"),
    [
        ("llama", 0, 0.0),
        ("llama", LAYER, 0.0),
        ("qwen2", LAYER, 3.0),
        ("qwen3", LAYER, 3.0),
        ("mistral", LAYER, 3.0),
    ],
)
@torch.no_grad()
def test_token_by_token_and_in_a_padded_batch_is_the_whole_forward(
    family, layer, weight, ready, near, in_pieces
):
    """Rows of other lengths that search at other times, the answer in pieces of several tokens and of one."""
    model, _, memory = ready(family, layer, score_weight=weight)
    texts, prompt = [text_with_searches(), text_with_searches()[1:].roll(2)], 9
    texts[1][:2] = 30
    whole = [read(model, memory, ids, prompt - row) for row, ids in enumerate(texts)]
    memory.question_mask_BT = None
    with attach(model, memory):
        steps = in_pieces(model, *padded(texts), [prompt, 2, 2, *[1] * 6])
    for row in range(2):
        units = 500 if weight else 64  # scores are weighed, errors too
        assert near(steps[row, prompt - 1 :], whole[row][prompt - 1 - row :], units=units)


@pytest.mark.parametrize("opened", [False, True])
@torch.no_grad()
def test_new_rules_are_read_in_one_forward_with_the_text(family, opened, ready, near, in_pieces):
    """In front of it and out of its cache, with or without tokens that open a text: the same as apart."""
    ahead = {"lookahead": 2, "search_heads": 1, "search_token": f"w{SEARCH}"}
    model, tokenizer, memory = ready(family, together=True, score_weight=2.0, **ahead)
    if opened:
        opens = TemplateProcessing(single="w5 w6 $A", special_tokens=[("w5", 5), ("w6", 6)])
        tokenizer.backend_tokenizer.post_processor = opens
    ids, apart = text_with_searches(), []
    memory.states = RuleStates(model, tokenizer)
    whole = read(model, memory, ids)
    memory.question_mask_BT, memory.states = None, RuleStates(model, tokenizer)
    memory.states._read = lambda texts, real=memory.states._read: apart.extend(texts) or real(texts)
    one = (each[:1] for each in padded([ids, torch.cat([ids, ids[:1]])]))  # a row behind padding
    with attach(model, memory):
        steps = in_pieces(model, *one, [10, 2, *[1] * 8])[0, 1:]
    assert near(steps[8:], whole[8:], units=500)
    assert bool(apart) == (family == "mistral")  # whose window is shorter than a text


@torch.no_grad()
def test_rules_that_change_are_read_from_the_next_search_on(ready, rules):
    """A rule's new text is read under its old id; what was kept before stays what it was."""
    model, _, memory = ready()

    def follow(change):
        with attach(model, memory):
            out = model(torch.tensor([[20, 21, 22, 23]]), use_cache=True)
            change()
            logits = []
            for token in (24, SEARCH):
                out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
                logits.append(out.logits)
        return logits, memory.trace[-1]

    before, search = follow(lambda: None)
    best, row = search.ids[0], rules.row(search.ids[0])
    other = RuleBank(rules.keys_MP[[row]].clone(), rules.values_MP[[row]].clone(), [best], ["w11 w12 w13"])
    after, again = follow(lambda: rules.replace(other))
    assert again.ids == search.ids and again.texts[0] == "w11 w12 w13"
    assert torch.equal(after[0], before[0]) and not torch.equal(after[1], before[1])
    rules.remove([best])
    assert best not in follow(lambda: None)[1].ids


@torch.no_grad()
def test_a_rule_is_computed_once_and_the_oldest_is_let_go(rules, tiny_model, tiny_tokenizer, near):
    states = RuleStates(tiny_model("llama"), tiny_tokenizer(), most=4)
    first = states(rules.texts[:3])
    assert states([rules.texts[1]])[0][0] is first[1][0]
    states(rules.texts[3:5])
    assert len(states._kept) == 4
    again = states([rules.texts[0]])[0]  # asked for longest ago, so it was let go
    assert again[0] is not first[0][0] and near(again[0], first[0][0])
    assert states([rules.texts[1]])[0][0] is first[1][0]
    states(["\n".join(rules.texts[5:8])])  # three rules as one text let three go
    assert len(states._kept) == 2


@torch.no_grad()
def test_the_token_that_opens_a_text_is_read_before_a_rule_and_left_out(tiny_model, tiny_tokenizer, near):
    """A tokenizer that has such a token and does not write it (SmolLM2) opens nothing."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    tokenizer.bos_token = "w5"
    for lead in ([], [5]):
        if lead:
            opens = TemplateProcessing(single="w5 $A", special_tokens=[("w5", 5)])
            tokenizer.backend_tokenizer.post_processor = opens
        ids = [*lead, 11, 12, 13]
        states = RuleStates(model, tokenizer)(["w11 w12 w13"])[0]
        out = model(torch.tensor([ids]), position_ids=torch.arange(len(ids))[None] - len(ids), use_cache=True)
        for side, state in zip(("keys", "values"), states, strict=True):
            layers = [getattr(layer, side)[0, :, len(lead) :] for layer in out.past_key_values.layers]
            assert near(state, torch.stack(layers))


@torch.no_grad()
def test_generate_reads_tokens_where_the_adapter_says_so(ready, rules, tiny_model):
    """`<search>` is a token of the base's own, of which nothing is trained; a batch is its rows one by one."""
    model, tokenizer, _ = ready(search_token=f"w{SEARCH}")
    prompts = ["w20 w21 w22 w23", "w30 w31", "w40 w41 w42"]
    options = {"max_new_tokens": 16, "eos_token_id": []}
    together = generate(model, tokenizer, rules, prompts, **options)
    alone = [generate(model, tokenizer, rules, [prompt], **options)[0] for prompt in prompts]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert all(len(each.trace) == 1 + each.token_ids[:-1].count(SEARCH) for each in together)
    other = tiny_model("llama")
    RuleAdapter(other, dynarule_config(WIDTH, LAYER, top_k=K, search_token=f"w{SEARCH}"))
    vector = generate(other, tokenizer, rules, prompts, **options)
    assert [each.token_ids for each in vector] != [each.token_ids for each in together]


@torch.no_grad()
def test_without_rules_or_adapter_the_model_is_the_base_model(ready, rules):
    model, _, memory = ready()
    ids = text_with_searches()[None]
    expected = model(ids).logits
    memory.adapter.model.base_model.disable_adapter_layers()
    with attach(model, memory):
        assert torch.equal(model(ids).logits, expected)
    memory.adapter.model.base_model.enable_adapter_layers()
    rules.remove(rules.ids)
    with attach(model, memory):
        assert torch.equal(model(ids).logits, expected)
