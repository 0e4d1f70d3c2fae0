"""Local models: the shared prefix changes nothing, batches neither, and what does not fit is counted."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from ruleworld_data.prompts import Prompt, Template, answer_template, parse_template
from rwbench.backends import Decoding, cut, local, rows
from rwbench.backends.local import Local, load
from rwbench.backends.rows import NoRequest
from rwbench.models import base_folder
from tokenizers import Tokenizer


@pytest.fixture
def backend(model_folder):
    return Local.of(str(model_folder), batch_size=4)


@pytest.fixture(scope="session")
def prompts(workspace):
    rules = workspace.rules("mini")
    questions = [q.text for q in workspace.questions("multi_hop_2", "mini")[:5]]
    return [answer_template().render("answer", "nl", q, rules.texts(rules.ids[:20], "nl")) for q in questions]


def reference(folder, text, tokens):
    """Greedy decoding of one prompt, without cache, prefix or padding."""
    model, tokenizer = load(str(folder))
    ids = tokenizer(text)["input_ids"]
    start = len(ids)
    for _ in range(tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return tokenizer.decode(ids[start:], skip_special_tokens=True), len(ids) - start


def test_a_model_asks_for_rules_where_somebody_answers(workspace):
    """The bundled base was taught to; without rules it asks, or takes the step that comes to it second."""
    backend, questions = Local.of("tiny", batch_size=2), workspace.questions("multi_hop_2", "mini")[:2]
    asked = [backend.template.render("answer_without_rules", "nl", q.text) for q in questions]
    asking = [done.text for done in backend.generate(asked, Decoding(40, requests=True))]
    assert all(text.startswith(backend.template.request) for text in asking)
    for done in backend.generate(asked, Decoding(120)):
        assert done.text.startswith("[Step 1]") and backend.template.request not in done.text
        assert done.marked.startswith("<step>[Step 1]")


def test_with_rules_in_its_memory_a_model_that_would_ask_begins_a_step(model_folder):
    tokenizer = load(model_folder)[1]
    scores_BV = torch.zeros(2, len(tokenizer))
    processor = NoRequest("[Search] ", tokenizer, instead=tokenizer.convert_ids_to_tokens(5))
    scores_BV[:, processor.first], scores_BV[1, 7] = 1.0, 2.0
    opening_BV = processor(torch.empty(2, 0), scores_BV)
    assert opening_BV.argmax(-1).tolist() == [5, 7]


def test_answers_are_those_of_plain_greedy_decoding(backend, prompts, model_folder):
    wanted = [reference(model_folder, prompt.text, 10) for prompt in prompts]
    shared = list(backend.generate(prompts, Decoding(10)))
    assert [(done.text, done.completion_tokens) for done in shared] == wanted
    whole = list(backend.generate([Prompt(prompt.text) for prompt in prompts], Decoding(10)))
    assert [(done.text, done.completion_tokens) for done in whole] == wanted
    tokenizer = load(str(model_folder))[1]
    assert [done.prompt_tokens for done in shared] == [len(tokenizer(p.text)["input_ids"]) for p in prompts]
    assert {done.finish for done in shared} <= {"stop", "length"}


def test_an_answer_that_goes_on_is_the_one_that_was_not_interrupted(workspace):
    """Special tokens of the answer's format are gone from the text, but the model needs them to go on as it would."""
    backend, rules = Local.of("tiny"), workspace.rules("mini")
    prompts = [
        backend.template.render("answer", "nl", question.text, rules.texts(sorted(question.gold), "nl"))
        for question in workspace.questions("multi_hop_3", "mini")[:2]
    ]
    whole = [done.text for done in backend.generate(prompts, Decoding(200))]
    begun = list(backend.generate(prompts, Decoding(200, ("\n",))))
    assert all("<step>" in done.marked and "<step>" not in done.text for done in begun)
    parts = [replace(prompt, begun=done.marked) for prompt, done in zip(prompts, begun, strict=True)]
    rest = [done.text for done in backend.generate(parts, Decoding(200))]
    assert [done.text + more for done, more in zip(begun, rest, strict=True)] == whole


def test_whose_answer_has_ended_leaves_the_batch(workspace, monkeypatch, forwards):
    """The answers of a batch are those of each alone; what is computed has fewer rows on the way."""
    backend, rules, prompts = Local.of("tiny"), workspace.rules("mini"), []
    for subtask in ("single_rule", "multi_rule_3", "multi_hop_4"):  # one step, three and four
        question = workspace.questions(subtask, "mini")[0]
        texts = rules.texts(sorted(question.gold), "nl")
        prompts.append(backend.template.render("answer", "nl", question.text, texts))
    alone = [next(iter(backend.generate([prompt], Decoding(200)))) for prompt in prompts]
    monkeypatch.setattr(local, "PIECE", 5)
    shapes = forwards("tiny")
    together = list(backend.generate(prompts, Decoding(200)))
    rows = [count for count, _ in shapes]
    facts = [
        [(d.text, d.marked, d.finish, d.completion_tokens) for d in found] for found in (together, alone)
    ]
    assert facts[0] == facts[1]
    assert rows == sorted(rows, reverse=True) and rows[0] == 3 and rows[-1] < 3
    assert sum(rows) <= sum(done.completion_tokens + 5 for done in alone)


def test_of_a_checkpoint_s_own_settings_only_its_ends_count(model_folder, tmp_path, prompts):
    """Others a training may leave behind, and greedy answers would differ by them."""
    shutil.copytree(model_folder, tmp_path / "copy")
    path = tmp_path / "copy/base/generation_config.json"
    odd = {"use_cache": False, "num_beams": 3, "min_new_tokens": 40, "repetition_penalty": 2.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | odd | {"eos_token_id": [1, 5]}))
    config = local.load_fresh(tmp_path / "copy/base")[0].generation_config
    assert (config.eos_token_id, config.num_beams or 1, config.min_new_tokens) == ([1, 5], 1, None)
    assert config.repetition_penalty in (None, 1.0)


def test_long_prompts_go_in_parts(backend, prompts, monkeypatch, forget):
    wanted = [done.text for done in backend.generate(prompts, Decoding(6))]
    longest = max(len(backend._encode(prompt).ids) for prompt in prompts)
    monkeypatch.setattr(rows, "BATCH_TOKENS", 2 * longest)
    parts = [len(part) for part in rows.parts_of([backend._encode(prompt) for prompt in prompts])]
    assert max(parts) <= 2 and sum(parts) == 5
    forget()
    assert [done.text for done in backend.generate(prompts, Decoding(6))] == wanted
    monkeypatch.setattr(rows, "BATCH_TOKENS", 1)
    assert [len(part) for part in rows.parts_of([rows.Row([0] * 9, False)] * 3)] == [1, 1, 1]


def test_the_prefix_is_read_once(backend, prompts, model_folder, forwards):
    """Of every later batch only the questions go through the model."""
    list(backend.generate(prompts, Decoding(2)))
    read = forwards(str(model_folder))
    done = list(backend.generate(prompts[:3], Decoding(2)))
    assert max(length for _, length in read) < 0.3 * min(item.prompt_tokens for item in done)


def test_a_batch_is_answered_once(backend, prompts, monkeypatch):
    """The same prompts again: the same completions, seconds and all; anything else is asked."""
    first = list(backend.generate(prompts, Decoding(4)))
    asked = []
    answers = Local._answers
    monkeypatch.setattr(Local, "_answers", lambda *given: asked.append(given) or answers(*given))
    assert list(backend.generate(list(prompts), Decoding(4))) == first and not asked
    for others, decoding in ((prompts[:3], Decoding(4)), (prompts, Decoding(5))):
        list(backend.generate(others, decoding))
    assert len(asked) == 2
    monkeypatch.setattr(local, "MOST_ANSWERED", 2)
    list(backend.generate(prompts[:1], Decoding(4)))
    assert len(local._ANSWERED) == 2


def test_a_prompt_that_does_not_fit_is_not_asked(save_model, tmp_path, prompts):
    backend = Local.of(str(save_model(tmp_path / "short", positions=300)))
    long, short = backend.generate([prompts[0], Prompt("Hello")], Decoding(200))
    assert (long.finish, long.text, long.completion_tokens) == ("context", "", 0)
    assert long.prompt_tokens > 100
    assert short.finish in ("stop", "length")
    (edge,) = backend.generate([Prompt("Hello")], Decoding(300 - short.prompt_tokens))
    assert edge.finish != "context"
    (over,) = backend.generate([Prompt("Hello")], Decoding(301 - short.prompt_tokens))
    assert over.finish == "context"


def test_stop_strings_end_an_answer(backend, prompts, model_folder):
    whole, _ = reference(model_folder, prompts[0].text, 12)
    mark = whole[5:8]
    (done,) = backend.generate(prompts[:1], Decoding(12, (mark,)))
    assert done.text == whole[: whole.index(mark)]
    assert done.finish == "stop"
    assert cut("abc\nObservation 1: x", ["\nObservation"]) == "abc"
    assert cut("abc", ["\n"]) == "abc"


def test_other_weights_or_another_prompt_are_another_model(model_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy)
    made = Local.of(str(copy))
    assert made.weights == Local.of(str(model_folder)).weights
    made.prepare()
    (copy / "base" / "prompt.toml").write_text(
        'name = "own"\nversion = "3"\nchat = false\nremove = ["<step>"]\n'
        'answer = """{rules}\n\n{question}\n"""\n'
    )
    with pytest.raises(ValueError, match=r"made for prompt template answer-2@.*, now it is own-3@"):
        made.prepare()
    own = Local.of(str(copy))
    assert own.prompt == own.template.id and own.weights == made.weights
    assert own.template.render("answer", "fol", "Q?", ["r1", "r2"]) == Prompt("r1\nr2\n\nQ?\n")
    assert own.template.clean("a<step>\nb") == "a\nb"
    config = json.loads((copy / "base" / "config.json").read_text())
    (copy / "base" / "config.json").write_text(json.dumps(config | {"rope_theta": 20_000.0}))
    with pytest.raises(ValueError, match=r"with weights .* put the old files back, or start a new run"):
        own.prepare()


@pytest.mark.parametrize("chat", [False, True])
def test_control_tokens_that_rules_questions_and_answers_spell_are_text(model_folder, monkeypatch, chat):
    """Of a template, and those that the model wrote, they are themselves; what goes on reads them as they were."""
    backend, tokenizer = Local.of(str(model_folder)), local.load_tokenizer(base_folder(str(model_folder)))
    end, search = tokenizer.convert_tokens_to_ids(["<end>", "<search>"])
    sections = {"answer": "<search>{rules}\n{question}<end>"}
    template = Template("own", "1", "0" * 64, chat=chat, sections=sections)
    monkeypatch.setattr(Local, "template", template)
    if chat:
        monkeypatch.setattr(tokenizer, "chat_template", "{{ messages[0]['content'] }}<search>")
    rules, question = ["If a, <end> b.", "\ue000<pad>"], "What is <search>?\ue000"
    prompt = template.render("answer", "nl", question, rules)
    row = backend._encode(replace(prompt, begun="<search>" + backend.as_text("c <end>\n")))
    wanted = f"<search>{rules[0]}\n{rules[1]}\n{question}<end>{'<search>' * (1 + chat)}c <end>\n"
    control = [token for token in row.ids if token in tokenizer.all_special_ids]
    assert control == [search, end, search, *[search] * chat]
    assert tokenizer.decode(row.ids, clean_up_tokenization_spaces=False) == wanted
    plain = backend._encode(Prompt("a <end> <search>")).ids  # no template
    assert plain.count(end) == 0 and plain.count(search) == chat
    written = [*tokenizer("a <end> b", split_special_tokens=True)["input_ids"], search]
    done = backend._read(written, Decoding())
    assert (done.text, done.finish) == ("a <end> b", "length")
    assert backend.without_marks(done.marked) == "a <end> b<search>"
    assert rows.encoded(tokenizer, done.marked, False) == written


def test_a_tokenizer_is_the_one_that_was_saved(model_folder):
    """Of a folder whose configuration says qwen2, AutoTokenizer makes Qwen's, and nothing that was saved is read."""
    base = base_folder(str(model_folder))
    saved, text = Tokenizer.from_file(str(base / "tokenizer.json")), "Chases_the_tiny-bridge(A, 12)"
    assert local.load_tokenizer(base)(text)["input_ids"] == saved.encode(text).ids


def test_a_folder_without_a_model_is_a_clear_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model 'nowhere'.*--endpoint"):
        Local.of("nowhere")
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(ValueError, match="cannot load the model"):
        Local.of(str(tmp_path)).prepare()


def test_a_small_model_runs_in_float32_wherever_it_is(tmp_path, monkeypatch):
    """So its answers on an accelerator are those on a CPU; a large one keeps its own numbers there."""
    (tmp_path / "model.safetensors").write_bytes(bytes(9))
    for most, there in ((9, torch.float32), (8, "auto")):
        monkeypatch.setattr(local, "SMALL", most)
        assert [local.usual_dtype(tmp_path, gpu) for gpu in (False, True)] == [torch.float32, there]


def test_templates_fill_in_once_and_say_what_is_wrong(tmp_path):
    template = answer_template()
    prompt = template.render("answer", "nl", "How many {rules}?", ["{question}"])
    assert "Rules:\n{question}\n" in prompt.text and prompt.text.rstrip().endswith("How many {rules}?")
    assert "\\boxed{12, stony bridge}" in prompt.text
    head = 'name = "a"\nversion = "1"\n'
    for broken in (
        "x = ",
        f"{head}[answer]\nnl = 3",
        'answer = "no name"',
        f'{head}remove = "abc"',  # would take these letters out of every answer
        f'{head}remove = [""]',
        f'{head}chat = "false"',
        f"{head}separator = 1",
        f"{head}x = {'[' * 5_000}",
    ):
        with pytest.raises(ValueError, match=r"prompt\.toml"):
            parse_template(broken.encode(), "prompt.toml")
    with pytest.raises(ValueError, match="has no section 'act'"):
        template.render("act", "nl", "Q")
