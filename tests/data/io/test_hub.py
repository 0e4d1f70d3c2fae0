"""`ruleworld push`: exactly the files of the dry run go, in one commit; stale ones go; no answer shows the token."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from unittest.mock import patch
from urllib.parse import quote

import pytest
import ruleworld_data
from huggingface_hub import CommitOperationAdd, HfApi, close_session, constants
from ruleworld_data.cli import app
from ruleworld_data.io import push_dataset, push_metric
from ruleworld_data.io.hub import METRIC_FILES
from typer.testing import CliRunner

TOKEN = "hf_SECRET+/=of-a-maintainer"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub in memory behind the methods of HfApi, whose signatures hold: what was asked for, files, commits."""
    state = SimpleNamespace(repo={}, files={".gitattributes": b""}, messages=[])

    def create(api, repo_id, **options):
        state.repo = {"id": repo_id, **options}
        return f"https://huggingface.co/{options['repo_type']}s/{repo_id}"

    def commit(api, repo_id, operations, *, repo_type, commit_message):
        state.messages.append(commit_message)
        for change in operations:
            if isinstance(change, CommitOperationAdd):
                with change.as_file() as file:
                    state.files[change.path_in_repo] = file.read()
            else:
                del state.files[change.path_in_repo]

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with (
        patch.object(HfApi, "create_repo", autospec=True, side_effect=create),
        patch.object(HfApi, "list_repo_files", autospec=True, side_effect=lambda *_, **__: [*state.files]),
        patch.object(HfApi, "create_commit", autospec=True, side_effect=commit),
    ):
        yield state


def push(*words: object) -> str:
    done = CliRunner().invoke(app, ["push", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_what_the_dry_run_lists_is_what_arrives_and_stale_shards_go(hub, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "mine")
    (folder / "notes.txt").write_text("mine")
    planned = json.loads(push(folder, "--to", "me/rules", "--private", "--dry-run", "--json"))
    assert not hub.messages and planned["private"] and planned["sent_to"] is None
    told = push(folder, "--to", "me/rules", "--private")
    assert "sent to https://huggingface.co/datasets/me/rules" in told
    assert hub.repo["id"] == "me/rules" and hub.repo["private"] and hub.messages == ["RuleWorld: dataset"]
    sizes = {file: len(data) for file, data in hub.files.items() if file != ".gitattributes"}
    assert sizes == planned["files"]
    assert set(sizes) == {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    assert all(hub.files[f] == (folder / f).read_bytes() for f in set(sizes) - {"README.md"})
    # The card says how to load the repository it stands in, and whom to cite.
    card = hub.files["README.md"].decode()
    assert 'load_dataset("me/rules", "multi_hop_3"' in card and "OWNER/NAME" not in card
    assert "@misc{ruleworld," in card and "Yu, Bohan" in card
    # A second time: shards of an earlier build go, other files stay.
    hub.files |= {"single_rule/test-00001-of-00002.parquet": b"old", "figure.png": b"theirs"}
    push(folder, "--to", "me/rules")
    assert hub.files.keys() == {*sizes, ".gitattributes", "figure.png"}


def test_the_metric_goes_to_a_space(hub):
    push("--metric", "--to", "me/ruleworld_em")
    assert hub.repo["repo_type"] == "space" and hub.repo["space_sdk"] == "gradio"
    assert set(hub.files) == {*METRIC_FILES, ".gitattributes"}
    assert hub.files["app.py"] == (Path(ruleworld_data.METRIC_PATH) / "app.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metric"], "give --to OWNER/NAME"),
        (["--metric", "--to", "rules"], "give --to OWNER/rules"),
        (["--metric", "--to", "me/.."], "is no repository name"),
        (["--to", "me/x"], "give either a folder made by `ruleworld export`, or --metric"),
        (["nowhere", "--to", "me/x"], "no folder nowhere; make it first"),
    ],
)
def test_wrong_arguments_say_what_to_type(arguments, words):
    done = CliRunner().invoke(app, ["push", *arguments])
    assert done.exit_code == 2 and words in done.output


def test_a_folder_that_is_no_whole_export_is_refused(exported, tmp_path):
    def refused(error, words):
        with pytest.raises(error, match=words):
            push_dataset(tmp_path, "me/x", dry_run=True)

    refused(FileNotFoundError, r"has no README\.md")
    (tmp_path / "README.md").write_text("# mine\n")
    refused(ValueError, "is not the card of an exported dataset")
    shutil.copy(exported / "README.md", tmp_path)
    refused(ValueError, "has no file for 'multi_hop_2/heldout-\\*'")
    (tmp_path / "eval.yaml").symlink_to("/etc/hostname")
    refused(ValueError, "is a link out of the folder")
    (tmp_path / "eval.yaml").unlink()
    (tmp_path / "rules").symlink_to(exported / "rules")
    refused(ValueError, "is a link out of the folder")


@pytest.fixture
def reach(monkeypatch, tmp_path):
    """Point huggingface_hub, which reads the environment once, to a server that answers all the same."""
    servers = []

    def to(status: int = 401, body: bytes = b"{}", error: str = "", token: str = TOKEN) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Error-Message", error)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *args: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{servers[-1].server_port}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        close_session()

    yield to
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("form", [TOKEN, quote(TOKEN, safe=""), TOKEN.upper()])
@pytest.mark.parametrize("status", [200, 302, 401, 500])
@pytest.mark.parametrize("body", ['{{"error": "no {}"}}', '{{"url": "http://x/{}"}}', "<html>{}\x1b[2J"])
def test_no_answer_of_a_hub_shows_the_token(form, status, body, reach, capfd, caplog):
    """In no message, on no line of the terminal or of a log."""
    caplog.set_level("INFO")
    reach(status, body.format(form).encode(), form)
    with pytest.raises(OSError, match="did not take me/x") as told:
        push_metric("me/x")
    shown = (str(told.value) + "".join(capfd.readouterr()) + caplog.text).lower()
    assert TOKEN.lower() not in shown and quote(TOKEN, safe="").lower() not in shown
    assert str(told.value).isprintable()


def test_no_token_a_bad_one_and_a_hub_that_is_off_are_told(reach, monkeypatch, capfd):
    for token in ("hf_S\x01ECRET", "hf_SÉCRET"):
        reach(token=token)
        with pytest.raises(OSError, match="did not take me/x") as told:
            push_metric("me/x")
        assert "CRET" not in str(told.value) + "".join(capfd.readouterr())
    reach(token="")
    with pytest.raises(ValueError, match="no token of the hub; set HF_TOKEN"):
        push_metric("me/x")
    reach()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="unset the `HF_HUB_OFFLINE`"):
        push_metric("me/x")
