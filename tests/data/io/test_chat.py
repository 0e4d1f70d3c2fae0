"""Servers that break the protocol, drip, or echo the key: each question ends in a reply or in words."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from ruleworld_data.io import ChatClient, NoAnswerError, Reply, trust_endpoint

BODY = {"messages": [{"role": "user", "content": "q"}], "temperature": 0}
KEY = "sk-Zq7/w+9x=="


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Start a server that sends the pieces, with a pause between them, whatever it is asked; give its URL."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("RULEWORLD_API_KEY", "RULEWORLD_API_URL", "_RULEWORLD_API_NAMED"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    open_sockets: list[socket.socket] = []

    def start(*pieces: bytes, pause: float = 0.0, asked: list[bytes] | None = None) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        open_sockets.append(server)

        def run() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                    with connection:
                        request = connection.recv(1 << 16)
                        if asked is not None:
                            asked.append(request)
                        for piece in pieces:
                            connection.sendall(piece)
                            time.sleep(pause)
                except OSError:
                    if server.fileno() < 0:
                        return

        Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"

    yield start
    for server in open_sockets:
        server.close()


def http(body: bytes | str, status: str = "200 OK", headers: str = "") -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def chat(message: str = '{"content": "x"}', finish: str = '"stop"', usage: str = "{}") -> str:
    return f'{{"choices": [{{"message": {message}, "finish_reason": {finish}}}], "usage": {usage}}}'


def ask(url: str, replies: Path | None = None, timeout: float = 5.0, tries: int = 1) -> Reply:
    with ChatClient(url, "m", replies, timeout, tries) as client:
        return client.complete(BODY)


HUGE = "9" * 4000
ANSWERED = {
    "a lone surrogate": (chat(r'{"content": "a\ud800b"}'), Reply("a?b", "stop", 0, 0)),
    "no content": (chat('{"content": null}'), Reply("", "stop", 0, 0)),
    "counts of 4,000 digits": (
        chat(usage=f'{{"prompt_tokens": {HUGE}, "completion_tokens": -{HUGE}}}'),
        None,
    ),
    "counts of 5,000 digits": (chat(usage=f'{{"prompt_tokens": {"9" * 5000}}}'), None),
    "counts of other types": (chat(usage='{"prompt_tokens": "7", "completion_tokens": [true]}'), None),
    "counts that are no numbers": (chat(usage='{"prompt_tokens": NaN, "completion_tokens": 1e999}'), None),
    "true counts": (chat(usage='{"prompt_tokens": true, "completion_tokens": 1.5}'), None),
    "no usage": (chat(usage="null"), None),
    "a list for usage": (chat(usage="[1]"), None),
    "a dict for the reason": (chat(finish='{"why": []}'), None),
    "no reason": (chat(finish="null"), None),
    "good counts": (chat(usage='{"prompt_tokens": 7, "completion_tokens": 3}'), Reply("x", "stop", 7, 3)),
    "cut off": (chat(finish='"length"'), Reply("x", "length", 0, 0)),
    "filtered": (chat(finish='"content_filter"'), Reply("x", "filter", 0, 0)),
}


@pytest.mark.parametrize(("body", "reply"), ANSWERED.values(), ids=ANSWERED)
def test_what_holds_a_text_is_a_reply_and_is_kept(serve, tmp_path, body, reply):
    url, reply = serve(http(body)), reply or Reply("x", "stop", 0, 0)
    assert ask(url, tmp_path) == reply
    assert len(json.dumps(vars(reply)).encode()) < 200
    with ChatClient(url, "m", tmp_path) as client:
        assert client.stored(BODY) == Reply(**vars(reply) | {"cached": True})


FAILED = {
    "null choices": http('{"choices": null}'),
    "no choices": http('{"choices": []}'),
    "a null choice": http('{"choices": [null]}'),
    "a number for content": http(chat('{"content": 5}')),
    "a list for content": http(chat('{"content": [{"type": "text", "text": "x"}]}')),
    "a list for the message": http(chat("[1]")),
    "deep": http("[" * 100_000),
    "not UTF-8": http(b'{"choices": "\xff'),
    "NaN": http("NaN"),
    "nothing": http(""),
    "compressed": http(b"\x1f\x8b\x08\x00", headers="Content-Encoding: gzip\r\n"),
    "an unknown charset": http("no", "400 Bad Request", "Content-Type: text/plain; charset=none\r\n"),
    "a reason phrase of other bytes": http("no", "400 OK").replace(b"OK", b"\xff\xfe"),
    "headers of other bytes": http("no", headers="Set-Cookie: b\r\n").replace(b": b", b": a=\xff\xfe"),
    "a strange reason phrase": http("no", "400 \x1b[31mRed\x07"),
    "deep error": http("[" * 100_000, "400 Bad Request"),
    "a huge number as error": http('{"error": ' + "9" * 5000 + "}", "400 Bad Request"),
    "a surrogate as error": http(r'{"error": "\ud800 \u001b[31m"}', "400 Bad Request"),
    "a retry at no time": http("no", "429 Slow", "Retry-After: Fri, 99 Zzz 99999999 99:99:99 GMT\r\n"),
    "no HTTP": b"hello\r\n\r\n",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-",
    "a redirect": http("", "302 Found", "Location: http://127.0.0.1:1/\r\n"),
    "a bad redirect": http("", "302 Found", "Location: http://[\r\n"),
    "closed": b"",
}


@pytest.mark.parametrize("sent", FAILED.values(), ids=FAILED)
def test_everything_else_is_an_error_that_can_be_shown_and_written(serve, tmp_path, sent):
    with pytest.raises(NoAnswerError) as error:
        ask(serve(sent), tmp_path)
    text = str(error.value)
    assert error.value.hopeless == text.startswith("HTTP 302")
    assert text and not text.endswith(": ") and text.isprintable() and len(text.encode()) < 400
    assert not list(tmp_path.glob("*/*"))


def test_kept_replies_of_any_kind_are_read_or_asked_again(serve, tmp_path):
    url = serve(http(chat()))
    ask(url, tmp_path)
    (path,) = tmp_path.glob("*/*.json")
    good = json.loads(path.read_text())
    for damaged in ("", "null", "[]", '{"text": 5}', "[" * 100_000, '{"text": "x"', "\x00"):
        path.write_text(damaged)
        assert ask(url, tmp_path) == Reply("x", "stop", 0, 0)
    for kept in (
        good | {"prompt_tokens": int(HUGE)},
        good | {"finish": ["length"]},
        good | {"text": "a\ud800"},
    ):
        path.write_text(json.dumps(kept))
        reply = ask(url, tmp_path)
        assert reply.cached and json.dumps(vars(reply), ensure_ascii=False).encode()


def test_no_reply_breaks_the_next_request(serve):
    """A cookie that no header can carry is not sent back; nor is any other."""
    asked: list[bytes] = []
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=\xff\r\nSet-Cookie: b=c\r\nConnection: close\r\n"
    body = chat().encode()
    url = serve(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body, asked=asked)
    with ChatClient(url, "m", None, 5.0, 1) as client:
        assert client.complete(BODY) == client.complete(BODY) == Reply("x", "stop", 0, 0)
    assert len(asked) == 2 and not any(b"cookie" in request.lower() for request in asked)


DRIPS = {
    "a status line": [b"HTTP/1.1 2"] + [b"0"] * 100,
    "headers": [b"HTTP/1.1 200 OK\r\n"] + [b"X-A: b\r\n"] * 100,
    "early hints": [b"HTTP/1.1 103 Early Hints\r\n\r\n"] * 100,
    "a body": [b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"] + [b" "] * 100,
    "an error's body": [b"HTTP/1.1 500 Oops\r\nContent-Length: 999\r\n\r\n"] + [b" "] * 100,
    "chunks": [b"HTTP/1.1 400 Oops\r\nTransfer-Encoding: chunked\r\n\r\n"] + [b"1\r\n \r\n"] * 100,
}


@pytest.mark.parametrize("pieces", DRIPS.values(), ids=DRIPS)
def test_a_server_that_drips_is_cut_off_at_the_deadline(serve, pieces):
    start = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.4 s"):
        ask(serve(*pieces, pause=0.1), timeout=0.4)
    assert time.monotonic() - start < 3  # all of it would take ten seconds


ECHOES = {
    "an answer": lambda key: http(chat(json.dumps({"content": f"You said Bearer {key}."}))),
    "an answer in capitals": lambda key: http(chat(json.dumps({"content": key.upper()}))),
    "a wrapped answer": lambda key: http(chat(json.dumps({"content": f"{key[:5]}\n  {key[5:]}"}))),
    "an escaped answer": lambda key: http(
        chat('{"content": "' + "".join(f"\\u{ord(s):04x}" for s in key) + '"}')
    ),
    "an error": lambda key: http(json.dumps({"error": f"bad key {key}"}), "401 Unauthorized"),
    "an error at the cut": lambda key: http(json.dumps({"error": "x" * 195 + key}), "401 Unauthorized"),
    "an escaped error": lambda key: http('{"error": "' + key.replace("/", r"\/") + '"}', "400 No"),
    "an error in HTML": lambda key: http(f"<p>{key}</p>", "403 Forbidden"),
    "a reason": lambda key: http("", f"401 {key}"),
    "no completion": lambda key: http(f"{key} is your key"),
    "no completion at the cut": lambda key: http("x" * 75 + key),
    "a redirect": lambda key: http("", "302 Found", f"Location: https://{key}/\r\n"),
    "no HTTP": lambda key: f"{key}\r\n\r\n".encode(),
    "a bad header": lambda key: f"HTTP/1.1 200 OK\r\n{key}\r\n\r\n".encode(),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_key_that_a_server_echoes_goes_nowhere(serve, tmp_path, monkeypatch, capfd, echo):
    monkeypatch.setenv("RULEWORLD_API_KEY", KEY)
    asked: list[bytes] = []
    url = serve(echo(KEY), asked=asked)
    trust_endpoint(url, "m")
    try:
        said = ask(url, tmp_path).text
    except NoAnswerError as error:
        said = str(error)
    assert f"Bearer {KEY}".encode() in asked[0]
    captured = capfd.readouterr()
    kept = "".join(path.read_text() for path in tmp_path.glob("*/*"))
    for text in (said, kept, captured.out, captured.err):
        shown = "".join(text.split()).lower().replace("\\", "")
        assert not any(KEY[start : start + 5].lower() in shown for start in range(len(KEY) - 4))


def test_a_key_goes_only_to_the_server_it_was_given_for(serve, monkeypatch):
    monkeypatch.setenv("RULEWORLD_API_KEY", KEY)
    asked: list[bytes] = []
    typed = serve(http(chat()), asked=asked)
    other = serve(http("", "401 Unauthorized"), asked=asked)
    trust_endpoint(typed, "m")  # as a command does with its --endpoint
    ask(typed)
    with pytest.raises(NoAnswerError, match=rf"no key was sent.*set RULEWORLD_API_URL={other}$"):
        ask(other)
    assert [b"authorization: bearer" in request.lower() for request in asked] == [True, False]
    # What the environment says wins over what was typed; scheme and port count, the path does not.
    for bound, sent in ((other, False), (typed.removesuffix("/v1"), True), (f"{other} {typed}", True)):
        monkeypatch.setenv("RULEWORLD_API_URL", bound)
        ask(typed)
        assert (b"authorization: bearer" in asked[-1].lower()) == sent
    monkeypatch.setenv("RULEWORLD_API_URL", typed.replace("http:", "https:"))
    ask(typed)
    assert b"authorization" not in asked[-1].lower()
