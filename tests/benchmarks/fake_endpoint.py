"""A chat server on this machine that speaks the OpenAI protocol as well or badly as a test says."""

import json
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class FakeEndpoint:
    """``play(prompt, nth)`` gives a text, (text, finish_reason), a status, (status, body), or a writer of its own."""

    def __init__(self, play) -> None:
        self.play, self.lock = play, Lock()
        self.asked, self.bodies, self.keys, self.most_at_once, self.now = Counter(), [], [], 0, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/chat/completions"
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                with outer.lock:
                    outer.bodies.append(body)
                    outer.keys.append(self.headers.get("Authorization"))
                    outer.asked[prompt] += 1
                    outer.now += 1
                    outer.most_at_once = max(outer.most_at_once, outer.now)
                    nth = outer.asked[prompt]
                try:
                    self.reply(prompt, outer.play(prompt, nth))
                except OSError:
                    pass  # the client has gone
                finally:
                    with outer.lock:
                        outer.now -= 1

            def reply(self, prompt, said) -> None:
                status, data = 200, b""
                if callable(said):
                    said(self.wfile)
                    return
                if isinstance(said, int):
                    status, data = said, b'{"error": {"message": "so said the server"}}'
                elif isinstance(said, tuple) and isinstance(said[0], int):
                    status, data = said[0], said[1].encode()
                else:
                    data = completion(prompt, *(said if isinstance(said, tuple) else (said, "stop")))
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def completion(prompt: str, text: str | None, finish: str) -> bytes:
    """A whole reply; a token is a word."""
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
            ],
            "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": len((text or "").split())},
        }
    ).encode()
