"""The page of a rule book: what it asks for, what it shows, and that it opens in a browser where one is at hand."""

import shutil
import subprocess
import sys

import pytest
import torch
from dynarule.cli import desk as desk_module
from dynarule.cli.app import app
from dynarule.cli.desk import Desk, ShownStep, steps_of
from dynarule.memory import Retrieval
from typer.testing import CliRunner

from dynarule import RuleAdapter, RuleBank, dynarule_config, generate, load_adapter, question_prompts

WIDTH = 20
RULES = [f"If A is w{i}, A will be w{i + 1}." for i in range(12)]
EVIL = "</div><script>alert(1)</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def embed(texts):
    return torch.stack(
        [torch.randn(WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts]
    )


embed.fingerprint = "fake@1"


@pytest.fixture
def desk(tiny_model, tiny_tokenizer, tmp_path):
    """A model that searches where it writes a token of its own, reads tokens and looks ahead."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer(search=True)
    search = tokenizer.convert_tokens_to_ids("<search>")
    torch.manual_seed(3)
    settings = {"first_layer": 2, "top_k": 2, "reading": "tokens", "search_heads": 2, "lookahead": 3}
    adapter = RuleAdapter(model, dynarule_config(WIDTH, 2, **settings))
    adapter[2].lookahead.link.bias.data[-1] = 20.0  # every rule may follow every other
    adapter[2].lookahead.goal.out.weight.data.normal_()
    adapter.config.search_token = "<search>"
    adapter.save(tmp_path / "adapter")
    model = tiny_model("llama")
    head, word = model.get_output_embeddings().weight.data, tokenizer.convert_tokens_to_ids("w39")
    head[search] = 1.1 * head[word]  # so that some of what is written is a search
    model = load_adapter(model, tmp_path / "adapter").eval()
    bank = RuleBank.from_texts(RULES, None, embed, [str(i) for i in range(1, 13)])
    return Desk(model, tokenizer, bank, lambda: embed, max_new_tokens=24)


def test_an_answer_grows_to_what_the_library_writes(desk):
    (expected,) = generate(
        desk.model,
        desk.tokenizer,
        desk.bank,
        question_prompts(desk.tokenizer, ["w11 w12"], "tokens"),
        max_new_tokens=24,
        keep_search=True,
    )
    assert "<search>" in expected.text.strip()[8:]  # an answer of several steps
    shown = list(desk.answer("w11 w12"))
    assert shown[-1] == steps_of(expected.text, expected.trace, "<search>", desk.top)
    assert any(step.ahead for step in shown[-1])
    written = ["".join(step.text for step in steps) for steps in shown]
    assert len(shown) > 2 and sorted(written, key=len) == written


def test_a_failure_while_it_writes_is_raised_and_ends_the_page_s_wait(desk, monkeypatch):
    with pytest.raises(ValueError, match="question 0 is empty"):
        list(desk.answer(" "))
    monkeypatch.setattr(type(desk.model), "generate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(desk.answer("w1"))


def test_steps_are_told_apart_at_the_searches():
    def found(step, *ids, way=()):
        return Retrieval(0, step, 2, list(ids), list(ids), [0.0] * len(ids), way=list(way))

    opened = steps_of(
        "<search>one<search> two", [found(0, "9"), found(1, "1", "2"), found(2, "3")], "<search>", 1
    )
    assert opened == [ShownStep(["1"], [], "one"), ShownStep(["3"], [], "two")]
    prompted = steps_of("one<search>two", [found(0, "9", "8", way=["8", "7"]), found(1, "1")], "<search>", 2)
    assert prompted == [ShownStep(["9", "8"], ["7"], "one"), ShownStep(["1"], [], "two")]
    assert steps_of("one", [], "<search>", 2) == [ShownStep([], [], "one")]


def test_the_model_beside_it_is_the_base_without_rules(desk, tiny_model):
    base = tiny_model("llama")
    head = base.get_output_embeddings().weight.data
    head[desk.tokenizer.convert_tokens_to_ids("<search>")] = (
        1.1 * head[desk.tokenizer.convert_tokens_to_ids("w39")]
    )
    ids = desk.tokenizer(f"{RULES[0]}\n{RULES[1]}\n\nw3\n", return_tensors="pt")["input_ids"]
    out = base.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    assert desk.beside("w3", RULES[:2]) == desk.tokenizer.decode(out, skip_special_tokens=True).strip()
    assert desk.beside("w3") != desk.beside("w3", RULES[:2])


def test_bm25_finds_the_words_of_the_question_in_the_book_as_it_is_now(desk):
    assert set(desk.bm25("who is w4?")[:2]) == {RULES[3], RULES[4]}
    desk.add("If A is w4, A will be w9.")
    desk.remove("5")
    assert desk.bm25("w4 w9")[0] == "If A is w4, A will be w9." and RULES[4] not in desk.bm25("w4 w9")
    with pytest.raises(ValueError, match="no rule to add; type for example"):
        desk.add("")


def test_the_book_marks_what_was_read_with_its_steps_and_shows_text_as_text(desk, monkeypatch):
    desk.add(EVIL)
    steps = [ShownStep(["1"], ["2", "3"], EVIL), ShownStep(["2", "1"], ["1"], "b")]
    book = desk.book(steps)
    assert "script>" not in book.replace("&lt;/script&gt;", "").replace("&lt;script&gt;", "")
    assert '<div class="read"><b title="read at step 1, 2">1, 2</b> [1] If A is w0' in book
    assert '<div class="read"><b title="read at step 2">2</b> [2] ' in book
    assert '<div class="ahead"><b title="looked ahead to at step 1">→1</b> [3] ' in book
    assert book.count("<div") == 1 + 13
    assert "<script>" not in desk.written(steps) and "&lt;script&gt;" in desk.written(steps)
    monkeypatch.setattr(desk_module, "SHOWN", 4)
    book = desk.book([ShownStep(["12"], [], "")])
    assert book.index("[12]") < book.index("[1]") and "[4]" not in book and "and 9 more" in book


def test_without_gradio_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gradio", None)
    options = ["--model", "m", "--adapter", str(tmp_path), "--rules", "r"]
    result = CliRunner().invoke(app, ["ui", *options])
    assert result.exit_code == 2 and 'pip install "dynarule[ui]"' in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_opens_in_a_browser(desk, tmp_path, width):
    pytest.importorskip("gradio")
    from dynarule.cli.ui import page

    desk.add(EVIL)
    blocks = page(desk)
    _, url, _ = blocks.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    try:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-background-networking",
        ]
        size = [f"--window-size={width},1000", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]
        shown = subprocess.run(
            [CHROMIUM, *flags, *size, "--dump-dom", url],
            capture_output=True,
            text=True,
            timeout=150,
            check=True,
        ).stdout
    finally:
        blocks.close()
    assert "[12] If A is w11, A will be w12." in shown and "&lt;script&gt;alert(1)" in shown
    assert all(label in shown for label in ("Add a rule", "Remove a rule", "Question", "Ask"))
