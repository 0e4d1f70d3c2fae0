"""Endpoints that work, fail, stall and lie: every reply is an answer, a counted outcome or a failure to retry."""

import dataclasses
import threading

import pytest
from ruleworld_data.prompts import Prompt
from rwbench.backends import Backend, Decoding, GoneError
from rwbench.backends.endpoint import FAILED_IN_A_ROW, Endpoint
from rwbench.methods.prompting import Prompting
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples

ANSWER = "[Step 1] So it is.\n[Answer] \\boxed{7}"


def ask(server, *texts, tokens=50, stop=(), **fields):
    backend = Endpoint.of("some-model", server.url, **fields)
    return list(backend.generate([Prompt(text) for text in texts], Decoding(tokens, stop)))


def test_a_request_says_what_the_protocol_wants(serve, monkeypatch):
    monkeypatch.setenv("RULEWORLD_API_KEY", "secret")
    server = serve(lambda prompt, nth: f"{prompt} yes\nObservation 1: made up")
    done = ask(server, "one two", stop=("\nObservation",), temperature=0.6)
    (body,) = server.bodies
    assert body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "one two"}],
        "temperature": 0.6,
        "max_tokens": 50,
        "stop": ["\nObservation"],
        "stream": False,
    }
    assert server.keys == ["Bearer secret"]
    assert done[0].text == "one two yes"
    assert (done[0].prompt_tokens, done[0].completion_tokens) == (2, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RWBENCH_TIMEOUT", "nan"),
        ("RWBENCH_TIMEOUT", "soon"),
        ("RWBENCH_TRIES", "inf"),
        ("RULEWORLD_API_KEY", "sk-1\nX-Evil: yes"),
    ],
)
def test_what_is_wrong_with_the_environment_ends_a_run_at_once(serve, monkeypatch, name, value):
    """It is the same for every question: none is asked, none fails, and a key is not shown."""
    monkeypatch.setenv(name, value)
    server = serve(lambda prompt, nth: "yes")
    with pytest.raises(GoneError, match=f"the environment variable {name} ") as error:
        ask(server, "one")
    assert server.bodies == [] and "sk-1" not in str(error.value)


def test_an_endpoint_from_a_file_gets_no_key(serve, monkeypatch):
    """`Endpoint.of` is what a user names; a spec is what a folder, perhaps a stranger's, says."""
    monkeypatch.setenv("RULEWORLD_API_KEY", "sk-secret")
    server = serve(lambda prompt, nth: ANSWER if len(server.keys) < 2 else 401)
    spec = {"name": "endpoint", "model": "m", "url": server.url}
    list(Backend.from_dict(spec).generate([Prompt("a")], Decoding()))
    with pytest.raises(GoneError, match=rf"no key was sent.*set RULEWORLD_API_URL={server.url}"):
        list(Backend.from_dict(spec).generate([Prompt("b")], Decoding()))
    assert server.keys == [None, None]


def test_answers_come_in_order_and_at_once(serve, monkeypatch):
    monkeypatch.setenv("RWBENCH_CONCURRENCY", "4")
    both, late = threading.Barrier(2, timeout=60), threading.Event()

    def play(prompt, nth):
        if prompt in "01":
            both.wait()  # each is answered once the other has been asked beside it
            late.set() if prompt == "1" else late.wait(60)
        return f"said {prompt}"

    server = serve(play)
    done = ask(server, *map(str, range(8)))
    assert [item.text for item in done] == [f"said {n}" for n in range(8)]
    assert 2 <= server.most_at_once <= 4


def test_an_endpoint_that_fails_on_and_on_stops_the_run(serve, options, workspace, tmp_path, monkeypatch):
    """Two batches of four count together with the third; an answer between them starts the count anew."""
    for name, value in (("TRIES", "1"), ("CONCURRENCY", "1")):
        monkeypatch.setenv(f"RWBENCH_{name}", value)
    healed = []

    def play(prompt, nth):
        # The fourth question asked is answered, then nothing is: 3 failures, and 10 in a row from the fifth on.
        return ANSWER if healed or len(server.bodies) == 4 else 503

    server = serve(play)
    spec = options.spec(
        Prompting(model=Endpoint.of("m", server.url), rules="gold"), "nl", size=100, scope="question"
    )
    with pytest.raises(GoneError, match=f"failed on {FAILED_IN_A_ROW} questions in a row .*HTTP 503"):
        run_spec(spec, workspace, tmp_path)
    written = read_samples(tmp_path / spec.run_id / "samples.jsonl")
    assert [sample["error"] is None for sample in written] == [False] * 3 + [True] + [False] * 8
    healed.append(True)
    results = run_spec(spec, workspace, tmp_path)
    assert results["n"] == {"scheduled": 22, "scored": 22, "failed": 0}


def test_a_run_on_a_bad_endpoint_counts_everything_and_resumes(
    serve, options, workspace, tmp_path, monkeypatch
):
    """One question each: answered, cut off, prose, silence, too long, and an endpoint that fails for a while."""
    monkeypatch.setenv("RWBENCH_TRIES", "1")
    questions = [
        q
        for name in ("single_rule", "multi_rule_2", "multi_hop_2")
        for q in workspace.questions(name, "mini")[:20:10]
    ]
    gold = {q.id: ", ".join(q.answers) for q in questions}
    healed = []

    def play(prompt, nth):
        number = next(i for i, q in enumerate(questions) if prompt.rstrip().endswith(q.text))
        if number == 5 and not healed:
            return 503
        return [
            f"\\boxed{{{gold[questions[0].id]}}}",
            ("and so on and on", "length"),
            "Je ne sais pas : la réponse est douze.",
            "",
            (400, '{"error": "this model\'s maximum context length is 4096"}'),
            f"\\boxed{{{gold[questions[5].id]}}}",
        ][number]

    server = serve(play)
    method = Prompting(model=Endpoint.of("m", server.url))
    spec = dataclasses.replace(
        options.spec(method, "nl", 100, "question"), subtasks=("single_rule", "multi_rule_2", "multi_hop_2")
    )
    results = run_spec(spec, workspace, tmp_path)
    assert results["n"] == {"scheduled": 6, "scored": 5, "failed": 1}
    path = tmp_path / spec.run_id / "samples.jsonl"
    outcomes = {sample["id"]: sample["outcome"] for sample in read_samples(path)}
    assert [outcomes[q.id] for q in questions] == [
        "ok", "length", "refused_format", "no_output", "context_exceeded", "failed",
    ]  # fmt: skip
    asked = sum(server.asked.values())
    healed.append(True)
    results = run_spec(spec, workspace, tmp_path)
    assert results["n"] == {"scheduled": 6, "scored": 6, "failed": 0}
    assert sum(server.asked.values()) == asked + 1
    samples = {sample["id"]: sample for sample in read_samples(path)}
    assert len(samples) == len(path.read_text().splitlines()) == 6
    scores = [samples[q.id]["scores"]["exact_match"] for q in questions]
    assert scores == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    usage = samples[questions[0].id]["usage"]
    assert usage["calls"] == 1 and usage["prompt_tokens"] > 500 and usage["completion_tokens"] >= 1
    assert samples[questions[4].id]["usage"]["calls"] == 0
