"""The endpoint backend against a real server: `transformers serve` on the shipped base."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from ruleworld_data.prompts import Prompt
from rwbench.backends import Decoding, GoneError
from rwbench.backends.endpoint import Endpoint
from rwbench.backends.local import Local
from rwbench.methods.prompting import Prompting
from rwbench.models import base_folder, shipped
from rwbench.run.runner import run_spec
from rwbench.score.samples import read_samples

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("tiny" not in shipped(), reason="no model is shipped here"),
]


@pytest.fixture
def served(tmp_path):
    """(folder, base URL, process) of a server on a copy of the base; the base has no chat template, the copy does."""
    for package in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(package, reason='pip install "transformers[serving]"')
    folder = shutil.copytree(base_folder("tiny"), tmp_path / "tiny-base")
    (folder / "chat_template.jinja").write_text("{{ messages[-1]['content'] }}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("transformers"), "serve", folder, "--device", "cpu"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=said, stderr=said
        )
    try:
        for _ in range(240):
            assert process.poll() is None, (tmp_path / "said").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield folder, f"http://127.0.0.1:{port}/v1", process
    finally:
        process.kill()
        process.wait()


def test_a_real_server_says_what_the_model_says_here(served, options, workspace, tmp_path, monkeypatch):
    folder, url, process = served
    here, there = Local.of(str(folder)), Endpoint.of(str(folder), url)
    rules = workspace.rules("mini")
    questions = [
        workspace.questions(name, "mini")[0] for name in ("single_rule", "multi_rule_2", "multi_hop_2")
    ]
    prompts = [
        here.template.render("answer", "nl", q.text, rules.texts(sorted(q.gold), "nl")) for q in questions
    ]
    for decoding in (Decoding(200), Decoding(200, ("\n",)), Decoding(5)):
        # One by one: in a batch of several, sums are made in another order, and a near tie may fall the other way.
        wanted = [done for prompt in prompts for done in here.generate([prompt], decoding)]
        found = list(there.generate(prompts, decoding))
        assert [done.error for done in found] == [None] * 3
        assert [done.text for done in found] == [done.text for done in wanted]
        assert [done.finish for done in found] == [done.finish for done in wanted]
        assert [done.prompt_tokens for done in found] == [done.prompt_tokens for done in wanted]
    assert "\\boxed" in next(there.generate([prompts[0]], Decoding(200))).text

    spec = options.spec(Prompting(model=there, rules="gold", max_new_tokens=60), "nl", 100, "question")
    results = run_spec(spec, workspace, tmp_path / "runs")
    assert results["n"] == {"scheduled": 22, "scored": 22, "failed": 0}
    samples = read_samples(tmp_path / "runs" / spec.run_id / "samples.jsonl")
    assert all(sample["output"] and sample["usage"]["prompt_tokens"] > 0 for sample in samples)
    # The server gone: what it said is on disk, and a question that it was not asked stops the run.
    process.kill()
    process.wait()
    again = run_spec(spec, workspace, tmp_path / "again")
    assert again["samples_sha256"] == results["samples_sha256"]
    monkeypatch.setenv("RWBENCH_TRIES", "1")
    with pytest.raises(GoneError, match="cannot connect"):
        list(there.generate([Prompt("never asked")], Decoding(5)))
