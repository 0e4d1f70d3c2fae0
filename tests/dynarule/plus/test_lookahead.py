"""The look-ahead: its levels are those of its formula, and it finds the same however the text is read."""

import math

import pytest
import torch
from dynarule.bank import SharedRows
from dynarule.plus.lookahead import LookAhead, Tables, planned
from dynarule.plus.reader import EARLIER, QUESTION, SINCE, TOKEN, SearchContext, SearchInput, SearchReader
from dynarule.plus.words import Words

from dynarule import PlusMemory, RuleAdapter, RuleBank, attach, dynarule_config

SEARCH, WIDTH, LAYER = 7, 20, 2
PROMPT = [5, 9, 11, 13]
MARK = {"shared_after": True, "score_weight": 3.0, "search_token": "w7"}
TEXT = [*PROMPT, SEARCH, 21, 22, SEARCH, 31, 32, 33, SEARCH, 41]


def planning(model, **changes):
    """An adapter that looks ahead, with weights large enough to matter."""
    torch.manual_seed(3)
    settings = {"first_layer": LAYER, "top_k": 3, "search_heads": 2, "lookahead": 3, "lookahead_width": 4}
    adapter = RuleAdapter(model, dynarule_config(WIDTH, LAYER, **(settings | changes)))
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return adapter


def reference(look, first, keys, values, count, width, words=lambda m, j: 0.0):
    """The formula of the module, rule by rule, in Python's numbers, with what words add to a link."""
    rules = range(len(keys))
    weight, bias = look.link.weight.detach().double(), look.link.bias.detach().double()

    def link(m, j):
        mapped = weight @ values[m].double() + bias
        logit = float(mapped[:-1] @ keys[j].double() + mapped[-1])
        return words(m, j) - math.log1p(math.exp(-logit))

    levels = [first]
    while len(levels) < count:
        best = sorted(rules, key=lambda j: -levels[-1][j])[:width]
        levels.append([max(link(m, j) + levels[-1][j] for j in best) for m in rules])
    return torch.tensor(levels)


@pytest.mark.parametrize("width", [3, 30])
def test_levels_are_those_of_the_formula(bank, near, width):
    torch.manual_seed(0)
    look = LookAhead(8, WIDTH, 2)
    torch.nn.init.normal_(look.link.weight, std=0.3)
    goal_BP = torch.randn(4, WIDTH)
    got = look.levels(goal_BP @ bank.values_MP.T, Tables(bank.keys, bank.values), 3, width)
    for row in range(4):
        first = (bank.values_MP.double() @ goal_BP[row].double()).tolist()
        expected = reference(look, first, bank.keys_MP, bank.values_MP, 3, width)
        assert near(torch.stack(got)[:, row], expected.float(), units=500)
    own_BM = torch.randn(4, 30)
    best_BM = torch.stack(got).amax(0)
    assert near(planned(own_BM, got, torch.tensor(0.5)), own_BM + 0.5 * best_BM)


def test_words_count_in_levels_by_how_much_conclusion_and_premise_cover_each_other(bank, near):
    """`test_words` has what covers what."""
    torch.manual_seed(0)
    look, generator = LookAhead(8, WIDTH, 2), torch.Generator().manual_seed(5)
    torch.nn.init.normal_(look.link.weight, std=0.3)
    draws = torch.randint(0, 9, (2, 30, 3), generator=generator).tolist()
    words = Words(*([" ".join(f"w{w}" for w in row) for row in side] for side in draws))
    tables = Tables(bank.keys, bank.values, words=words, word_weight=1.5, known={})
    first_M, covered = torch.randn(30), words.links(torch.arange(30))
    levels = look.levels(first_M[None], tables, 3, 4)
    with torch.no_grad():  # what one search worked out is at hand for the next
        again = [torch.stack(look.levels(first_M[None], tables, 3, 4)) for _ in range(2)]
    assert len(tables.known) > 3 and torch.equal(*again) and near(again[0], torch.stack(levels))

    def added(m, j):
        return 1.5 * (float(covered[j, m]) - 1)

    expected = reference(look, first_M.tolist(), bank.keys_MP, bank.values_MP, 3, 4, added)
    assert near(torch.stack(levels)[:, 0], expected.float(), units=500)


def test_rules_of_one_premise_or_one_conclusion_are_worked_on_once(bank, tiny_model, near, monkeypatch):
    model = tiny_model("llama")
    adapter, seen = planning(model), []
    rows_M, key_rows_M = torch.arange(30) % 6, torch.arange(30) // 4
    keys_UP, values_VP, real = bank.keys_MP[:8], bank.values_MP[:6], LookAhead.link_logits
    shared = RuleBank(keys_UP, values_VP, bank.ids, bank.texts, value_rows_M=rows_M, key_rows_M=key_rows_M)
    apart = RuleBank(keys_UP[key_rows_M], values_VP[rows_M], bank.ids, bank.texts)

    def link_logits(self, keys_NP, values_MP):
        seen.append(len(values_MP))
        return real(self, keys_NP, values_MP)

    monkeypatch.setattr(LookAhead, "link_logits", link_logits)
    traces = []
    for each, conclusions in ((shared, 6), (apart, 30)):
        with torch.no_grad(), attach(model, PlusMemory(adapter, each, SEARCH)) as memory:
            model(torch.tensor([TEXT]))
        traces.append(memory.trace)
        assert max(seen) == conclusions
        seen.clear()
    # where the links of many conclusions are not kept, a way asks for those of its own rule alone
    monkeypatch.setattr("dynarule.plus.lookahead.MOST_LINKS", 0)
    with torch.no_grad(), attach(model, PlusMemory(adapter, apart, SEARCH)) as memory:
        model(torch.tensor([TEXT]))
    assert set(seen) == {30, 1}
    assert [search.way for search in memory.trace] == [search.way for search in traces[1]]
    for one, two in zip(*traces, strict=True):
        assert (one.ids, one.way) == (two.ids, two.way)
        assert near(one.scores, two.scores, units=500)


def readers(known, hidden, near, **places):
    """A reader that tells places apart and answers with what its head reads; first, they change nothing."""
    reader, plain = SearchReader(hidden, hidden, 1, **places), SearchReader(hidden, hidden, 1)
    plain.load_state_dict({name: reader.state_dict()[name] for name in plain.state_dict()})
    assert near(reader(known), plain(known), units=500)
    with torch.no_grad():
        reader.query.weight.zero_()
        reader.out.weight.copy_(torch.eye(hidden, 2 * hidden))
    return reader


@torch.no_grad()
def test_a_search_reads_from_where_the_last_step_is_in_the_question(near):
    """Word by word: what the last step says is looked up in the question, and an offset from there is read."""
    torch.manual_seed(4)
    words, hidden = 6, 12
    states = torch.nn.functional.normalize(torch.randn(words + 3, hidden), dim=-1) * 12
    states[words + 1] = states[2]  # the last step says the question's third word, after its mark
    first = [QUESTION] * words + [TOKEN, -1, -1]
    later = [QUESTION] * words + [EARLIER, SINCE, TOKEN]
    known = SearchInput(states.expand(2, -1, -1), torch.tensor([first, later]), states[[words, words + 2]])
    reader = readers(known, hidden, near, offsets=2)
    reader.offset.copy_(torch.tensor([[[0, 0, 0, 20, 0.0]], [[0, 0, 0, 0, 20.0]]]))
    read = reader(known)
    # The second word at first, one from the start; then all from two words after the third.
    assert torch.allclose(read[0], states[1], atol=1e-3)
    assert torch.allclose(read[1], states[4:words].mean(0), atol=0.1)


@torch.no_grad()
def test_a_search_reads_from_the_end_of_question_and_step(near):
    """Each is counted from its own last token; what is further back than the tail counts as its end."""
    torch.manual_seed(4)
    kinds = torch.tensor([[QUESTION] * 4 + [EARLIER, SINCE, SINCE, SINCE, TOKEN, -1]])
    states = torch.randn(1, 10, 12)
    known = SearchInput(states, kinds, states[:, 8])
    reader = readers(known, 12, near, tail=2)
    for of, at, expected in ((0, 1, [2]), (1, 0, [7]), (1, 1, [6]), (0, 2, [0, 1]), (1, 2, [5])):
        reader.tail.zero_()[of, 0, at] = 30.0
        torch.testing.assert_close(reader(known)[0], states[0, expected].mean(0), rtol=0, atol=1e-3)


def test_rules_that_are_not_allowed_lead_nowhere(bank):
    look = LookAhead(8, WIDTH, 2)
    goal_BP = torch.randn(1, WIDTH)
    allowed_BM = torch.zeros(1, 30, dtype=torch.bool)
    allowed_BM[0, :5] = True
    masked = look.levels(goal_BP @ bank.values_MP.T, Tables(bank.keys, bank.values), 3, 8, allowed_BM)
    few = Tables(SharedRows(bank.keys_MP[:5]), SharedRows(bank.values_MP[:5]))
    alone = look.levels(goal_BP @ bank.values_MP[:5].T, few, 3, 5)
    for one, two in zip(masked, alone, strict=True):
        torch.testing.assert_close(one[:, :5], two)


def test_what_is_read_is_a_plan():
    """Rules from state to state, as pairs; the third state is asked for, and rule 3 says it of itself."""
    pairs = [(0, 1), (1, 2), (1, 3), (4, 2), (0, 3)]
    keys, values = (torch.eye(5)[[pair[side] for pair in pairs]] for side in (0, 1))
    look = LookAhead(8, 5, 2)
    with torch.no_grad():
        look.link.weight.copy_(torch.cat([40 * torch.eye(5), torch.zeros(1, 5)]))
        look.link.bias.zero_()[-1] = -20.0
        tables = Tables(SharedRows(keys), SharedRows(values))
        levels = look.levels(30 * torch.eye(5)[2][None] @ values.T, tables, 3, 5)

        def plan(rules, scores, whole=False):
            return look.plan(rules, scores, [level[0] for level in levels], tables, 5, whole)

        # The best leads on by rule 1; rule 4 begins as it does, and leads elsewhere.
        assert plan([0, 4, 3], [5.0, 4.9, 4.0]) == ([0, 3, 1], [1])
        # The best answers at once, and rule 0, about as good, leads on: the chain may not be at its end.
        assert plan([3, 4, 0], [5.0, 4.5, 4.8]) == ([3, 0, 1], [])
        assert plan([3, 4, 0], [5.0, 4.5, 4.6]) == ([3], [])
        assert plan([1, 3], [5.0, 2.0]) == ([1, 3], [])
        # A prompt reads all that answers what is asked, found or not.
        assert plan([0, 4], [5.0, 4.9]) == ([0, 1], [1])
        assert plan([0, 4], [5.0, 4.9], whole=True) == ([0, 1, 3], [1])


def test_what_a_search_sees_of_a_text():
    ids = torch.tensor([TEXT])
    question = torch.arange(len(TEXT))[None] < len(PROMPT)
    search = (ids == SEARCH) & ~question
    states = torch.randn(1, len(TEXT), 6)
    known = SearchContext().read(states, search, torch.ones_like(search), question)
    q, e, s, t = QUESTION, EARLIER, SINCE, TOKEN
    assert [each.kind_BT[0].tolist() for each in known] == [
        [q, q, q, t] + [-1] * 9,
        [q, q, q, q, t] + [-1] * 8,
        [q, q, q, q, e, s, s, t] + [-1] * 5,
        [q, q, q, q, e, e, e, e, s, s, s, t, -1],
    ]
    torch.testing.assert_close(known[3].token_BC[0], states[0, 11])


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("qwen3", {"shared_after": True, "score_weight": 3.0, "score_limit": 0.5}),
        ("llama", MARK),
        ("llama", {"shared_after": True, "score_weight": 3.0, "first_layer": 0}),
    ],
)
@torch.no_grad()
def test_token_by_token_finds_what_the_whole_text_does(tiny_model, bank, near, in_pieces, family, changes):
    """Rows of different lengths, padded on the left, whose searches stand at different places."""
    model = tiny_model(family)
    ids = torch.tensor([TEXT, [0, 0, *PROMPT[:2], 22, SEARCH, 23, 24, 25, SEARCH, 33, 34, 42]])
    mask = (ids > 0).long()
    with attach(model, PlusMemory(planning(model, **changes), bank, SEARCH)) as memory:
        stepwise = in_pieces(model, ids, mask, [4, *[1] * 9])
        steps = {(each.row, each.step): each for each in memory.trace}
        memory.question_mask_BT = (torch.arange(ids.shape[1]) < 4) & mask.bool()
        whole = in_pieces(model, ids, mask, [ids.shape[1]])
    assert len(steps) == len(memory.trace) == 7
    for each in memory.trace:
        other = steps[each.row, each.step]
        assert (each.ids, each.way, each.read) == (other.ids, other.way, other.read)
        assert near(each.scores, other.scores, units=500)
    assert near(stepwise[mask.bool()], whole[mask.bool()], units=2000)


@torch.no_grad()
def test_scores_say_which_of_the_kept_rules_are_read(tiny_model, bank, near):
    """So much weight leaves the best alone; where a mark opens the answer, a prompt reads none."""
    model, ids = tiny_model("llama"), torch.tensor([TEXT])
    base, logits = model(ids).logits, {}
    for name, changes in {"one": {"top_k": 1}, "best": {"score_weight": 1e6}, "mark": MARK}.items():
        memory = PlusMemory(planning(tiny_model("llama"), **{"shared_after": True} | changes), bank, SEARCH)
        memory.question_mask_BT = torch.arange(len(TEXT))[None] < len(PROMPT)
        with attach(memory.adapter.model, memory):
            logits[name] = memory.adapter.model(ids).logits
    assert near(logits["best"], logits["one"], units=2000)
    asked = len(PROMPT)
    assert near(logits["mark"][:, :asked], base[:, :asked], units=2000)
    assert not near(logits["mark"][:, asked:], base[:, asked:], units=2000)
    assert not near(logits["one"][:, :asked], base[:, :asked], units=2000)


@pytest.mark.parametrize("limit", [None, 0.5])
@torch.no_grad()
def test_a_plan_is_read(tiny_model, bank, limit):
    """Rules beside it are not; those on the way weigh as their scores say, and no less than is allowed."""
    settings = {"shared_after": True, "score_weight": 3.0, "score_limit": limit, "top_k": 4}
    memory = PlusMemory(planning(tiny_model("llama"), **settings), bank, SEARCH)
    memory.question_mask_BT = torch.arange(len(TEXT))[None] < len(PROMPT)
    with attach(memory.adapter.model, memory):
        memory.adapter.model(torch.tensor([TEXT]))
    searches = [each for each in memory.trace if each.layer == LAYER]
    assert any(set(each.ids) - set(each.read) for each in searches)
    for number, each in enumerate(searches):
        scores = dict(zip(each.ids, each.scores, strict=True))
        rules = [bank.ids[rule] for rule in memory._chosen[number][0].tolist()]
        assert rules[: len(each.read)] == each.read[:4]
        for rule, shift in zip(rules, memory._shifts[number][0].tolist(), strict=True):
            low = 3.0 * (scores.get(rule, each.scores[-1]) - each.scores[0])
            expected = max(low, -(limit or 1e4)) if rule in each.read else -1e4
            assert shift == pytest.approx(expected, rel=1e-5, abs=1e-5)


@torch.no_grad()
def test_a_new_rule_is_planned_with_and_a_removed_one_is_not(tiny_model, bank):
    model = tiny_model("llama")
    adapter = planning(model)

    def planned_with():
        with attach(model, PlusMemory(adapter, bank, SEARCH)) as memory:
            model(torch.tensor([PROMPT]))
        return memory.trace[0].read

    (new, *_), before = planned_with(), len(bank)
    row = bank.row(new)
    again = RuleBank(bank.keys_MP[[row]], bank.values_MP[[row]], ["again"], ["rule 30"])
    bank.remove([new])
    assert new not in planned_with() and len(bank) == before - 1
    bank.add(again)
    assert "again" in planned_with()
