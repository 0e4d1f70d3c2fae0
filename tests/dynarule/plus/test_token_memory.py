"""Token memory: reading is a plain forward with the rules before the text; finding is what the text alone asks for."""

import pytest
import torch
from dynarule.plus.memory import SearchResult
from tokenizers.processors import TemplateProcessing

from dynarule import RuleAdapter, RuleBank, RuleStates, TokenMemory, attach, dynarule_config, generate

SEARCH, WIDTH, LAYER, K = 7, 20, 2, 3


def ready(family, tiny_model, tiny_tokenizer, layer=LAYER, **changes):
    """A model, an adapter whose queries have left those of the base, and a tokenizer."""
    model = tiny_model(family)
    config = dynarule_config(WIDTH, confidence_layer=layer, top_k=K, reading="tokens", **changes)
    adapter = RuleAdapter(model, config)
    generator = torch.Generator().manual_seed(8)
    if hasattr(adapter[layer], "q"):
        query = adapter[layer].q.weight
        query.add_(torch.randn(query.shape, generator=generator) * 0.25)
    return model, adapter, tiny_tokenizer()


@pytest.fixture
def rules():
    """A bank of 12 rules of 2 to 6 words."""
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(12, WIDTH, generator=generator) for _ in range(2))
    lengths = torch.randint(2, 7, (12,), generator=generator).tolist()
    words = [torch.randint(10, 80, (n,), generator=generator).tolist() for n in lengths]
    return RuleBank(
        keys, values, [f"r{i}" for i in range(12)], [" ".join(f"w{w}" for w in row) for row in words]
    )


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


def best(adapter, bank, query_HD):
    """The best K rules for a query, by projected keys."""
    projection = adapter[LAYER]
    keys = projection.keys(bank.keys_MP).unflatten(-1, (-1, projection.head_dim))
    return [bank.ids[i] for i in torch.einsum("hd,mhd->m", query_HD, keys).topk(K).indices.tolist()]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_reading_is_a_plain_forward_with_the_rules_before_the_text(
    family, attention, rules, tiny_model, tiny_tokenizer, near
):
    model, adapter, tokenizer = ready(family, tiny_model, tiny_tokenizer)
    model.set_attn_implementation(attention)
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)
    ids = text_with_searches()
    memory.question_mask_BT = torch.arange(len(ids))[None] < 9
    with attach(model, memory):
        found = model(ids[None]).logits[0]
    sets = [each.texts for each in memory.trace]
    assert len(sets) == 3
    assert len({tuple(each) for each in sets}) > 1
    model.set_attn_implementation("eager")
    assert near(found, reference(model, tokenizer, ids, 9, sets))
    assert not near(found, reference(model, tokenizer, ids, 9, sets[:1] * 3))
    assert not near(found, reference(model, tokenizer, ids, 9, [[], *sets[1:]]))


@pytest.mark.parametrize("limit", [None, 0.2])
@torch.no_grad()
def test_rules_that_fit_worse_are_attended_to_less(family, limit, rules, tiny_model, tiny_tokenizer, near):
    """By the weight times what their score lacks to the best one's, and no more than the limit."""
    model, adapter, tokenizer = ready(family, tiny_model, tiny_tokenizer, score_weight=3.0, score_limit=limit)
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)
    ids = text_with_searches()
    memory.question_mask_BT = torch.arange(len(ids))[None] < 9
    with attach(model, memory):
        found = model(ids[None]).logits[0]
    sets = [each.texts for each in memory.trace]
    shifts = [[3.0 * (score - each.scores[0]) for score in each.scores] for each in memory.trace]
    assert min(shift for row in shifts for shift in row) < -0.3
    if limit:
        shifts = [[max(shift, -limit) for shift in row] for row in shifts]
    model.set_attn_implementation("eager")
    assert near(found, reference(model, tokenizer, ids, 9, sets, shifts))
    assert not near(found, reference(model, tokenizer, ids, 9, sets))


@torch.no_grad()
def test_rules_that_are_found_together_may_be_read_as_in_a_prompt(
    family, rules, tiny_model, tiny_tokenizer, near
):
    """One after another, the best one first; a rule's score counts for each of its tokens."""
    model, adapter, tokenizer = ready(family, tiny_model, tiny_tokenizer, together=True, score_weight=3.0)
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)
    ids = text_with_searches()
    memory.question_mask_BT = torch.arange(len(ids))[None] < 9
    with attach(model, memory):
        found = model(ids[None]).logits[0]
    sets = [[" ".join(each.texts)] for each in memory.trace]
    shifts = [
        [
            [
                3.0 * (score - each.scores[0])
                for text, score in zip(each.texts, each.scores, strict=True)
                for _ in text.split()
            ]
        ]
        for each in memory.trace
    ]
    model.set_attn_implementation("eager")
    assert near(found, reference(model, tokenizer, ids, 9, sets, shifts))
    assert not near(found, reference(model, tokenizer, ids, 9, sets))
    alone = [each.texts for each in memory.trace]
    assert not near(found, reference(model, tokenizer, ids, 9, alone))
    ((text, shifts),) = memory._one_text([("w11 w12", 0.0), ("w13 w14 w15", -2.0)])
    assert text == "w11 w12\nw13 w14 w15" and shifts.tolist() == [0.0, 0.0, -2.0, -2.0, -2.0]
    assert memory._one_text([]) == []
    with pytest.raises(ValueError, match="together is for rules that are read as tokens"):
        dynarule_config(WIDTH, LAYER, together=True)


@pytest.mark.parametrize(
    ("limit", "shifts"), [(None, [0.0, -3.0, 0.0]), (2.0, [0.0, -2.0, -2.0]), (9.0, [0.0, -3.0, -6.0])]
)
@torch.no_grad()
def test_a_rule_that_only_a_plan_brings_stays_readable(limit, shifts, rules, tiny_model, tiny_tokenizer):
    """Without a limit it counts as the best rule, with one as the last of the K, and never less than the limit."""
    model, adapter, tokenizer = ready(
        "llama", tiny_model, tiny_tokenizer, score_weight=3.0, score_limit=limit
    )
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)
    memory._results = {0: SearchResult({0: 5.0, 1: 4.0, 2: 3.0}, [0, 1, 3])}
    assert memory._of_row(0) == list(zip([rules.texts[at] for at in (0, 1, 3)], shifts, strict=True))


@torch.no_grad()
def test_a_search_asks_what_the_text_alone_asks(family, rules, tiny_model, tiny_tokenizer):
    model, adapter, tokenizer = ready(family, tiny_model, tiny_tokenizer)
    ids = text_with_searches()
    hidden = model(ids[None], output_hidden_states=True).hidden_states[LAYER]
    layer = model.model.layers[LAYER]
    query = adapter[LAYER].query(layer.input_layernorm(hidden), getattr(layer.self_attn, "q_norm", None))[0]
    expected = [query[:, :9].mean(1), query[:, 11], query[:, 15]]
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)
    memory.question_mask_BT = torch.arange(len(ids))[None] < 9
    with attach(model, memory):
        model(ids[None])
    assert [each.ids for each in memory.trace] == [best(adapter, rules, each) for each in expected]
    assert [(each.step, each.layer) for each in memory.trace] == [(0, LAYER), (1, LAYER), (2, LAYER)]


@torch.no_grad()
def test_with_a_look_ahead_a_prompt_asks_what_a_search_behind_it_would(
    family, rules, tiny_model, tiny_tokenizer, near
):
    """By itself, padded in a batch, and with an answer behind it; the answer's own searches ask what they did."""
    model, adapter, tokenizer = ready(
        family, tiny_model, tiny_tokenizer, search_heads=2, lookahead=2, lookahead_width=4
    )
    generator = torch.Generator().manual_seed(2)
    for parameter in adapter[LAYER].parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    prompt = torch.tensor([[0, 0, 31, 45, 52], [61, 17, 23, 38, 44]])
    mask, search = (prompt > 0).long(), torch.full((2, 1), SEARCH)
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)

    def asked(ids, mask, question):
        memory.question_mask_BT = question
        with attach(model, memory):
            model(ids, attention_mask=mask, use_cache=False)
        return {(each.row, each.step): each for each in memory.trace}

    alone = asked(prompt, mask, None)
    one = torch.ones(2, 1, dtype=torch.long)
    text, seen = (
        torch.cat([prompt, search, prompt[1:].repeat(2, 4)], 1),
        torch.cat([mask] + [one] * 21, 1),
    )
    question = (torch.arange(26) < 5) & seen.bool()
    answered = asked(text, seen, question)
    for row in (0, 1):
        expected = answered[row, 1]
        for found in (alone[row, 0], answered[row, 0]):
            assert (found.ids, found.backward, found.way) == (expected.ids, expected.backward, expected.way)
            assert near(found.scores, expected.scores, units=500)
    assert answered[0, 1].ids != answered[1, 1].ids


@pytest.mark.parametrize("layer, weight", [(0, 0.0), (LAYER, 0.0), (LAYER, 3.0)])
@torch.no_grad()
def test_token_by_token_and_in_a_padded_batch_is_the_whole_forward(
    family, layer, weight, rules, tiny_model, tiny_tokenizer, near
):
    """Rows of other lengths that search at other times, the answer in pieces of several tokens and of one."""
    model, adapter, tokenizer = ready(family, tiny_model, tiny_tokenizer, layer, score_weight=weight)
    states, texts = RuleStates(model, tokenizer), [text_with_searches(), text_with_searches()[3:].roll(2)]
    texts[1][:2] = 30
    prompts = [9, 8]
    whole = []
    for ids, prompt in zip(texts, prompts, strict=True):
        memory = TokenMemory(adapter, rules, states, SEARCH)
        memory.question_mask_BT = torch.arange(len(ids))[None] < prompt
        with attach(model, memory):
            whole.append(model(ids[None]).logits[0, prompt - 1 :])
    more = min(len(ids) - prompt for ids, prompt in zip(texts, prompts, strict=True))
    start = torch.zeros(2, 9, dtype=torch.long)
    for row, (ids, prompt) in enumerate(zip(texts, prompts, strict=True)):
        start[row, 9 - prompt :] = ids[:prompt]
    later = torch.stack([ids[prompt : prompt + more] for ids, prompt in zip(texts, prompts, strict=True)])
    mask = torch.cat([(start > 0).long(), torch.ones(2, more, dtype=torch.long)], 1)
    memory, found = TokenMemory(adapter, rules, states, SEARCH), []
    with attach(model, memory):
        out = model(start, attention_mask=mask[:, :9], use_cache=True)
        found.append(out.logits[:, -1:])
        for piece in [slice(0, 2), slice(2, 4), *(slice(i, i + 1) for i in range(4, more))]:
            seen = mask[:, : 9 + piece.stop]
            out = model(
                later[:, piece], attention_mask=seen, past_key_values=out.past_key_values, use_cache=True
            )
            found.append(out.logits)
    steps = torch.cat(found, 1)
    for row in range(2):
        assert near(
            steps[row], whole[row][: more + 1], units=500 if weight else 64
        )  # scores are weighed, errors too


@pytest.mark.parametrize("lookahead", [0, 2])
@torch.no_grad()
def test_another_search_may_find_the_rules(lookahead, rules, tiny_model, tiny_tokenizer, near):
    """It is told what is written, and what it finds is read by its scores; with a look-ahead in the prompt's place."""
    changes = {"score_weight": 2.0, "score_limit": 1.0}
    if lookahead:
        changes |= {"lookahead": lookahead, "search_heads": 1, "search_token": f"w{SEARCH}"}
    model, adapter, tokenizer = ready("llama", tiny_model, tiny_tokenizer, **changes)
    found, told = [{"r3": -0.2, "r1": 0.0}, {"r5": -4.0}, {"r2": -2.0, "r7": -1.0, "r0": -1.25}], []

    def search(row, said):
        told.append((row, *said))
        return found[len(told) - 1]

    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH, search=search)
    ids = text_with_searches()
    memory.question_mask_BT = torch.arange(len(ids))[None] < 9
    with attach(model, memory):
        logits = model(ids[None]).logits[0]
    words = [tokenizer.decode(ids[part]) for part in (slice(9), slice(9, 11), slice(12, 15))]
    asked, first, second = (" ".join(each.split()) for each in words)
    assert told == [(0, asked, "", ""), (0, asked, first, first), (0, asked, second, f"{first} {second}")]
    names = [["r1", "r3"], ["r5"], ["r7", "r0", "r2"]]
    assert [each.ids for each in memory.trace] == names
    assert [each.scores for each in memory.trace] == [[0.0, -0.2], [-4.0], [-1.0, -1.25, -2.0]]
    sets = [[rules.texts[rules.row(name)] for name in each] for each in names]
    shifts = [[0.0, -0.4], [0.0], [0.0, -0.5, -1.0]]
    stay = () if lookahead else (0,)
    assert near(logits, reference(model, tokenizer, ids, 9, sets, shifts, stay))


@torch.no_grad()
def test_another_search_serves_each_row_of_a_batch(rules, tiny_model, tiny_tokenizer, near):
    """Padding, a row that searches once less, a search that finds nothing, and rules that a row may not keep."""
    model, adapter, tokenizer = ready("llama", tiny_model, tiny_tokenizer, score_weight=2.0)
    states, texts = RuleStates(model, tokenizer), (text_with_searches(), text_with_searches()[3:17] + 1)
    texts[1][9] = SEARCH
    names = [f"r{at}" for at in range(12)]
    allowed_BM = torch.tensor([[at % 2 == row for at in range(12)] for row in range(2)])

    def search(_row, said):
        if len(said.latest.split()) == 3:
            return {}
        first = len(said.question + said.latest) % 9
        return {names[first + more]: -0.5 * more for more in range(4)}

    def read(ids_BT, mask_BT, allowed, parts):
        memory = TokenMemory(adapter, rules, states, SEARCH, search=search, allowed_BM=allowed)
        past, found = None, []
        with attach(model, memory):
            for part in ids_BT.split(parts, 1):
                seen = sum(each.shape[1] for each in found) + part.shape[1]
                out = model(part, attention_mask=mask_BT[:, :seen], past_key_values=past, use_cache=True)
                past, found = out.past_key_values, [*found, out.logits]
        return torch.cat(found, 1), memory

    longest, asked = len(texts[0]), 5
    ids_BT, mask_BT = torch.zeros(2, longest, dtype=torch.long), torch.zeros(2, longest, dtype=torch.long)
    for row, ids in enumerate(texts):
        ids_BT[row, -len(ids) :], mask_BT[row, -len(ids) :] = ids, 1
    prompt = longest - len(texts[1]) + asked
    together, memory = read(ids_BT, mask_BT, allowed_BM, [prompt, *[1] * (longest - prompt)])
    kept = {(each.row, each.step): each.ids for each in memory.trace}
    assert len(kept) == 5 and sorted(map(len, kept.values())) == [0, 2, 2, 2, 2]
    assert all(int(name[1:]) % 2 == row for (row, _), each in kept.items() for name in each)
    for row, ids in enumerate(texts):
        own = prompt - longest + len(ids)
        alone, _ = read(
            ids[None], torch.ones_like(ids[None]), allowed_BM[row : row + 1], [own, *[1] * (len(ids) - own)]
        )
        assert near(together[row, -len(ids) :], alone[0])


@torch.no_grad()
def test_rules_that_change_are_read_from_the_next_search_on(rules, tiny_model, tiny_tokenizer):
    """A rule's new text is read under its old id; what was kept before stays what it was."""
    model, adapter, tokenizer = ready("llama", tiny_model, tiny_tokenizer)
    memory = TokenMemory(adapter, rules, RuleStates(model, tokenizer), SEARCH)

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
    row = rules.row(search.ids[0])
    other = RuleBank(
        rules.keys_MP[[row]].clone(), rules.values_MP[[row]].clone(), [search.ids[0]], ["w11 w12 w13"]
    )
    after, again = follow(lambda: rules.replace(other))
    assert again.ids == search.ids
    assert again.texts[0] == "w11 w12 w13"
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])
    rules.remove([search.ids[0]])
    assert search.ids[0] not in follow(lambda: None)[1].ids


@torch.no_grad()
def test_a_rule_is_computed_once_and_the_oldest_is_let_go(rules, tiny_model, tiny_tokenizer, near):
    model = tiny_model("llama")
    states = RuleStates(model, tiny_tokenizer(), most=4)
    first = states(rules.texts[:3])
    assert states([rules.texts[1]])[0][0] is first[1][0]
    states(rules.texts[3:5])
    assert len(states) == 4
    again = states([rules.texts[0]])[0]  # asked for longest ago, so it was let go
    assert again[0] is not first[0][0]
    assert near(again[0], first[0][0])
    assert states([rules.texts[1]])[0][0] is first[1][0]
    states(["\n".join(rules.texts[5:8])])  # three rules as one text let three go
    assert len(states) == 2


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
        key, value = RuleStates(model, tokenizer)(["w11 w12 w13"])[0]
        out = model(torch.tensor([ids]), position_ids=torch.arange(len(ids))[None] - len(ids), use_cache=True)
        layers = out.past_key_values.layers
        assert near(key, torch.stack([layer.keys[0, :, len(lead) :] for layer in layers]))
        assert near(value, torch.stack([layer.values[0, :, len(lead) :] for layer in layers]))


@torch.no_grad()
def test_generate_reads_tokens_where_the_adapter_says_so(rules, tiny_model, tiny_tokenizer):
    """`<search>` is a token of the base's own, of which nothing is trained; a batch is its rows one by one."""
    model, _, tokenizer = ready("llama", tiny_model, tiny_tokenizer, search_token=f"w{SEARCH}")
    prompts = ["w20 w21 w22 w23", "w30 w31", "w40 w41 w42"]
    options = {"max_new_tokens": 24, "stop_loops": False, "eos_token_id": []}
    together = generate(model, tokenizer, rules, prompts, **options)
    alone = [generate(model, tokenizer, rules, [prompt], **options)[0] for prompt in prompts]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert all(len(each.trace) == 1 + each.token_ids[:-1].count(SEARCH) for each in together)
    other = tiny_model("llama")
    RuleAdapter(other, dynarule_config(WIDTH, LAYER, top_k=K, search_token=f"w{SEARCH}"))
    vector = generate(other, tokenizer, rules, prompts, **options)
    assert [each.token_ids for each in vector] != [each.token_ids for each in together]


@torch.no_grad()
def test_without_rules_or_adapter_the_model_is_the_base_model(rules, tiny_model, tiny_tokenizer):
    model, adapter, tokenizer = ready("llama", tiny_model, tiny_tokenizer)
    ids = text_with_searches()[None]
    expected = model(ids).logits
    empty = RuleBank(rules.keys_MP[:0], rules.values_MP[:0], [], [])
    states = RuleStates(model, tokenizer)
    with attach(model, TokenMemory(adapter, empty, states, SEARCH)):
        assert torch.equal(model(ids).logits, expected)
    adapter.model.base_model.disable_adapter_layers()
    with attach(model, TokenMemory(adapter, rules, states, SEARCH)):
        assert torch.equal(model(ids).logits, expected)


def test_what_cannot_be_is_said(rules, tiny_model, tiny_tokenizer):
    model = tiny_model("llama")
    with pytest.raises(ValueError, match=r"reading must be one of .*'tokens'.*, got 'words'"):
        dynarule_config(WIDTH, reading="words")
    adapter = RuleAdapter(model, dynarule_config(WIDTH, reading="tokens"))
    with pytest.raises(ValueError, match=r"confidence_layer, which is None; measure"):
        TokenMemory(adapter, rules, RuleStates(model, tiny_tokenizer()), SEARCH)
