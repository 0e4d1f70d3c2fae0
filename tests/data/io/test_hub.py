"""`ruleworld push` against a stand-in of the Hub's API: exactly the files of the dry run arrive, stale ones go."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import ruleworld_data
from ruleworld_data.cli import app
from ruleworld_data.io import push_dataset, push_metric
from ruleworld_data.io.hub import METRIC_FILES
from typer.testing import CliRunner

Hub = runpy.run_path(str(Path(__file__).parents[1] / "fake_hub.py"))["Hub"]
TOKEN = "hf_SECRET+/=of-a-maintainer"


@pytest.fixture
def hub():
    with Hub() as running:
        yield running


@pytest.fixture
def push(hub, tmp_path):
    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        environment |= {"HF_HOME": str(tmp_path)} | hub.environment() | variables
        words = [sys.executable, "-m", "ruleworld_data.cli", "push", *map(str, arguments)]
        return subprocess.run(words, env=environment, capture_output=True, text=True)

    return run


def test_what_the_dry_run_lists_is_what_arrives_and_stale_shards_go(push, hub, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "mine")
    (folder / "notes.txt").write_text("mine")
    dry = push(folder, "--to", "me/rules", "--private", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    planned = json.loads(dry.stdout)
    assert hub.requests == [] and planned["private"] and planned["sent_to"] is None
    done = push(folder, "--to", "me/rules", "--private")
    assert done.returncode == 0, done.stderr
    assert f"sent to {hub.url}/datasets/me/rules" in done.stdout
    assert list(hub.repositories) == ["datasets/me/rules"]
    repository = hub.repositories["datasets/me/rules"]
    assert repository.asked.get("private") or repository.asked.get("visibility") == "private"
    sizes = {file: len(data) for file, data in repository.files.items() if file != ".gitattributes"}
    assert sizes == planned["files"] and repository.messages == ["RuleWorld: dataset"]
    assert set(sizes) == {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    assert all(repository.files[f] == (folder / f).read_bytes() for f in set(sizes) - {"README.md"})
    # The card says how to load the repository it stands in, and whom to cite.
    card = repository.files["README.md"].decode()
    assert 'load_dataset("me/rules", "multi_hop_3"' in card and "OWNER/NAME" not in card
    assert "@misc{ruleworld," in card and "Yu, Bohan" in card
    # A second time: shards of an earlier build go, other files stay.
    repository.files |= {"single_rule/test-00001-of-00002.parquet": b"old", "figure.png": b"theirs"}
    with (folder / "eval.yaml").open("a") as file:
        file.write("# again\n")
    assert push(folder, "--to", "me/rules").returncode == 0
    assert repository.files.keys() == {*sizes, ".gitattributes", "figure.png"}
    assert repository.files["eval.yaml"].endswith(b"# again\n")


def test_the_metric_goes_to_a_space(push, hub):
    done = push("--metric", "--to", "me/ruleworld_em")
    assert done.returncode == 0, done.stderr
    repository = hub.repositories["spaces/me/ruleworld_em"]
    assert repository.asked["sdk"] == "gradio"
    assert set(repository.files) == {*METRIC_FILES, ".gitattributes"}
    source = Path(ruleworld_data.METRIC_PATH) / "ruleworld_em.py"
    assert repository.files["ruleworld_em.py"] == source.read_bytes()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HF_TOKEN": ""}, "no token of the hub; set HF_TOKEN"),
        ({"HF_TOKEN": "hf_wrong"}, "did not take me/x"),
        ({"HF_HUB_OFFLINE": "1"}, "unset the `HF_HUB_OFFLINE`"),
    ],
)
def test_a_hub_that_does_not_take_it_says_why(push, hub, variables, words):
    done = push("--metric", "--to", "me/x", **variables)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert hub.repositories == {}


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


@pytest.mark.parametrize("form", [TOKEN, quote(TOKEN, safe=""), TOKEN.upper()])
@pytest.mark.parametrize("status", [200, 302, 401, 500])
@pytest.mark.parametrize("body", ['{{"error": "no {}"}}', '{{"url": "http://x/{}"}}', "<html>{}\x1b[2J"])
def test_no_answer_of_a_hub_shows_the_token(form, status, body, hub, tmp_path, monkeypatch, capfd, caplog):
    """In no message, on no line of the terminal or of a log."""
    caplog.set_level("INFO")
    sent = body.format(form).encode()

    def answer(request, _):
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(sent)))
        request.send_header("X-Error-Message", form)
        request.end_headers()
        request.wfile.write(sent)

    monkeypatch.setattr(hub, "answer", answer)
    hub.reach(monkeypatch, tmp_path, HF_TOKEN=TOKEN)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(OSError, match="did not take me/x") as told:
        push_metric("me/x")
    shown = (str(told.value) + "".join(capfd.readouterr()) + caplog.text).lower()
    assert TOKEN.lower() not in shown and quote(TOKEN, safe="").lower() not in shown
    assert str(told.value).isprintable()


@pytest.mark.parametrize("token", ["hf_S\x01ECRET", "hf_SÉCRET"])
def test_a_token_that_is_none_is_not_shown_either(token, hub, tmp_path, monkeypatch, capfd):
    hub.reach(monkeypatch, tmp_path, HF_TOKEN=token)
    with pytest.raises(OSError, match="did not take me/x") as told:
        push_metric("me/x")
    assert "CRET" not in str(told.value) + "".join(capfd.readouterr())
