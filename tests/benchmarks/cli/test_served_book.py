"""The server under load, with the bundled model: many users, and rules that outlive a kill -9."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import pytest
from rwbench.cli.book import write_book

pytestmark = pytest.mark.slow
QUESTIONS = [
    f"If a {kind} cat is in the {place}, what follows?"
    for kind in ("tiny", "royal")
    for place in ("attic", "desert")
]


class Served:
    """`dynarule serve` of a bank, in a process of its own."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        parts = [f"--{name}={folder / place}" for name, place in (("model", "base"), ("adapter", "adapter"))]
        parts += [f"--rules={folder / 'bank'}", f"--port={port}"]
        self.process = subprocess.Popen([sys.executable, "-m", "dynarule", "serve", *parts])
        self.url = f"http://127.0.0.1:{port}"
        while not self.answers():
            assert self.process.poll() is None
            time.sleep(0.2)

    def answers(self):
        try:
            return self.send("/health")
        except OSError:
            return False

    def send(self, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        with urlopen(
            Request(self.url + path, data, {"Content-Type": "application/json"}), timeout=120
        ) as reply:
            return json.load(reply)

    def ask(self, question):
        return self.send("/v1/completions", {"model": "bank", "prompt": question, "max_tokens": 48})

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("load") / "book"
    write_book(made)
    build = ["bank", "build", made / "rules.txt", "--out", made / "bank"]
    build += ["--adapter", made / "adapter", "--model", made / "base"]
    subprocess.run([sys.executable, "-m", "dynarule", *map(str, build)], check=True)
    return made


def answers_in(served, seconds, users):
    """How many answers so many users get in some seconds, each asking one question after another."""
    end, counts = time.monotonic() + seconds, itertools.count()

    def user(number):
        for turn in itertools.count(number):
            if time.monotonic() > end:
                return
            assert served.ask(QUESTIONS[turn % len(QUESTIONS)])["choices"][0]["rules"]
            next(counts)

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(user, range(users)))
    return next(counts)


def test_sixteen_users_get_four_times_what_one_gets(folder):
    served = Served(folder)
    try:
        answers_in(served, 3, 16)  # warm
        one, many = (answers_in(served, 15, users) / 15 for users in (1, 16))
        assert many >= 4 * one
    finally:
        served.kill()
