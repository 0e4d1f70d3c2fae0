"""Words beside what was learned: by the module's formulas, word by word, and on the bank as it is now."""

import math
import re
from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
from dynarule.bank.clauses import parts_of
from dynarule.plus.words import SearchText, Words, words_of
from hypothesis import given
from hypothesis import strategies as st

from dynarule import RuleAdapter, RuleBank, TokenMemory, attach, dynarule_config

from ..conftest import WIDTH, random_bank

SEARCH, LAYER = 7, 2
TEXTS = st.lists(st.text("ab c1_(,A", max_size=12), min_size=1, max_size=5)


def said(text):
    words = re.findall("[a-z]+|[0-9]+", text.lower())
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}


def different(premises, conclusions):
    return [each for side in (premises, conclusions) for each in dict.fromkeys(side) if said(each)]


def parts(rules):
    return zip(*(rule[:-1].split(", ") for rule in rules), strict=True)


def cover(text, other, everything):
    def weight(terms):
        counts = [sum(term in said(each) for each in everything) for term in terms]
        return sum(math.log1p((len(everything) - n + 0.5) / (n + 0.5)) ** 2 for n in counts)

    return weight(said(text) & said(other)) / max(weight(said(other)), 1e-30)


@given(TEXTS, TEXTS, st.text("ab c1_(,A", max_size=12))
def test_how_texts_cover_each_other(premises, conclusions, text):
    words, everything = Words(premises, conclusions), different(premises, conclusions)
    expected = [cover(text, each, everything) for each in premises]
    torch.testing.assert_close(words.premises(text), torch.tensor(expected))
    expected = [cover(text, each, everything) for each in conclusions]
    torch.testing.assert_close(words.conclusions(text), torch.tensor(expected))
    rows = [*range(len(premises)), 0]
    expected = [
        [max(cover(p, c, everything), cover(c, p, everything)) for c in conclusions]
        for p in (premises[row] for row in rows)
    ]
    torch.testing.assert_close(words.links(torch.tensor(rows)), torch.tensor(expected))


@pytest.fixture
def rules():
    """Rules of the tokenizer's words, some of one premise."""
    draws = torch.randint(10, 24, (12, 4), generator=torch.Generator().manual_seed(6)).tolist()
    return [f"If w{a} w{b}, w{c} w{d}." for a, b, c, d in draws]


def ready(tiny_model, **changes):
    """A model, and an adapter whose searches read the text."""
    model = tiny_model("llama")
    settings = {"top_k": 12, "reading": "tokens", "search_heads": 2} | changes
    adapter = RuleAdapter(model, dynarule_config(WIDTH, LAYER, **settings))
    generator = torch.Generator().manual_seed(2)
    for parameter in adapter[LAYER].parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    return model, adapter


@torch.no_grad()
@pytest.mark.parametrize("reading", ["tokens", "vector"])
def test_a_search_counts_the_words_of_the_text_since_the_last(
    reading, rules, tiny_model, tiny_tokenizer, in_pieces
):
    """In a padded batch whose rows search at other times, whole and token by token."""
    tokenizer, bank = tiny_tokenizer(), random_bank(rules)
    everything = different(*parts(rules))
    rows = [["w10 w12 w31", "w14 w15 w10", "w22 w20"], ["w11 w13 w17 w40 w16", "w13", "w23 w19 w18 w12"]]
    lines, asked = [], []
    for row in rows:
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in row]
        lines.append([token for part in ids for token in (*part, SEARCH)])
        asked.append(len(ids[0]))
    width = max(map(len, lines))
    batch = torch.tensor([[0] * (width - len(line)) + line for line in lines])
    real = (batch > 0).long()
    begins = [width - len(line) for line in lines]
    prompt = max(begin + length for begin, length in zip(begins, asked, strict=True))
    question = torch.zeros_like(batch, dtype=torch.bool)
    for row, begin in enumerate(begins):
        question[row, begin : begin + asked[row]] = True
    scores = []
    # Where pieces begin with the longest prompt, a row whose question is shorter has begun to answer.
    for weight, pieces in ((0.0, [width]), (2.0, [width]), (2.0, [prompt, *[1] * (width - prompt)])):
        model, adapter = ready(tiny_model, word_weight=weight, reading=reading, first_layer=LAYER)
        memory = adapter.config.memory_class()(adapter, bank, SEARCH, tokenizer=tokenizer)
        memory.question_mask_BT = question[:, : pieces[0]]
        with attach(model, memory):
            in_pieces(model, batch, real, pieces)
        searches = [r for r in memory.trace if r.layer == LAYER]
        scores.append({(r.row, r.step): dict(zip(r.ids, r.scores, strict=True)) for r in searches})
    plain, whole, stepwise = scores
    assert stepwise.keys() == whole.keys() == plain.keys()
    for which, alone in whole.items():
        assert stepwise[which] == pytest.approx(alone, abs=1e-4)
    for row, (prompt, *answers) in enumerate(rows):
        for step, text in enumerate([prompt, prompt, *answers]):
            written = " ".join(answers[: max(0, step - 1)])
            for at, (premise, conclusion) in enumerate(zip(*parts(rules), strict=True)):
                expected = cover(text, premise, everything) * (1 - cover(written, conclusion, everything))
                got = whole[row, step][f"r{at}"] - plain[row, step][f"r{at}"]
                assert got == pytest.approx(2 * expected, abs=1e-4)


def test_words_are_those_of_the_rules_however_a_bank_keeps_them(rules):
    """Rules that share an embedding, each with its own, after others were removed, and from a file."""
    pairs = [(at // 2, -at % 6) for at in range(12)]
    texts = [f"{rules[p].split(', ')[0]}, {rules[c].split(', ')[1]}" for p, c in pairs]
    other, search = random_bank(texts), SearchText("w10 w12 w14", "", "w11 w18")
    rows = {"key_rows_M": torch.tensor(pairs)[:, 0], "value_rows_M": torch.tensor(pairs)[:, 1]}
    shared = RuleBank(other.keys_MP[:6], other.values_MP[:6], other.ids, texts, **rows)
    premises, conclusions = (list(side) for side in parts(texts))
    everything = different(premises, conclusions)
    expected = [
        cover(search.question, premise, everything) * (1 - cover(search.written, conclusion, everything))
        for premise, conclusion in zip(premises, conclusions, strict=True)
    ]
    for bank in (shared, other):
        torch.testing.assert_close(words_of(bank).begun(search, bank), torch.tensor(expected))
        assert words_of(bank) is words_of(bank) is not words_of(bank, "english")
    few = random_bank(texts[:5])
    fresh = words_of(few).begun(search, few)
    for bank in (shared, other):
        bank.remove(bank.ids[5:])
        torch.testing.assert_close(words_of(bank).begun(search, bank), fresh)
    shared.add(RuleBank(other.keys_MP[:1], other.values_MP[:1], ["again"], [texts[0][:-1] + " w30."]))
    more = random_bank([*texts[:5], texts[0][:-1] + " w30."])
    torch.testing.assert_close(words_of(shared).begun(search, shared), words_of(more).begun(search, more))


def read(model, adapter, bank, tokenizer, *texts, search=SEARCH, **settings):
    memory, cache = TokenMemory(adapter, bank, search, tokenizer=tokenizer, **settings), None
    with attach(model, memory):
        for text in texts:
            ids = tokenizer(text() if callable(text) else text, add_special_tokens=False)["input_ids"]
            cache = model(torch.tensor([ids]), past_key_values=cache, use_cache=True).past_key_values
    return memory.trace[-1]


@torch.no_grad()
def test_rules_are_found_by_their_words_if_they_are_allowed_and_as_soon_as_they_are_there(
    rules, tiny_model, tiny_tokenizer
):
    model, adapter = ready(tiny_model, word_weight=50.0, top_k=2)
    tokenizer, bank, premise = tiny_tokenizer(), random_bank(rules), rules[0].split(",")[0][3:]
    assert read(model, adapter, bank, tokenizer, premise).ids[0] == "r0"
    allowed = read(model, adapter, bank, tokenizer, premise, allowed_BM=torch.arange(12)[None] >= 6)
    assert all(int(rule[1:]) >= 6 for rule in allowed.ids)

    def added():
        bank.add(RuleBank(*(torch.zeros(1, WIDTH) for _ in range(2)), ["new"], ["If w60 w61, w62."]))
        return f"w{SEARCH}"

    assert read(model, adapter, bank, tokenizer, "w10 w11", "w60 w61", added).ids[0] == "new"


@torch.no_grad()
def test_words_follow_what_is_asked_backward(tiny_model, tiny_tokenizer):
    """Of two rules that begin alike, the one whose conclusion begins what answers the question is found."""
    bank = random_bank(
        ["If w10 w11, w12 w13.", "If w10 w11, w14 w15.", "If w14 w15, w16 w17.", "If w12 w13, w18 w19."]
    )
    for goal, first, then in (("w16 w17", "r1", "r2"), ("w18 w19", "r0", "r3")):
        model, adapter = ready(tiny_model, word_weight=50.0, lookahead=3, top_k=4)
        adapter[LAYER].lookahead.weight.fill_(1.0)
        search = read(model, adapter, bank, tiny_tokenizer(), f"w10 w11 w30 {goal}")
        assert search.ids[0] == first and set(search.read) == {first, then}


@torch.no_grad()
@pytest.mark.parametrize("stemmer, first", [("", "r1"), ("english", "r0")])
def test_a_search_goes_by_stems_where_the_adapter_says_so(stemmer, first, tiny_model, word_tokenizer):
    rules = ["Greet(A, B) => Wet(A)", "Kit_swims_far(A, B) => Wet(A)", "Sleep(A, B) => Wet(A)"]
    question = "Kit greets Bob. How is Bob?"
    tokenizer = word_tokenizer([*rules, question])
    model, adapter = ready(tiny_model, word_weight=50.0, word_stemmer=stemmer, top_k=4)
    token = tokenizer.convert_tokens_to_ids("<search>")
    assert read(model, adapter, random_bank(rules), tokenizer, question, search=token).ids[0] == first


def test_after_a_change_only_new_rules_are_taken_apart(monkeypatch):
    split = Mock(wraps=parts_of)
    monkeypatch.setattr("dynarule.bank.bank.parts_of", split)
    bank, more = random_bank(["If A is wet, B dries."]), random_bank(["If G, H.", "If E is old, F goes."])
    more.remove(["r0"])
    words_of(bank)
    bank.add(more)
    assert words_of(bank).premises("E is old").tolist()[1] > 0.1 and split.call_count == 2
