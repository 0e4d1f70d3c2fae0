"""A stand-in for the Hub's HTTP API: repositories in memory, made, listed and committed to as huggingface_hub asks."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TOKEN = "hf_test"


@dataclass
class Repository:
    """One repository: its settings as they were asked for, and its files."""

    asked: dict
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


class Hub:
    """Start with ``with Hub() as hub``; ``hub.repositories`` maps ``datasets/me/x`` to what was sent."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, b"")

            def body(self) -> bytes:
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def do_POST(self) -> None:
                hub.answer(self, self.body())

            do_PUT = do_POST

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def environment(self) -> dict[str, str]:
        """What points huggingface_hub here; the plain upload, since the chunked one needs another service."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def reach(self, patch, home: object, **variables: str) -> None:
        """Point this process's huggingface_hub here, which reads the environment once, when it is imported."""
        from huggingface_hub import close_session, constants

        environment = self.environment() | variables
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(constants, "ENDPOINT", environment["HF_ENDPOINT"])
        patch.setattr(constants, "HF_HUB_OFFLINE", environment["HF_HUB_OFFLINE"] == "1")
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_TOKEN_PATH", f"{home}/token")
        close_session()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path = urlsplit(request.path).path
        self.requests.append(f"{request.command} {path}")
        upload = path.startswith("/upload/")
        if not upload and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, reply = 401, {"error": "Invalid username or password."}
        else:
            status, reply = self.route(request.command, path, body)
        sent = json.dumps(reply).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(sent)))
        if status >= 400:
            request.send_header("X-Error-Message", reply["error"])
        request.end_headers()
        request.wfile.write(sent)

    def route(self, verb: str, path: str, body: bytes) -> tuple[int, object]:
        if path.startswith("/upload/"):
            oid = path.removeprefix("/upload/")
            if hashlib.sha256(body).hexdigest() != oid:
                return 400, {"error": "the bytes do not have this hash"}
            self.stored[oid] = body
            return 200, {}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path.endswith("/info/lfs/objects/batch"):
            return 200, self.batch(json.loads(body))
        _, _, kind, owner, name, *rest = path.split("/")
        repository = self.repositories.get(f"{kind}/{owner}/{name}")
        if repository is None:
            return 404, {"error": "Repository not found"}
        if rest[:1] == ["preupload"]:
            files = json.loads(body)["files"]
            return 200, {"files": [self.mode(file["path"]) for file in files]}
        if rest[:1] == ["commit"]:
            return self.commit(
                repository, kind, f"{owner}/{name}", [json.loads(line) for line in body.splitlines()]
            )
        if verb == "GET" and rest[:1] in ([], ["revision"]):
            siblings = [{"rfilename": file} for file in sorted(repository.files)]
            return 200, {"id": f"{owner}/{name}", "siblings": siblings, "sha": "0" * 40, "tags": []}
        if verb == "GET" and rest[:1] == ["tree"]:
            tree = [
                {"type": "file", "path": file, "size": len(data), "oid": "0" * 40}
                for file, data in sorted(repository.files.items())
            ]
            return 200, tree
        return 500, {"error": f"the stand-in does not know {verb} {path}"}

    @staticmethod
    def mode(path: str) -> dict:
        large = path.endswith(".parquet")
        return {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}

    def create(self, asked: dict) -> tuple[int, object]:
        name = f"{asked['type']}s/{asked.get('organization', 'me')}/{asked['name']}"
        url = f"{self.url}/{name}"
        if name in self.repositories:
            return 409, {"error": "You already created this repository", "url": url}
        self.repositories[name] = Repository(asked, {".gitattributes": b""})
        return 200, {"url": url}

    def batch(self, asked: dict) -> object:
        objects = [
            blob | {"actions": {"upload": {"href": f"{self.url}/upload/{blob['oid']}"}}}
            for blob in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def commit(self, repository: Repository, kind: str, name: str, lines: list[dict]) -> tuple[int, object]:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                repository.messages.append(value["summary"])
            elif line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.stored[value["oid"]]
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]
        page = f"{self.url}/{kind}/{name}"
        return 200, {"success": True, "commitOid": "0" * 40, "commitUrl": f"{page}/commit/{'0' * 40}"}
