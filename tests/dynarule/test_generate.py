"""Generation with rules: batches, padding, <search>, its cap, the trace and the refused options."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from dynarule.decoding import RunningText
from dynarule.memory.refusal import says, support_curve
from dynarule.tokenizer import PlainText, encode_prompt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    ByT5Tokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

from dynarule import (
    RuleAdapter,
    RuleBank,
    RuleMemory,
    RuleStates,
    attach,
    dynarule_config,
    generate,
    question_prompts,
)

from .conftest import forcing

WIDTH, SEARCH = 20, 90
PROMPTS = ["w11 w12 w13", "w20", "w31 w32 w33 w34 w35 w36", "w41 w42"]


def by_hand(model, tokenizer, adapter, bank, prompt, steps, forced=()):
    """Greedy decoding with one full forward per token."""
    ids = tokenizer(prompt)["input_ids"]
    start, memory = len(ids), RuleMemory(adapter, bank, SEARCH)
    for step in range(steps):
        memory.question_mask_BT = torch.arange(len(ids))[None] < start
        with attach(model, memory):
            logits = model(torch.tensor([ids])).logits[0, -1]
        ids.append(SEARCH if step in forced else int(logits.argmax()))
    memory.question_mask_BT = torch.arange(len(ids))[None] < start
    with attach(model, memory):
        model(torch.tensor([ids]))
    return ids[start:], memory.trace


@pytest.mark.parametrize("own", [True, False])
def test_an_answer_ends_at_a_stop_string(own, bank, ready):
    """Of the bundled model's tokenizer, and of one whose words are tokens, over two of them."""
    if own:
        folder = next(Path(__file__).parents[2].glob("benchmarks/**/models/tiny/base"))
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5, update_scope="none"))
    else:
        model, tokenizer, _ = ready()

    def ask(**options):
        prompts = ["A cat", "In the"] if own else PROMPTS[:2]
        answers = generate(model, tokenizer, bank, prompts, max_new_tokens=12, **options)
        return [answer.text for answer in answers]

    first, second = ask()
    stop = first.split()[3] if own else " ".join(first.split()[1:3])
    assert ask(stop_strings=[stop] if own else stop) == [first[: first.index(stop) + len(stop)], second]
    assert stop not in second
    for wrong in (5, [""], [stop, None]):
        with pytest.raises(ValueError, match="texts that are not empty, got"):
            ask(stop_strings=wrong)


@torch.no_grad()
def test_answers_and_traces_are_those_of_full_forwards(family, bank, ready):
    model, tokenizer, adapter = ready(family)
    # Forced <search> at two places, since a random model emits none by itself.
    expected = [by_hand(model, tokenizer, adapter, bank, prompt, 8, forced=(2, 5)) for prompt in PROMPTS]
    for size in (1, 3, 8):
        for start in range(0, len(PROMPTS), size):
            forced, part = [forcing(2, 5)], PROMPTS[start : start + size]
            options = {"max_new_tokens": 8, "batch_size": size, "logits_processor": forced}
            answers = generate(model, tokenizer, bank, part, **options)
            wanted = expected[start : start + size]
            for row, (answer, (ids, trace)) in enumerate(zip(answers, wanted, strict=True)):
                assert list(answer.token_ids) == ids
                # The last token of an answer is never fed, so a <search> there reads nothing.
                searches = [(r.step, r.layer, r.ids) for r in answer.trace]
                assert searches == [(r.step, r.layer, r.ids) for r in trace][: len(searches)]
                assert len(searches) == 1 + ids[:-1].count(SEARCH) == 3
                assert {r.row for r in answer.trace} == {row}


def bytes_with_signs_for_parts():
    """As most models have it: a token may be a part of a character, which reads as a sign of its own."""
    names = {sign: i for i, sign in enumerate(["<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    made = Tokenizer(models.BPE(names, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")


@pytest.mark.parametrize("make", [ByT5Tokenizer, bytes_with_signs_for_parts])
def test_text_grows_token_by_token_and_few_are_decoded(make):
    whole, watched = make(), Mock(wraps=make())
    ids, text = whole("Ü 借书 🎉 " * 9, add_special_tokens=False)["input_ids"], RunningText(watched, {0})
    assert [text.add(i) for i in ids] == [whole.decode(ids[:end]) for end in range(1, len(ids) + 1)]
    assert max(len(call.args[0]) for call in watched.decode.call_args_list) < 24


@pytest.fixture
def ask(bank, ready):
    """Generates with a model that does not end by itself."""
    model, tokenizer, _ = ready()
    return lambda prompts, **options: generate(model, tokenizer, bank, prompts, **options)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_searches_are_capped_and_traced_by_prompt_across_batches(most, ask):
    wants = [lambda ids, scores: scores.index_fill(1, torch.tensor([SEARCH]), 1e4)]
    options = {"max_new_tokens": 7, "max_searches": most, "logits_processor": wants, "eos_token_id": -1}
    told = []
    answers = ask(PROMPTS, batch_size=3, on_answer=told.append, **options)
    assert told == answers
    for number, answer in enumerate(answers):
        assert answer.token_ids[:most] == (SEARCH,) * most
        assert SEARCH not in answer.token_ids[most:] and len(answer.token_ids) == 7
        assert "<search>" not in answer.text  # but for `keep_search`
        assert [(r.row, r.step) for r in answer.trace] == [(number, step) for step in range(most + 1)]


@pytest.fixture
def dictated(bank, tiny_model, word_tokenizer):
    """A function: what stands between the searches of an answer whose other tokens are those of some lines."""

    def write(lines, most, searches, cues=(), **settings):
        tokenizer, model = word_tokenizer(lines), tiny_model("llama")
        search, *search_cues = tokenizer.convert_tokens_to_ids(["<search>", *cues])
        settings |= {"confidence_layer": 2, "top_k": 5, "search_cues": search_cues}
        RuleAdapter(model, dynarule_config(WIDTH, **settings)).train_search(search)
        script = tokenizer("\n".join(lines))["input_ids"]

        def writes(ids, scores):
            done = sum(token != search for token in ids[0, 1:].tolist())
            return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([script[done]]), 0.0)

        options = {"max_new_tokens": len(script) + searches, "max_searches": most, "keep_search": True}
        options |= {"logits_processor": [writes], "eos_token_id": -1}
        (answer,) = generate(model, tokenizer, bank, ["a"], **options)
        assert [token for token in answer.token_ids if token != search] == script
        parts = answer.text.replace(" ", "").split("<search>")
        assert len(parts) == len(answer.trace) == 1 + searches
        return parts

    return write


@pytest.mark.parametrize(("place", "most", "later"), [("behind", 9, 2), ("behind", 1, 1), ("before", 9, 0)])
def test_search_is_written_behind_all_headers_but_the_first(place, most, later, dictated):
    parts = dictated([f"[Step {number}] a" for number in (1, 2, 12)], most, later, search_place=place)
    assert all(part.endswith(end) for part, end in zip(parts[:later], ["[Step2]", "[Step12]"], strict=False))


@pytest.mark.parametrize("most", [9, 2])
def test_search_is_written_behind_each_premise_once(most, dictated):
    lines = ["so has [Step 1] a so b has c . a has so", "[Step 12] a b so", "[Answer] a so b has"]
    parts = dictated(lines, most, min(most, 3), cues=("so", "has"), search_place="premise")
    expected = ["sohas[Step1]a", "sobhasc.a", "hasso[Step12]ab", "so[Answer]asobhas"]
    assert parts[:most] == expected[:most]


def test_an_answer_ends_where_a_search_finds_nothing_that_stands_out(ask):
    options = {"max_new_tokens": 8, "eos_token_id": -1}
    whole = ask(PROMPTS, logits_processor=[forcing(2, 5)], **options)
    shares = [[float(torch.tensor(r.scores).softmax(0)[0]) for r in answer.trace] for answer in whole]
    assert [answer.support for answer in whole] == pytest.approx([min(own) for own in shares])
    for least in sorted(share + 1e-4 for own in shares for share in own):
        told = ask(PROMPTS, logits_processor=[forcing(2, 5)], min_support=least, **options)
        for answer, full, own in zip(told, whole, shares, strict=True):
            ended = next((number for number, share in enumerate(own) if share < least), None)
            assert answer.refused == (ended is not None)
            if ended is None:
                assert answer.text == full.text
                continue
            assert answer.token_ids == full.token_ids[: (0, 2, 5)[ended]]
            nearest = [f"[{name}] rule {name[1:]} (" for name in full.trace[ended].ids[:3]]
            _, *lines, box = answer.text.split("\n")
            assert [line[: len(n)] for line, n in zip(lines, nearest, strict=True)] == nearest
            assert box == "\\boxed{unknown}"


def test_the_least_support_is_the_most_accurate_one():
    draw = torch.Generator().manual_seed(2)
    for _ in range(20):
        count = int(torch.randint(1, 9, (), generator=draw))
        supports = (torch.rand(count, generator=draw) * 4).round().div(4).tolist()
        right, unknown = torch.randint(2, (2, count), generator=draw).bool().tolist()
        points, best = support_curve(supports, right, unknown)
        assert len(points) == len({*supports}) + 1
        for least, coverage, accuracy, answered in points:
            kept = [ok for share, ok in zip(supports, right, strict=True) if share >= least]
            gone = [ok for share, ok in zip(supports, unknown, strict=True) if share < least]
            expected = [len(kept) / count, sum(kept + gone) / count, sum(kept) / len(kept) if kept else 1]
            assert [coverage, accuracy, answered] == pytest.approx(expected)
        assert best.accuracy == max(point.accuracy for point in points)


def test_the_last_box_is_compared():
    assert says(r"so \boxed{9}, then \boxed{ The  Tundra,9}", ["the tundra", "9"])
    assert not says(r"\boxed{9}", ["9", "8"]) and not says("9", ["9"])
    assert says(
        r"\boxed{tundra, \text{an  office}, $9$.}", ["the tundra", "office", "9"]
    )  # as the scorer has it
    assert not says(r"\boxed{the}", ["a"])


def test_an_answer_ends_at_the_end_token_and_without_pads(ask):
    def ends_first_row(ids, scores):
        scores = scores.index_fill(1, torch.tensor([96, 0]), -torch.inf)
        scores[0, 96] = torch.inf if ids.shape[1] == 8 else -torch.inf
        return scores

    short, long = ask([PROMPTS[2], PROMPTS[0]], max_new_tokens=6, logits_processor=[ends_first_row])
    assert (len(short.token_ids), short.token_ids[-1], len(long.token_ids)) == (3, 96, 6)


@torch.no_grad()
@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{% if %}", "{{ ''.__class__.__mro__ }}"])
def test_a_chat_template_that_breaks_is_a_users_error(template, tiny_tokenizer):
    """It comes with a stranger's adapter, and is a program."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=r"chat template cannot write prompt 3 .*or remove it"):
        encode_prompt(tokenizer, [{"role": "user", "content": "w1"}], 3)


def test_messages_go_through_the_chat_template(bank, ready, tiny_tokenizer):
    model, _, _adapter = ready()
    tokenizer = tiny_tokenizer(search=True, chat=True)
    message = [{"role": "user", "content": "w50 w51"}]
    both = generate(model, tokenizer, bank, [message, "w2 w50 w51 w3"], max_new_tokens=5)
    assert both[0].token_ids == both[1].token_ids
    assert both[0].trace[0].ids == both[1].trace[0].ids
    with pytest.raises(ValueError, match="no chat template"):
        generate(model, tiny_tokenizer(search=True), bank, [message])


@pytest.mark.parametrize(
    "option",
    [
        {"num_beams": 4},
        {"num_return_sequences": 2},
        {"max_new_tokens": 0},
        {"max_new_tokens": None},
        {"batch_size": 1.5},
        {"max_searches": -1},
        {"min_support": float("nan")},
        {"min_support": "0.5"},
        {"do_sample": "no"},
        {"max_length": 9},
        {"attention_mask": torch.ones(1, 3)},
        {"inputs": torch.ones(1, 3, dtype=torch.long)},
        {"pad_token_id": 0},
        {"token_healing": True},
        {"generation_config": GenerationConfig(do_sample=True, max_new_tokens=3)},
    ],
    ids=lambda option: str(next(iter(option.items()))),
)
def test_what_the_memory_cannot_follow_is_refused(option, ask):
    with pytest.raises(ValueError, match=next(iter(option))):
        ask(PROMPTS, **option)


def test_what_is_no_single_question_of_a_user_is_refused(tiny_tokenizer):
    tokenizer = tiny_tokenizer(search=True, chat=True)
    turn = {"role": "user", "content": "w50"}
    for role in ("assistant", "tool", "Assistant", "model", "user <search>", None):
        match = f"prompt 1 holds a turn of the {role}.*ask the last question by itself"
        with pytest.raises(ValueError, match=match):
            encode_prompt(tokenizer, [turn, turn | {"role": role}, turn], 1)
    with pytest.raises(ValueError, match="prompt 0 must end with the one message of the user"):
        encode_prompt(tokenizer, [turn, turn])
    for content in ("", None, 5, {"a": "w5"}, [{"type": "image_url"}], ["w5"], "w5 \ud800"):
        with pytest.raises(ValueError, match="prompt 0 holds a message whose content is empty or no text"):
            encode_prompt(tokenizer, [turn | {"content": content}])


def test_an_answered_turn_is_refused_in_a_text_that_the_template_wrote_too(tiny_tokenizer):
    tokenizer = tiny_tokenizer(search=True)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <search> {% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    dialogue = [{"role": role, "content": "w5"} for role in ("user", "assistant", "user")]
    for turns, fine in ((dialogue[:1], True), (dialogue[:2], True), (dialogue, False)):
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        with nullcontext() if fine else pytest.raises(ValueError, match="prompt 0 holds an answered turn"):
            assert encode_prompt(tokenizer, text).count(SEARCH) == len(turns)
        assert encode_prompt(tokenizer, PlainText(text)).count(SEARCH) == 0  # a user's text spells no turn


def test_what_is_no_question_is_refused(bank, ready):
    model, tokenizer, _adapter = ready()
    for empty in ("", "  ", "\n"):
        with pytest.raises(ValueError, match="question 1 is empty"):
            question_prompts(tokenizer, ["w1", empty])
        with pytest.raises(ValueError, match="prompt 1 has no tokens"):
            generate(model, tokenizer, bank, ["w1", empty])
    with pytest.raises(ValueError, match="question 0 holds half a surrogate pair"):  # LC_ALL=C, an old locale
        question_prompts(tokenizer, ["w1 \udcc3"])
    for call in (
        lambda text: question_prompts(tokenizer, text),
        lambda text: generate(model, tokenizer, bank, text),
    ):
        with pytest.raises(ValueError, match="must be a list of texts, got the one text 'w1 w2'"):
            call("w1 w2")
    for values in ({"w1": "w2"}, {"w1"}, None):
        with pytest.raises(ValueError, match=f"must be a list of texts, got a {type(values).__name__}"):
            generate(model, tokenizer, bank, values)
        with pytest.raises(ValueError, match="must be a list of texts"):
            RuleBank.from_texts(values, None, None)
    with pytest.raises(ValueError, match="from a RuleBank or a RuleMemory, got a list"):
        generate(model, tokenizer, [*bank.texts], ["w1"])
    with pytest.raises(ValueError, match="prompt 0 has 300 tokens, the model reads 256 at most"):
        generate(model, tokenizer, bank, ["w1 " * 300])
    with pytest.raises(
        ValueError, match="prompt 0 has a token of id 97, the model knows 97; load the tokenizer"
    ):
        tokenizer.add_tokens([f"x{i}" for i in range(7)])
        generate(model, tokenizer, bank, ["x6"])
    answers = generate(model, tokenizer, bank, ["w1 " * 250, "w2 " * 253, "w3 " * 256], max_new_tokens=10**9)
    assert [len(answer.token_ids) for answer in answers] == [6, 3, 1]
    model.model.norm.weight.data[0] = torch.nan
    with pytest.raises(ValueError, match="the model computes NaN in float32: its weights are damaged"):
        generate(model, tokenizer, bank, ["w1"])


@pytest.mark.parametrize(("token", "special"), [("<search>", True), ("<think>", True), ("<think>", False)])
def test_control_tokens_that_a_question_or_a_rule_spells_are_text(token, special, tiny_model, tiny_tokenizer):
    """Those that are added as no special token, too, as Qwen's ``<think>`` is: here two unknown words."""
    tokenizer, unknown = tiny_tokenizer(search=True), [1] * (2 - special)
    tokenizer.add_tokens(AddedToken(token, special=special))
    (prompt,) = question_prompts(tokenizer, [f"w50 {token} w51 {token}"])
    assert encode_prompt(tokenizer, prompt) == [50, *unknown, 51, *unknown]
    # a prompt as it is
    assert encode_prompt(tokenizer, f"w50 {token}")[1] == tokenizer.convert_tokens_to_ids(token) > 1
    assert RuleStates(tiny_model("llama"), tokenizer).tokens(f"{token} w51")[1] == [*unknown, 51]
    tokenizer.chat_template = f"{{{{ messages[0]['content'] }}}} {token}"
    *spelled, last = encode_prompt(tokenizer, [{"role": "user", "content": f"w50 {token}"}])
    assert spelled == [50, *unknown] and last > 1


def test_control_tokens_that_a_chat_spells_are_text(tiny_tokenizer):
    chat = tiny_tokenizer(search=True, chat=True)
    text = "{{ m['content'] }} {{ m['name'] }}"
    chat.chat_template = (
        f"{{% for m in messages %}}w2 {text} {{% endfor %}}<search> w3"  # the template's own is one
    )
    for spelled, ids in (("w50 <search> w51", [50, 1, 51]), ("w50 \ue0007\ue001", [50, 1]), ("w50", [50])):
        for content in (spelled, [{"type": "text", "text": spelled}], ({"type": "text", "text": spelled},)):
            message = {"role": "user", "content": content, "name": "<search>"}
            assert encode_prompt(chat, [message]) == [2, *ids, SEARCH, 3]
