"""The server: OpenAI's client against it, answers equal to `generate`, rules that change, requests that are refused."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import openai
import pytest
import uvicorn
from dynarule.bank.storage import changed_bank
from dynarule.serve import Answer, Book, Engine, EngineClosed, Request, make_app
from starlette.testclient import TestClient

from dynarule import RuleAdapter, RuleBank, dynarule_config, generate, question_prompts

from .conftest import WIDTH, FakeEncoder

HANGS = 600
"""Seconds after which something will never come; how busy the machine is decides nothing."""
QUESTIONS = ["w11 w12 w13", "w20", "w31 w32 w33 w34 w35 w36"]


@pytest.fixture
def served(tiny_model, tiny_tokenizer, bank, tmp_path):
    """An engine of a bank on disk and one in memory, and what it answers with."""
    model, tokenizer = tiny_model("qwen2", tie_word_embeddings=False), tiny_tokenizer(search=True)
    model.get_output_embeddings().weight[[0, 96]] = 0
    adapted = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5)).model
    bank.save(tmp_path / "bank")
    other = RuleBank(bank.keys_MP + 1, bank.values_MP, bank.ids, bank.texts)
    books = [
        Book("bank", RuleBank.load(tmp_path / "bank"), tmp_path / "bank", FakeEncoder),
        Book("other", other),
    ]
    engine = Engine(adapted, tokenizer, books, most_tokens=12)
    yield engine, adapted, tokenizer, bank
    engine.close()


@pytest.fixture
def client(served):
    """OpenAI's client, whose requests go to the app in this process."""
    with TestClient(make_app(served[0], "secret")) as http:
        yield openai.OpenAI(
            base_url="http://testserver/v1", api_key="secret", http_client=http, max_retries=0
        )


@contextmanager
def held_up(engine):
    """Let an engine answer nothing inside the block."""
    begun, held = threading.Event(), threading.Event()
    threading.Thread(target=lambda: engine.run(lambda: (begun.set(), held.wait())), daemon=True).start()
    assert begun.wait(HANGS)
    yield
    held.set()


def wait_for(condition):
    until = time.monotonic() + HANGS
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def asked(question):
    return [{"role": "user", "content": question}]


def expected(served, question, tokens=8):
    _, model, tokenizer, bank = served
    return generate(model, tokenizer, bank, question_prompts(tokenizer, [question]), max_new_tokens=tokens)[0]


def test_an_answer_is_that_of_generate_with_the_rules_of_each_step(served, client):
    harmless = {"store": True, "logprobs": False, "extra_body": {"repetition_penalty": 1.0, "top_k": -1}}
    question = asked(QUESTIONS[0])
    answer = client.chat.completions.create(model="bank", messages=question, max_tokens=8, **harmless)
    own = expected(served, QUESTIONS[0])
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == (own.text, "length")
    first = next(search for search in own.trace if search.layer == 2)
    assert [rule["id"] for rule in choice.rules[0]["rules"]] == first.ids
    assert answer.usage.completion_tokens == 8 and answer.usage.prompt_tokens == 3
    assert [model.id for model in client.models.list()] == ["bank", "other"]
    assert client.models.retrieve("other").id == "other"


def test_pages_of_other_origins_may_ask_with_a_key_alone(served):
    origin = {"origin": "http://app.example", "access-control-request-method": "POST"}
    origin["access-control-request-headers"] = "authorization, content-type"
    with TestClient(make_app(served[0], "secret")) as http:
        asked_first = http.options("/v1/models", headers=origin)
        allowed = asked_first.headers["access-control-allow-headers"]
        assert asked_first.status_code == 200 and "authorization" in allowed
        for key, status in (("secret", 200), ("wrong", 401)):
            answer = http.get("/v1/models", headers={"authorization": f"Bearer {key}"} | origin)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "*")
    with TestClient(make_app(served[0]), base_url="http://localhost") as http:
        assert http.options("/v1/chat/completions", headers=origin).status_code == 403


def test_a_stream_is_the_answer_in_pieces(served, client):
    whole = expected(served, QUESTIONS[0]).text
    ask = {"model": "bank", "messages": asked(QUESTIONS[0]), "max_tokens": 8, "stream": True}
    chunks = list(client.chat.completions.create(**ask, stream_options={"include_usage": True}))
    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(pieces) == whole and len([piece for piece in pieces if piece]) > 2
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-2].choices[0].finish_reason == "length" and chunks[-2].choices[0].rules
    stop = whole.split()[3]
    cut = client.chat.completions.create(**ask, stop=[stop])
    text = "".join(choice.delta.content or "" for chunk in cut for choice in chunk.choices)
    assert text == whole[: whole.index(stop)]


def test_a_stream_says_that_no_rule_applies_as_the_answer_does(served, client):
    engine, model, *_ = served
    model.peft_config["default"].min_support = engine._memories["bank"].config.min_support = 1.0
    chat = partial(client.chat.completions.create, model="bank", messages=asked(QUESTIONS[0]), max_tokens=8)
    own = expected(served, QUESTIONS[0])
    assert own.refused and chat().choices[0].message.content == own.text
    pieces = [chunk.choices[0].delta.content or "" for chunk in chat(stream=True)]
    assert "".join(pieces) == own.text


def test_questions_of_one_request_and_of_many_users_keep_their_answers(served, client):
    answer = client.completions.create(model="bank", prompt=QUESTIONS, max_tokens=8)
    assert [choice.text for choice in answer.choices] == [expected(served, q).text for q in QUESTIONS]
    texts = {}

    def ask(number):
        question = QUESTIONS[number % 3]
        chat = client.chat.completions.create(
            model="bank", messages=asked(question), max_tokens=5 + number % 3
        )
        texts[number] = chat.choices[0].message.content

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, text in texts.items():
        assert text == expected(served, QUESTIONS[number % 3], 5 + number % 3).text


def test_samples_differ_and_a_seed_repeats_them(client):
    ask = {"model": "bank", "messages": asked(QUESTIONS[0]), "temperature": 2.0, "n": 3, "max_tokens": 12}
    one, two = (
        [choice.message.content for choice in client.chat.completions.create(seed=5, **ask).choices]
        for _ in range(2)
    )
    alone = client.chat.completions.create(seed=5, **ask | {"n": 1}).choices[0].message.content
    assert one == two and len(set(one)) == 3 and one[0] == alone


def test_rules_change_while_it_serves_and_are_on_disk_when_acknowledged(served, client):
    engine, *_ = served
    http = client._client
    key = {"Authorization": "Bearer secret"}
    new = [{"id": "a/b.md:3\nx", "text": "If A is w3, A will be w4."}]
    assert http.post("/v1/books/bank/rules", json=new, headers=key).json() == {"rules": 31}
    new[0] |= {"text": "If A is w3, A will be w5.", "premise": "w3 is said", "conclusion": "w5"}
    assert http.put("/v1/books/bank/rules", json=new, headers=key).status_code == 200
    assert http.delete("/v1/books/bank/rules/r4", headers=key).json() == {"rules": 30}
    for held in (engine.books["bank"].bank, RuleBank.load(engine.books["bank"].folder)):
        assert "r4" not in held.ids and held.texts[held.row(new[0]["id"])] == new[0]["text"]
    found = http.get("/v1/books/bank/rules", params={"contains": "w5"}, headers=key).json()
    assert found == {"object": "list", "total": 1, "data": new}
    lost = http.post("/v1/books/other/rules", json=new, headers=key)
    cleared = [{"id": new[0]["id"], "text": new[0]["text"]}]
    assert http.put("/v1/books/bank/rules", json=cleared, headers=key).status_code == 200
    assert RuleBank.load(engine.books["bank"].folder).parts == {}
    for wrong in ({"then": "x"}, {"premise": " "}, {"id": "x" * 1001}, {"id": ".."}):
        assert http.put("/v1/books/bank/rules", json=[new[0] | wrong], headers=key).status_code == 400
    assert lost.status_code == 400 and "a change would be lost" in lost.json()["error"]["message"]
    assert http.delete("/v1/books/bank/rules/r4", headers=key).status_code == 404
    assert http.post("/v1/books/bank/rules", json=[], headers=key).status_code == 400
    assert http.delete(f"/v1/books/bank/rules/{quote(new[0]['id'])}", headers=key).json() == {"rules": 29}
    with changed_bank(engine.books["bank"].folder) as held:
        held.remove(["r5"])
    for other in (
        http.delete("/v1/books/bank/rules/r5", headers=key),
        http.post("/v1/books/bank/rules", json=new, headers=key),
    ):
        assert other.status_code == 400 and "changed by another process" in other.json()["error"]["message"]


def cases(name):
    lines = Path(__file__).with_name(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


REFUSED = [
    {"ask": {"messages": asked("w1 " * 256)}, "message": "the model reads 256 at most"},
    {"ask": {"messages": asked("w" * (1 << 20))}, "status": 413, "message": "1,048,576 bytes"},
    *cases("refused"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["message"])
def test_what_cannot_be_answered_is_an_error_of_openais_shape(client, case):
    with pytest.raises(openai.APIStatusError) as error:
        client.chat.completions.create(**{"model": "bank", "messages": asked("w1")} | case["ask"])
    assert error.value.status_code == case.get("status", 400) and case["message"] in error.value.message
    assert error.value.body["type"] == "invalid_request_error"


@pytest.mark.parametrize(("body", "param", "message"), cases("bodies"))
def test_a_field_that_is_wrong_is_named_as_the_client_calls_it(served, body, param, message):
    with TestClient(make_app(served[0]), base_url="http://localhost") as http:
        answer = http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert [http.head(path).status_code for path in ("/health", "/v1/models", "/")] == [200] * 3
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param) and re.search(message, error["message"])


@pytest.mark.parametrize("failure", [TypeError("odd"), KeyError("odd"), OSError("odd")])
def test_an_error_of_ours_is_one_of_the_server(served, monkeypatch, failure):
    monkeypatch.setattr("dynarule.serve.respond.unfamiliar", Mock(side_effect=failure))
    with TestClient(make_app(served[0], "secret")) as http:
        key = {"Authorization": "Bearer secret", "origin": "http://app.example"}
        answer = http.post("/v1/completions", json={"model": "bank", "prompt": "w1"}, headers=key)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (500, "server_error") and "odd" in error["message"]
    assert answer.headers["access-control-allow-origin"] == "*"


def test_a_stream_ends_with_an_error_of_its_own_kind(served, client, monkeypatch):
    """A prompt that is too long is refused before a stream begins, so it ends nobody else's batch."""
    chat = partial(client.chat.completions.create, model="bank", messages=asked("w1"), stream=True)
    with pytest.raises(openai.BadRequestError, match="the model reads 256 at most"):
        list(chat(messages=asked("w1 " * 300)))
    for failure in (ValueError("bad"), KeyError("gone"), OSError("disk")):  # its request was right
        monkeypatch.setattr("dynarule.serve.engine.generate", Mock(side_effect=failure))
        with pytest.raises(openai.APIError, match=str(failure)) as error:
            list(chat())
        assert error.value.body["type"] == "server_error"
    monkeypatch.setattr("dynarule.serve.engine.MOST_WAITING", 0)
    with pytest.raises(openai.RateLimitError, match="try again later") as error:
        list(chat())
    assert (error.value.type, error.value.code) == ("requests", "rate_limit_exceeded")


def test_a_key_is_asked_for_everywhere_but_at_health_and_for_the_empty_page(served):
    with TestClient(make_app(served[0], "secret")) as http:
        assert http.get("/health").json() == {"status": "ok"}
        page = http.get("/")
        assert page.text.startswith("<!doctype html>") and "frame-ancestors 'none'" in str(page.headers)
        for key, status in (("Bearer wrong", 401), ("secret", 401), ("", 401), ("bearer secret", 200)):
            assert http.get("/v1/models", headers={"Authorization": key}).status_code == status


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Host": "localhost", "Origin": "http://evil.example"}]
)
def test_without_a_key_no_stranger_s_page_reads_or_changes_rules(served, headers):
    with TestClient(make_app(served[0]), base_url="http://localhost:8000") as http:
        assert http.get("/v1/books/bank/rules").json()["total"] == 30
        for answer in (
            http.get("/v1/models", headers=headers),
            http.delete("/v1/books/bank/rules/r4", headers=headers),
        ):
            assert answer.status_code == 403
        assert http.get("/v1/books/bank/rules", params={"limit": -1}).status_code == 400
    assert "r4" in served[0].books["bank"].bank.ids


def test_words_that_the_model_has_no_tokens_for_are_named_before_it_answers(served, client, monkeypatch):
    served[2].unk_token = "w1"
    chat = partial(client.chat.completions.create, model="bank", messages=asked("w11 invoice"), max_tokens=3)
    assert chat().unknown_words == ["invoice"]
    chunks = list(chat(stream=True))
    assert chunks[0].unknown_words == ["invoice"] and not hasattr(chunks[1], "unknown_words")
    assert not hasattr(chat(messages=asked("w11")), "unknown_words")
    monkeypatch.setattr("dynarule.serve.respond.unfamiliar", Mock(side_effect=AssertionError))
    with pytest.raises(openai.BadRequestError, match="the model reads 256 at most"):
        chat(messages=asked(" ".join(f"word{i}" for i in range(300))))  # their words are not looked at


def test_an_answer_ends_where_the_model_has_no_more_places(client):
    answer = client.completions.create(model="bank", prompt=["w1 " * 250, "w2"], max_tokens=12)
    assert answer.usage.completion_tokens == 6 + 12


def at_the_end(finished):
    return lambda what: isinstance(what, Answer) and finished.set()


def test_who_waits_when_the_engine_is_closed_is_told(served):
    engine, told, failed = served[0], [], []

    def change():
        with pytest.raises(EngineClosed, match="closing"):
            engine.run(lambda: None)
        failed.append(True)

    waiting, closing = threading.Thread(target=change), threading.Thread(target=engine.close)
    with held_up(engine):
        waiting.start()
        engine.submit(Request("bank", "w1", told.append))
        wait_for(lambda: engine._thread._work_queue.qsize() == 2)
        closing.start()
        wait_for(lambda: engine._closed)
    closing.join()
    waiting.join()
    assert failed and [type(what) for what in told] == [EngineClosed]
    with pytest.raises(EngineClosed):
        engine.submit(Request("bank", "w1", told.append))
    with TestClient(make_app(engine), base_url="http://localhost") as http:
        answer = http.post("/v1/completions", json={"model": "bank", "prompt": "w1"})
    assert answer.status_code == 503 and answer.json()["error"]["type"] == "server_error"


def test_a_client_that_went_away_leaves_its_place(served):
    engine, sent = served[0], []
    submit, engine.submit = engine.submit, lambda request: (sent.append(request), submit(request))
    server = uvicorn.Server(uvicorn.Config(make_app(engine), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    address, body = server.servers[0].sockets[0].getsockname(), b'{"model": "bank", "prompt": "w1"}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    with held_up(engine):
        with socket.create_connection(address) as client:  # and no longer than until it was heard
            client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            wait_for(lambda: sent)
        wait_for(lambda: sent[0].cancelled)
    server.should_exit = True
    thread.join()
    assert sent[0].cancelled


def test_whoever_went_away_is_not_answered(served):
    engine, done = served[0], []
    gone = Request("bank", "w1", done.append)
    with held_up(engine):
        engine.submit(gone)
        gone.cancelled = True
    finished = threading.Event()
    engine.submit(Request("bank", "w2", at_the_end(finished), max_tokens=1))
    assert finished.wait(HANGS) and done == []


def test_a_batch_that_nobody_can_be_told_of_does_not_stop_the_next(served):
    engine, finished = served[0], threading.Event()
    engine.submit(Request("bank", "w1", Mock(side_effect=RuntimeError("the loop is closed")), max_tokens=1))
    engine.submit(Request("bank", "w2", at_the_end(finished), max_tokens=1, seed=1))
    assert finished.wait(HANGS)


def test_changes_without_end_do_not_hold_up_who_waits_for_an_answer(served):
    engine, finished = served[0], threading.Event()

    def again():
        if not finished.is_set():
            engine._thread.submit(again)

    engine.run(again)
    engine.submit(Request("bank", "w1", at_the_end(finished), max_tokens=1))
    answered = finished.wait(HANGS)
    finished.set()
    assert answered


def test_who_asks_again_at_once_is_answered_with_the_others(served, monkeypatch):
    monkeypatch.setattr("dynarule.serve.engine.REJOIN_SHARE", 1e9)
    monkeypatch.setattr("dynarule.serve.engine.REJOIN_SECONDS", HANGS)
    engine, sizes = served[0], []
    answer = engine._answer
    engine._answer = lambda batch: (sizes.append(len(batch)), answer(batch))

    def user():
        for _ in range(3):
            finished = threading.Event()
            engine.submit(Request("bank", "w1", at_the_end(finished), max_tokens=1))
            assert finished.wait(HANGS)

    users = [threading.Thread(target=user) for _ in range(3)]
    with held_up(engine):
        for thread in users:
            thread.start()
        wait_for(lambda: len(engine._waiting) == 3)
    for thread in users:
        thread.join()
    assert sizes == [3, 3, 3]
