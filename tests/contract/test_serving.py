"""The commands of dynarule/docs/serving.md, as a user types them: a book, its bank, a server, a request."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from dynarule.cli.app import app as dynarule
from rwbench.cli.app import app as rwbench
from typer.testing import CliRunner

PAGE = Path(__file__).parents[2] / "dynarule/docs/serving.md"


def test_the_server_of_the_page_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)[1]
    book, bank, serve, curl = block.replace("\\\n", " ").split("\n", 3)
    bins = Path(sys.executable).parent
    for line in (book, bank):
        command, *words = shlex.split(line)
        done = CliRunner().invoke({"rwbench": rwbench, "dynarule": dynarule}[command], words)
        assert done.exit_code == 0, done.output
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command, *words = shlex.split(serve)
    server = subprocess.Popen(
        [bins / command, *words, "--port", str(port)], cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        assert any(b"listening" in line for line in iter(server.stderr.readline, b""))
        _, url, *_, body = shlex.split(curl)
        question = json.loads(body) | {"max_tokens": 4}
        request = urllib.request.Request(
            url.replace("8000", str(port)),
            json.dumps(question).encode(),
            {"Content-Type": "application/json"},
        )
        for _ in range(100):
            try:
                answer = json.load(urllib.request.urlopen(request))
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        assert answer["choices"][0]["message"]["content"].startswith("[Step 1]")
        assert answer["choices"][0]["rules"][0]["rules"][0]["text"].startswith("If A haunts B")
    finally:
        server.terminate()
        server.wait()
