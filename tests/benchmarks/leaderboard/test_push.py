"""`rwbench push` against a stand-in of the Hub's API: the board as a Space whose links lead somewhere."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml
from rwbench.cli.app import app
from rwbench.leaderboard.files import LIMITS
from typer.testing import CliRunner

fake_hub = runpy.run_path(str(Path(__file__).parents[2] / "data" / "fake_hub.py"))
REPO = "me/leaderboard"


@pytest.fixture
def hub():
    with fake_hub["Hub"]() as running:
        yield running


@pytest.fixture
def push(hub, submissions, monkeypatch, tmp_path):
    def run(*arguments, **variables):
        hub.reach(monkeypatch, tmp_path, **variables)
        return CliRunner().invoke(app, ["push", str(submissions), "--to", REPO, *arguments])

    return run


def test_what_the_dry_run_lists_is_what_arrives_and_stale_submissions_go(push, hub, submissions):
    dry = push("--dry-run", "--private", "--json")
    assert dry.exit_code == 0, dry.stderr
    planned = json.loads(dry.stdout)
    names = {f"submissions/{folder.name}/{file}" for folder in submissions.iterdir() for file in LIMITS}
    assert set(planned["files"]) == {"README.md", "index.html", "board.json", *names}
    assert hub.requests == [] and planned["sent_to"] is None

    done = push("--private")
    assert done.exit_code == 0, done.stderr
    (name, space), *others = hub.repositories.items()
    assert name == f"spaces/{REPO}" and not others
    assert space.asked["sdk"] == "static"
    assert space.asked.get("private") or space.asked.get("visibility") == "private"
    arrived = {file: len(body) for file, body in space.files.items() if file != ".gitattributes"}
    assert arrived == planned["files"]
    assert f"sent to {hub.url}/spaces/{REPO}" in done.stdout
    for file in names:
        assert space.files[file] == (submissions.parent / file).read_bytes()

    front = yaml.safe_load(space.files["README.md"].decode().split("---\n")[1])
    assert (front["sdk"], front["app_file"]) == ("static", "index.html")
    assert len(front["short_description"]) <= 60
    links = re.findall(r'href="([^"#]+)"', space.files["index.html"].decode())
    assert len(links) > len(list(submissions.iterdir()))
    assert set(links) <= set(space.files)

    space.files |= {"submissions/2025-01-01_gone/results.json": b"{}", "notes.md": b"theirs"}
    assert push().exit_code == 0
    assert "submissions/2025-01-01_gone/results.json" not in space.files
    assert space.files["notes.md"] == b"theirs"


def test_a_hub_that_does_not_take_it_says_why(push, hub):
    done = push(HF_TOKEN="hf_wrong")
    assert done.exit_code == 2
    assert f"did not take {REPO}" in done.stderr and "Traceback" not in done.stderr
    assert hub.repositories == {}


def test_a_refused_submission_is_not_sent(hub, entry):
    entry.word("name", "<b>")
    done = CliRunner().invoke(app, ["push", str(entry.folder.parent), "--to", REPO, "--dry-run"])
    assert done.exit_code == 2 and "is refused" in done.stderr


def test_without_a_place_to_go_it_says_what_to_type(submissions):
    done = CliRunner().invoke(app, ["push", str(submissions)])
    assert done.exit_code == 2 and "give --to OWNER/NAME" in done.stderr
