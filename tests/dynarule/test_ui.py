"""A conversation with a rule book, written as it grows, and its page where gradio and a browser are at hand."""

import shutil
import subprocess
import sys

import pytest
import torch
from dynarule.cli.app import app
from dynarule.cli.chat import RuleChat, searches_of
from dynarule.memory import Retrieval
from typer.testing import CliRunner

from dynarule import RuleAdapter, RuleBank, dynarule_config, load_adapter

WIDTH = 20
RULES = [f"If A is w{i}, A will be w{i + 1}." for i in range(12)]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def embed(texts):
    return torch.stack(
        [torch.randn(WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts]
    )


embed.fingerprint = "fake@1"


@pytest.fixture
def chat(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    """A model that searches where it writes a token of its own, reads tokens and looks ahead."""
    monkeypatch.setattr("dynarule.bank.encoders.encoder_of", lambda *_: embed)
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
    chat = RuleChat(model, tokenizer, RuleBank.from_texts(RULES, None, embed, [str(i) for i in range(1, 13)]))
    chat.max_new_tokens = 24
    return chat


def test_a_streamed_answer_grows_to_the_whole_one(chat):
    whole = chat.reply("w11 w12")
    assert "  step 2: [" in whole and " -> [" in whole  # of several steps, with what they looked ahead to
    parts = list(chat.stream("w11 w12"))
    assert parts[-1] == whole and len(parts) > 2
    assert [len(part) for part in parts] == sorted(len(part) for part in parts)


def test_lines_change_the_book(chat):
    assert list(chat.stream("+ If A is green, A will be blue.")) == ["added [13], 13 rules"]
    assert chat.reply("rules GREEN") == "[13] If A is green, A will be blue."
    assert chat.reply("- 13") == "12 rules" and chat.reply("rules green") == ""
    with pytest.raises(ValueError, match=r"no rule after \+; type for example"):
        chat.reply("+")


def test_a_failure_while_it_writes_is_raised_and_ends_the_wait(chat, monkeypatch):
    monkeypatch.setattr(type(chat.model), "generate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(chat.stream("w1"))


@pytest.mark.parametrize(
    ("text", "found", "shown"),
    [
        ("<search>one<search> two", "012", "12"),  # the prompt's own is read by no step
        ("one<search>two", "01", "01"),
        ("one<search>tw", "0", ["0", None]),
        ("one", "", [None]),
    ],
)
def test_steps_are_told_apart_at_the_searches(text, found, shown):
    trace = [Retrieval(0, int(step), 2, [step], [step], [0.0]) for step in found]
    searches = searches_of(text, trace, "<search>")
    assert [search and search.ids[0] for search in searches] == list(shown)


def test_without_gradio_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gradio", None)
    options = ["--model", "m", "--adapter", str(tmp_path), "--rules", "r"]
    result = CliRunner().invoke(app, ["ui", *options])
    assert result.exit_code == 2 and 'pip install "dynarule[ui]"' in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_page_opens_in_a_browser(chat, tmp_path):
    pytest.importorskip("gradio")
    from dynarule.cli.ui import page

    blocks = page(chat.stream)
    _, url, _ = blocks.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    try:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
        flags += ["--disable-background-networking", "--virtual-time-budget=20000", "--dump-dom"]
        shown = subprocess.run(
            [CHROMIUM, *flags, url], capture_output=True, text=True, timeout=150, check=True
        ).stdout
    finally:
        blocks.close()
    assert "A rule book inside a language model" in shown and "lists the rules with these words" in shown
