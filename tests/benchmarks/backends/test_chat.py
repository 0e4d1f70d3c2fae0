"""Servers that break the protocol, stall, or echo the key: each question ends in a reply or in words."""

import json
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rwbench.backends import GoneError
from rwbench.backends.address import trust_endpoint
from rwbench.backends.chat import ChatClient

BODY = {"messages": [{"role": "user", "content": "q"}], "temperature": 0}
KEY = "sk-Zq7/w+9x=="


@pytest.fixture
def serve(serve, monkeypatch):
    """A function that starts a server which sends these bytes and stalls, whatever it is asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("RULEWORLD_API_KEY", "RULEWORLD_API_URL", "_RULEWORLD_API_NAMED"):
        monkeypatch.setenv(name, "")

    def start(sent, stall=0.0):
        return serve(lambda prompt, nth: lambda to: (to.write(sent), time.sleep(stall)))

    return start


def http(body, status="200 OK", headers=""):
    body = body.encode() if isinstance(body, str) else body
    length = f"Connection: close\r\nContent-Length: {len(body)}"  # else a second try may come to a closed connection
    return f"HTTP/1.1 {status}\r\n{length}\r\n{headers}\r\n".encode() + body


def chat(message='{"content": "x"}', finish='"stop"', usage="{}"):
    return f'{{"choices": [{{"message": {message}, "finish_reason": {finish}}}], "usage": {usage}}}'


def ask(url, replies=None, timeout=5.0, tries=1):
    with TemporaryDirectory() as kept:
        return ChatClient(url, "m", replies or Path(kept), timeout, tries).complete(BODY)


def failure(url, **options):
    """What a question ends with that gets no answer, and whether the next one will fare no better."""
    try:
        done = ask(url, **options)
        assert done.finish == "error" and not done.text
        return done.error, False
    except GoneError as error:
        return str(error), True


ANSWERED = {
    "a lone surrogate": (chat(r'{"content": "a\ud800b"}'), ("a?b", "stop", 0, 0)),
    "no content": (chat('{"content": null}'), ("", "stop", 0, 0)),
    "counts that cannot be": (
        chat(finish='{"why": []}', usage=f'{{"prompt_tokens": {"9" * 4000}, "completion_tokens": true}}'),
        ("x", "stop", 0, 0),
    ),
    "good counts": (chat(usage='{"prompt_tokens": 7, "completion_tokens": 3}'), ("x", "stop", 7, 3)),
    "cut off": (chat(finish='"length"'), ("x", "length", 0, 0)),
    "filtered": (chat(finish='"content_filter"'), ("x", "filter", 0, 0)),
}


@pytest.mark.parametrize(("body", "reply"), ANSWERED.values(), ids=ANSWERED)
def test_what_holds_a_text_is_a_reply_and_is_kept(serve, tmp_path, body, reply):
    server = serve(http(body))
    for cached in (False, True):
        done = ask(server.url, tmp_path)
        assert (done.text, done.finish, done.prompt_tokens, done.completion_tokens) == reply
        assert done.cached == cached == (done.seconds == 0)
    assert len(server.bodies) == 1


FAILED = {
    "null choices": http('{"choices": null}'),
    "a number for content": http(chat('{"content": 5}')),
    "deep": http("[" * 100_000),
    "not UTF-8": http(b'{"choices": "\xff'),
    "a strange reason phrase": http("no", "400 \x1b[31mRed\x07"),
    "a surrogate as error": http(r'{"error": "\ud800 \u001b[31m"}', "400 Bad Request"),
    "no HTTP": b"hello\r\n\r\n",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-",
    "a redirect": http("", "302 Found", "Location: http://127.0.0.1:1/\r\n"),
    "closed": b"",
}


@pytest.mark.parametrize("sent", FAILED.values(), ids=FAILED)
def test_everything_else_is_an_error_that_can_be_shown_and_is_not_kept(serve, tmp_path, sent):
    text, gone = failure(serve(sent).url, replies=tmp_path)
    assert gone == ("HTTP 302" in text)
    assert text.isprintable() and len(text.encode()) < 400
    assert not list(tmp_path.iterdir())


def test_a_server_that_says_nothing_is_cut_off(serve):
    stalling = serve(b"HTTP/1.1 200 OK\r\n", stall=30)
    assert failure(stalling.url, timeout=0.2) == ("no answer within 0.2 s", False)


ECHOES = {
    "an answer": http(chat(json.dumps({"content": f"You said Bearer {KEY}."}))),
    "an error": http(json.dumps({"error": "x" * 195 + KEY}), "401 Unauthorized"),
    "an error in HTML": http(f"<p>{KEY}</p>", "403 Forbidden"),
    "no completion": http(f"{KEY} is your key"),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_key_that_a_server_echoes_is_neither_shown_nor_kept(serve, tmp_path, monkeypatch, echo):
    monkeypatch.setenv("RULEWORLD_API_KEY", KEY)
    server = serve(echo)
    trust_endpoint(server.url)
    try:
        done = ask(server.url, tmp_path)
        said = f"{done.text} {done.error}"
    except GoneError as error:
        said = str(error)
    assert server.keys[0] == f"Bearer {KEY}"
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY[:8] not in said and KEY[:8].encode() not in kept


def test_a_key_goes_only_to_the_server_it_was_given_for(serve, monkeypatch):
    monkeypatch.setenv("RULEWORLD_API_KEY", KEY)
    servers = serve(http(chat())), serve(http("", "401 Unauthorized"))
    typed, other = (server.url for server in servers)
    trust_endpoint(typed)  # as a command does with its --endpoint
    ask(typed)
    text, gone = failure(other)
    assert gone and re.search(rf"no key was sent.*set RULEWORLD_API_URL={other}\)", text)
    assert [server.keys for server in servers] == [[f"Bearer {KEY}"], [None]]
    # What the environment says wins over what was typed; scheme and port count, the path does not.
    for bound, sent in ((other, False), (typed.removesuffix("/v1"), True), (f"{other} {typed}", True)):
        monkeypatch.setenv("RULEWORLD_API_URL", bound)
        ask(typed)
        assert servers[0].keys[-1] == (f"Bearer {KEY}" if sent else None)
    monkeypatch.setenv("RULEWORLD_API_URL", typed.replace("http:", "https:"))
    ask(typed)
    assert servers[0].keys[-1] is None


def test_what_may_pass_is_tried_again_and_what_does_not_is_not(serve):
    for status, requests in (("429 Too Many Requests", 3), ("503 Busy", 3), ("400 Bad Request", 1)):
        server = serve(http("no", status))
        assert f"HTTP {status[:3]}" in failure(server.url, tries=3)[0]
        assert len(server.bodies) == requests


def test_what_is_no_reply_is_not_taken_for_one(serve, tmp_path):
    url = serve(http(chat())).url
    ask(url, tmp_path)
    (kept,) = tmp_path.iterdir()
    for text in ("", "[]", '{"text": "x"}'):
        kept.write_text(text)
        with pytest.raises(ValueError, match="holds what is no reply; delete it"):
            ask(url, tmp_path)
