"""A chat server on this machine that answers as a test tells it to; loaded with runpy."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread

Play = Callable[[list[str], int], "str | int | bytes | None"]


class FakeModel:
    """A chat server. ``play(parts, nth)`` gives a text, a status, raw bytes, or None to close the connection."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.lock, self.release = Lock(), Event()
        self.asked: Counter[tuple[str, ...]] = Counter()
        self.times: dict[tuple[str, ...], list[float]] = {}
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                parts = [
                    line[2:]
                    for line in body["messages"][-1]["content"].split("Sub-questions:\n")[1].splitlines()
                    if line.startswith("- ")
                ]
                with model.lock:
                    model.bodies.append(body)
                    model.headers.append({name.title(): value for name, value in self.headers.items()})
                    model.paths.append(self.path)
                    model.asked[tuple(parts)] += 1
                    model.times.setdefault(tuple(parts), []).append(time.monotonic())
                    nth = model.asked[tuple(parts)]
                reply = model.play(parts, nth)
                if reply is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, data = 200, reply
                if isinstance(reply, int):
                    status, data = reply, b'{"error": "so said the server"}'
                elif isinstance(reply, str):
                    data = json.dumps(
                        {"choices": [{"message": {"role": "assistant", "content": reply}}]}
                    ).encode()
                try:
                    self.send_response(status)
                    if status == 429:
                        self.send_header("Retry-After", "1")
                    if status == 302:
                        self.send_header("Location", "/elsewhere")
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
