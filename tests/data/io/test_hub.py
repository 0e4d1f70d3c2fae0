"""`ruleworld push` against a stand-in of the Hub's API: exactly the files of the dry run arrive, stale ones go."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import ruleworld_data
from ruleworld_data.cli import app
from ruleworld_data.io import build, check_repo, export, push_dataset, push_metric
from ruleworld_data.io.hub import METRIC_FILES
from typer.testing import CliRunner

fake_hub = runpy.run_path(str(Path(__file__).parents[1] / "fake_hub.py"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    build(root / "build", "tiny")
    export(root / "build", root / "hub")
    return root / "hub"


@pytest.fixture
def hub():
    with fake_hub["Hub"]() as running:
        yield running


@pytest.fixture
def push(hub, tmp_path):
    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        environment |= {"HF_HOME": str(tmp_path)} | hub.environment() | variables
        code = "from ruleworld_data.cli import main; main()"
        words = [sys.executable, "-c", code, "push", *map(str, arguments)]
        return subprocess.run(words, env=environment, capture_output=True, text=True)

    return run


def test_what_the_dry_run_lists_is_what_arrives(push, hub, exported):
    (exported / "notes.txt").write_text("mine")
    dry = push(exported, "--to", "me/rules", "--private", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    planned = json.loads(dry.stdout)
    assert hub.requests == [] and planned["private"] and planned["sent_to"] is None
    done = push(exported, "--to", "me/rules", "--private")
    assert done.returncode == 0, done.stderr
    (name, repository), *others = hub.repositories.items()
    assert name == "datasets/me/rules" and not others
    assert repository.asked.get("private") or repository.asked.get("visibility") == "private"
    arrived = {file: len(data) for file, data in repository.files.items() if file != ".gitattributes"}
    assert arrived == planned["files"]
    disk = {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    assert set(arrived) == disk - {"notes.txt"}
    assert all(repository.files[f] == (exported / f).read_bytes() for f in set(arrived) - {"README.md"})
    # The card says how to load the repository it stands in, and whom to cite.
    card = repository.files["README.md"].decode()
    assert 'load_dataset("me/rules", "multi_hop_3"' in card and "OWNER/NAME" not in card
    assert "@misc{ruleworld," in card and "Yu, Bohan" in card
    assert repository.messages == ["RuleWorld: dataset"]
    assert f"sent to {hub.url}/datasets/me/rules" in done.stdout


def test_shards_of_an_earlier_build_go_and_other_files_stay(push, hub, exported):
    assert push(exported, "--to", "me/rules").returncode == 0
    files = hub.repositories["datasets/me/rules"].files
    files |= {"single_rule/test-00001-of-00002.parquet": b"old", "figure.png": b"theirs"}
    (exported / "eval.yaml").write_text((exported / "eval.yaml").read_text() + "# again\n")
    done = push(exported, "--to", "me/rules")
    assert done.returncode == 0, done.stderr
    assert "single_rule/test-00001-of-00002.parquet" not in files
    assert files["figure.png"] == b"theirs" and ".gitattributes" in files
    assert files["eval.yaml"].endswith(b"# again\n")


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
        (["--to", "me/x"], "give either a folder made by `ruleworld export`, or --metric"),
        (["nowhere", "--to", "me/x"], "no folder nowhere; make it first"),
    ],
)
def test_wrong_arguments_say_what_to_type(arguments, words):
    done = CliRunner().invoke(app, ["push", *arguments])
    assert done.exit_code == 2 and words in done.output


@pytest.mark.parametrize(
    ("name", "words"),
    [("rules", "give --to OWNER/rules"), ("a/b/c", "no repository name"), ("me/..", "no repository name")],
)
def test_a_name_that_is_none_is_refused(name, words):
    with pytest.raises(ValueError, match=words):
        check_repo(name)


def test_a_folder_that_is_no_whole_export_is_refused(exported, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no README\.md"):
        push_dataset(tmp_path, "me/x", dry_run=True)
    (tmp_path / "README.md").write_text("# mine\n")
    with pytest.raises(ValueError, match="is not the card of an exported dataset"):
        push_dataset(tmp_path, "me/x", dry_run=True)
    (tmp_path / "README.md").write_bytes((exported / "README.md").read_bytes())
    with pytest.raises(ValueError, match="has no file for 'multi_hop_2/heldout-\\*'"):
        push_dataset(tmp_path, "me/x", dry_run=True)
    (tmp_path / "eval.yaml").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="is a link out of the folder"):
        push_dataset(tmp_path, "me/x", dry_run=True)


TOKEN = "hf_SECRET+/=of-a-maintainer"


@pytest.mark.parametrize("form", [TOKEN, quote(TOKEN, safe=""), TOKEN.upper()])
@pytest.mark.parametrize("status", [200, 302, 401, 500])
@pytest.mark.parametrize(
    "wrap", ['{{"error": "no {}"}}', '{{"url": "http://x/{}"}}', "<html>{}\x1b[2J", '"{}"']
)
def test_no_answer_of_a_hub_shows_the_token(form, status, wrap, hub, tmp_path, monkeypatch, capfd, caplog):
    """In no message, on no line of the terminal or of a log."""
    caplog.set_level("INFO")
    body = wrap.format(form).encode()

    def answer(request, _):
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.send_header("X-Error-Message", form)
        request.end_headers()
        request.wfile.write(body)

    monkeypatch.setattr(hub, "answer", answer)
    hub.reach(monkeypatch, tmp_path, HF_TOKEN=TOKEN)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(OSError, match="did not take me/x") as told:
        push_metric("me/x")
    shown = (str(told.value) + "".join(capfd.readouterr()) + caplog.text).lower()
    assert TOKEN.lower() not in shown and quote(TOKEN, safe="").lower() not in shown
    assert str(told.value).isprintable()


@pytest.mark.parametrize("token", ["hf_S\x01ECRET", "hf_SÉCRET", "hf_SE CRET"])
def test_a_token_that_is_none_is_not_shown_either(token, hub, tmp_path, monkeypatch, capfd):
    hub.reach(monkeypatch, tmp_path, HF_TOKEN=token)
    with pytest.raises(OSError, match="did not take me/x") as told:
        push_metric("me/x")
    assert "CRET" not in str(told.value) + "".join(capfd.readouterr())
