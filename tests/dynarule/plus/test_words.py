"""Words beside what was learned: by the module's formulas, word by word, and on the bank as it is now."""

import math
import re
from itertools import pairwise

import pytest
import torch
from dynarule.plus.lookahead import LookAhead, Tables
from dynarule.plus.words import SearchText, Words, words_of
from hypothesis import given
from hypothesis import strategies as st

from dynarule import PlusMemory, RuleAdapter, RuleBank, RuleStates, TokenMemory, attach, dynarule_config

SEARCH, WIDTH, LAYER = 7, 20, 2
TEXTS = st.lists(st.text("ab c1_(,A", max_size=12), min_size=1, max_size=5)


def said(text):
    """Words and pairs of neighbours."""
    words = re.findall("[a-z]+|[0-9]+", text.lower())
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}


def different(premises, conclusions):
    """All texts of a bank that say something, each once a side."""
    return [each for side in (premises, conclusions) for each in dict.fromkeys(side) if said(each)]


def parts(rules):
    """Premises and conclusions."""
    return zip(*(rule[:-1].split(", ") for rule in rules), strict=True)


def cover(text, other, everything):
    """How much of the other's terms a text has, by their weight."""

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
    for at in range(len(conclusions)):
        one = words.links(torch.tensor(rows), at)
        torch.testing.assert_close(one, torch.tensor(expected)[:, at : at + 1])


FORMS = {
    "greet": "greets",
    "punish": "punishes",
    "bury": "buries",
    "follow": "following",
    "rabbit": "rabbits",
}
"""Words, and another form in which a text may say them."""


@given(
    *[st.lists(st.lists(st.sampled_from(sorted(FORMS)), max_size=4), min_size=1, max_size=4)] * 2,
    st.randoms(),
)
def test_stems_are_one_word_whatever_the_form(premises, conclusions, random):
    """By a table, in identifiers with variables: what is left are words and numbers."""

    def in_any_form(words):
        return "_A, 2".join(random.choice((word, FORMS[word].title())) for word in words)

    forms = {}  # one for each text: said in two, a premise would count as two where words are weighed
    sides = [
        [forms.setdefault(tuple(each), in_any_form(each)) for each in side]
        for side in (premises, conclusions)
    ]
    plain = Words([" 2 ".join(each) for each in premises], [" 2 ".join(each) for each in conclusions])
    stemmed = Words(*sides, stemmer="english")
    text = premises[0] + conclusions[0]
    torch.testing.assert_close(stemmed.premises(in_any_form(text)), plain.premises(" 2 ".join(text)))
    torch.testing.assert_close(stemmed.conclusions(in_any_form(text)), plain.conclusions(" 2 ".join(text)))
    rows = torch.arange(len(premises))
    torch.testing.assert_close(stemmed.links(rows), plain.links(rows))


def test_levels_with_words_are_those_of_the_formula(bank, near):
    torch.manual_seed(0)
    look, generator = LookAhead(8, WIDTH, 2), torch.Generator().manual_seed(5)
    torch.nn.init.normal_(look.link.weight, std=0.3)
    premises, conclusions = (
        [" ".join(f"w{w}" for w in row) for row in torch.randint(0, 9, (30, 3), generator=generator).tolist()]
        for _ in range(2)
    )
    tables = Tables(bank.keys_MP, bank.values_MP, words=Words(premises, conclusions), word_weight=1.5)
    first_M = torch.randn(30)
    got = look.levels(first_M[None], tables, 3, 4)
    weight, bias = look.link.weight.detach(), look.link.bias.detach()
    everything = different(premises, conclusions)
    levels = [first_M.tolist()]
    for _ in range(2):
        best = sorted(range(30), key=lambda j: -levels[-1][j])[:4]
        level = []
        for m in range(30):
            mapped = weight @ bank.values_MP[m] + bias
            ways = []
            for j in best:
                logit = float(mapped[:-1] @ bank.keys_MP[j] + mapped[-1])
                one, two = conclusions[m], premises[j]
                shared = max(cover(one, two, everything), cover(two, one, everything))
                ways.append(levels[-1][j] - math.log1p(math.exp(-logit)) + 1.5 * (shared - 1))
            level.append(max(ways))
        levels.append(level)
    assert near(torch.stack(got)[:, 0], torch.tensor(levels), units=500)


def bank_of(rules, **changes):
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(len(rules), WIDTH, generator=generator) for _ in range(2))
    return RuleBank(keys, values, [f"r{i}" for i in range(len(rules))], rules, **changes)


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
def test_a_search_counts_the_words_of_the_text_since_the_last(rules, tiny_model, tiny_tokenizer):
    """In a padded batch whose rows search at other times, whole and token by token."""
    tokenizer, bank = tiny_tokenizer(), bank_of(rules)
    everything = different(*parts(rules))
    prompts = ["w10 w12 w31", "w11 w13 w17 w40 w16"]
    answers = [["w14 w15 w10", "w22 w20"], ["w13", "w23 w19 w18 w12"]]
    ids = [
        [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, *answer)]
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    lines = [[*row[0], SEARCH, *row[1], SEARCH, *row[2], SEARCH] for row in ids]
    width = max(map(len, lines))
    starts = [width - len(line) for line in lines]
    batch = torch.tensor([[0] * start + line for start, line in zip(starts, lines, strict=True)])
    real = torch.tensor([[0] * start + [1] * len(line) for start, line in zip(starts, lines, strict=True)])
    question = torch.zeros_like(batch, dtype=torch.bool)
    for row, start in enumerate(starts):
        question[row, start : start + len(ids[row][0])] = True
    scores = {}
    for weight, pieces in ((0.0, 1), (2.0, 1), (2.0, width)):
        model, adapter = ready(tiny_model, word_weight=weight)
        memory = TokenMemory(adapter, bank, RuleStates(model, tokenizer), SEARCH)
        memory.question_mask_BT, cache = question, None
        start = width if pieces == 1 else max(at + len(row[0]) for at, row in zip(starts, ids, strict=True))
        with attach(model, memory):
            if pieces > 1:  # rows whose question is shorter have begun to answer
                memory.question_mask_BT = question[:, :start]
            for begin, end in [(0, start), *((at, at + 1) for at in range(start, width))]:
                piece, seen = batch[:, begin:end], real[:, :end]
                cache = model(
                    piece, attention_mask=seen, past_key_values=cache, use_cache=True
                ).past_key_values
        scores[weight, pieces] = {
            (each.row, each.step): dict(zip(each.ids, each.scores, strict=True)) for each in memory.trace
        }
    assert scores[2.0, width].keys() == scores[2.0, 1].keys()
    for which, alone in scores[2.0, 1].items():
        assert scores[2.0, width][which] == pytest.approx(alone, abs=1e-4)
    for row, prompt in enumerate(prompts):
        for step, text in enumerate([prompt, prompt, *answers[row]]):
            for at, rule in enumerate(rules):
                got = scores[2.0, 1][row, step][f"r{at}"] - scores[0.0, 1][row, step][f"r{at}"]
                premise, conclusion = rule[:-1].split(", ")
                written = " ".join(answers[row][: max(0, step - 1)])
                expected = cover(text, premise, everything) * (1 - cover(written, conclusion, everything))
                assert got == pytest.approx(2 * expected, abs=1e-4)


@torch.no_grad()
def test_words_follow_what_is_asked_backward(tiny_model, tiny_tokenizer):
    """Of two rules that begin alike, the one whose conclusion begins what answers the question is found."""
    rules = ["If w10 w11, w12 w13.", "If w10 w11, w14 w15.", "If w14 w15, w16 w17.", "If w12 w13, w18 w19."]
    tokenizer, bank = tiny_tokenizer(), bank_of(rules)
    for asked, first in (("w16 w17", "r1"), ("w18 w19", "r0")):
        model, adapter = ready(tiny_model, word_weight=50.0, lookahead=3, top_k=4)
        adapter[LAYER].lookahead.weight.fill_(1.0)
        memory = TokenMemory(adapter, bank, RuleStates(model, tokenizer), SEARCH)
        ids = torch.tensor([tokenizer(f"w10 w11 w30 {asked}", add_special_tokens=False)["input_ids"]])
        with attach(model, memory):
            model(ids, use_cache=False)
        assert memory.trace[-1].ids[0] == first
        assert set(memory.trace[-1].read) == {first, {"r1": "r2", "r0": "r3"}[first]}


@torch.no_grad()
@pytest.mark.parametrize("stemmer, first", [("", "r1"), ("english", "r0")])
def test_a_search_goes_by_stems_where_the_adapter_says_so(stemmer, first, tiny_model, word_tokenizer):
    rules = ["Greet(A, B) => Wet(A)", "Kit_swims_far(A, B) => Wet(A)", "Sleep(A, B) => Wet(A)"]
    asked = "Kit greets Bob. How is Bob?"
    tokenizer, bank = word_tokenizer([*rules, asked]), bank_of(rules)
    model, adapter = ready(tiny_model, word_weight=50.0, word_stemmer=stemmer, top_k=4)
    memory = TokenMemory(
        adapter, bank, RuleStates(model, tokenizer), tokenizer.convert_tokens_to_ids("<search>")
    )
    ids = torch.tensor([tokenizer(asked, add_special_tokens=False)["input_ids"]])
    with attach(model, memory):
        model(ids, use_cache=False)
    assert memory.trace[-1].ids[0] == first


def test_words_are_those_of_the_bank_as_it_is(rules):
    bank, said = bank_of(rules[:6]), SearchText("w10 w12 w14", "", "w11 w18")
    before = words_of(bank)
    assert words_of(bank) is before
    stemmed = words_of(bank, "english")
    assert words_of(bank) is before and stemmed is not before and words_of(bank, "english") is stemmed
    other = bank_of(rules)
    bank.add(RuleBank(other.keys_MP[6:], other.values_MP[6:], other.ids[6:], rules[6:]))
    torch.testing.assert_close(words_of(bank).begun(said), words_of(other).begun(said))


def test_words_are_those_of_the_rules_however_a_bank_keeps_them(rules):
    """Rules that share an embedding, each with its own, after others were removed, and from a file."""
    pairs = [(at // 2, -at % 6) for at in range(12)]
    texts = [f"{rules[p].split(', ')[0]}, {rules[c].split(', ')[1]}" for p, c in pairs]
    other, search = bank_of(texts), SearchText("w10 w12 w14", "", "w11 w18")
    rows = {"key_rows_M": torch.tensor(pairs)[:, 0], "value_rows_M": torch.tensor(pairs)[:, 1]}
    shared = RuleBank(other.keys_MP[:6], other.values_MP[:6], other.ids, texts, **rows)
    premises, conclusions = (list(side) for side in parts(texts))
    everything = different(premises, conclusions)
    expected = [
        cover(search.question, premise, everything) * (1 - cover(search.written, conclusion, everything))
        for premise, conclusion in zip(premises, conclusions, strict=True)
    ]
    for bank in (shared, other):
        torch.testing.assert_close(words_of(bank).begun(search), torch.tensor(expected))
    fresh = words_of(bank_of(texts[:5])).begun(search)
    for bank in (shared, other):
        bank.remove(bank.ids[5:])
        torch.testing.assert_close(words_of(bank).begun(search), fresh)
    shared.add(RuleBank(other.keys_MP[:1], other.values_MP[:1], ["again"], [texts[0][:-1] + " w30."]))
    whole = words_of(bank_of([*texts[:5], texts[0][:-1] + " w30."])).begun(search)
    torch.testing.assert_close(words_of(shared).begun(search), whole)


@torch.no_grad()
def test_rules_that_are_not_allowed_are_not_found_by_their_words(rules, tiny_model, tiny_tokenizer):
    model, adapter = ready(tiny_model, word_weight=50.0, top_k=2)
    tokenizer, allowed_BM = tiny_tokenizer(), torch.arange(12)[None] >= 6
    states = RuleStates(model, tokenizer)
    ids = torch.tensor([tokenizer(rules[0].split(",")[0][3:], add_special_tokens=False)["input_ids"]])
    best = []
    for allowed in (None, allowed_BM):
        memory = TokenMemory(adapter, bank_of(rules), states, SEARCH, allowed_BM=allowed)
        with attach(model, memory):
            model(ids, use_cache=False)
        best.append(memory.trace[-1].ids)
    assert best[0][0] == "r0" and all(int(rule[1:]) >= 6 for rule in best[1])


@torch.no_grad()
def test_a_rule_that_comes_during_a_generation_is_found_by_its_words(rules, tiny_model, tiny_tokenizer):
    model, adapter = ready(tiny_model, word_weight=50.0, top_k=2)
    tokenizer, bank = tiny_tokenizer(), bank_of(rules[:6])
    new = RuleBank(*(torch.zeros(1, WIDTH) for _ in range(2)), ["new"], ["If w60 w61, w62."])
    memory = TokenMemory(adapter, bank, RuleStates(model, tokenizer), SEARCH)
    said_ids = tokenizer("w60 w61", add_special_tokens=False)["input_ids"]
    with attach(model, memory):
        cache = model(torch.tensor([[10, 11]]), use_cache=True).past_key_values
        cache = model(torch.tensor([said_ids]), past_key_values=cache, use_cache=True).past_key_values
        bank.add(new)
        model(torch.tensor([[SEARCH]]), past_key_values=cache, use_cache=True)
    assert memory.trace[-1].ids[0] == "new"


def test_words_need_a_memory_that_knows_the_text(rules, tiny_model):
    _, adapter = ready(tiny_model, word_weight=0.2, first_layer=LAYER)
    with pytest.raises(ValueError, match="are read by a TokenMemory, not a PlusMemory"):
        PlusMemory(adapter, bank_of(rules), SEARCH)


@pytest.mark.parametrize(
    "settings, expected",
    [
        (
            {"word_weight": -0.1, "search_heads": 2, "reading": "tokens"},
            "word_weight must be 0 or more, got -0.1",
        ),
        ({"word_weight": 0.2, "search_heads": 2}, 'set reading to "tokens"'),
        ({"word_weight": 0.2, "reading": "tokens"}, "word_weight needs heads that read the text"),
        ({"word_stemmer": "klingon"}, "word_stemmer must be one of .*'english'.*, got 'klingon'"),
    ],
)
def test_what_words_need(settings, expected):
    with pytest.raises(ValueError, match=expected):
        dynarule_config(WIDTH, LAYER, **settings)
