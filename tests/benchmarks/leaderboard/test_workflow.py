"""What a public forge runs on a pull request: on a repository of this test, main's code on the pull request's data."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github/workflows/submissions.yml"
SCRIPT = "benchmarks/leaderboard/check_pull_request.sh"
PLACE = "benchmarks/leaderboard/submissions"
NEW = f"{PLACE}/2026-11-28_naive"


@pytest.fixture
def check(submissions, tmp_path):
    """A function that checks a branch: main with one submission, another one added, and a change to the checkout."""
    place = tmp_path / "main"
    who = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | dict.fromkeys(who, "t@t.example") | settings | {"PATH": path}

    def do(*words, check=True):
        return subprocess.run(words, cwd=place, check=check, env=env, capture_output=True, text=True)

    (place / SCRIPT).parent.mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, place / SCRIPT)
    shutil.copytree(submissions / "2026-11-28_bm25", place / PLACE / "2026-11-28_bm25")
    (place / "README.md").write_text("main\n")
    do("git", "init", "-q", "-b", "main")
    do("git", "add", ".")
    do("git", "commit", "-qm", "main")

    def run(change=None):
        do("git", "checkout", "-q", "-B", "pull", "main")
        shutil.copytree(submissions / "2026-11-28_naive", place / NEW)
        if change is not None:
            change(place)
        do("git", "add", "-A", ".")
        do("git", "commit", "-qm", "pull")
        do("git", "checkout", "-q", "-f", "main")
        done = do("bash", SCRIPT, "pull", check=False)
        assert do("git", "status", "--porcelain").stdout == ""  # main is as it was
        return done

    return run


def test_a_pull_request_with_a_good_submission(check):
    done = check()
    assert (done.returncode, done.stdout) == (0, "2026-11-28_naive: accepted\n"), done.stderr


def write(path, text="{}"):
    def change(place):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)

    return change


def link(path, to):
    def change(place):
        shutil.rmtree(place / path) if (place / path).is_dir() else (place / path).unlink()
        (place / path).symlink_to(to)

    return change


CHANGES = {
    "another file": write("README.md", "mine\n"),
    "a changed submission": write(f"{PLACE}/2026-11-28_bm25/submission.json"),
    "a third file": write(f"{NEW}/.gitattributes"),
    "a terminal's codes": write(f"{PLACE}/2026-11-28_x\x1b[2J/submission.json"),
    "a program": lambda place: (place / NEW / "submission.json").chmod(0o755),
    "a link in place of a file": link(f"{NEW}/submission.json", "/etc/passwd"),
    "a link in place of a submission": link(NEW, "/etc"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_no_new_submission_is_refused(name, check):
    """A link with the right content would pass every other check, and break `git clone` of main."""
    done = check(CHANGES[name])
    assert done.returncode == 1 and "adds folders of two plain files to" in done.stdout
    assert "root:" not in done.stdout and "\x1b" not in done.stdout


def test_a_folder_that_came_to_the_board_meanwhile_is_refused(check, tmp_path):
    def change(place):
        shutil.copytree(place / NEW, tmp_path / "there")

    check(change)
    shutil.copytree(tmp_path / "there", tmp_path / "main" / NEW)
    done = subprocess.run(
        ["bash", SCRIPT, "pull"], cwd=tmp_path / "main", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "is on the board already" in done.stdout


def test_code_of_the_pull_request_is_not_run(check, tmp_path):
    """Its own validator, hooks and attributes come along, and none of them has a say."""

    def change(place):
        write(SCRIPT, f"touch {tmp_path}/pwned\n")(place)
        write("rwbench/__init__.py", f"open('{tmp_path}/pwned', 'w')\n")(place)
        write(".gitattributes", "* filter=evil\n")(place)

    assert check(change).returncode == 1
    assert not (tmp_path / "pwned").exists()


def test_the_workflow_runs_main_s_code_with_no_rights():
    text = WORKFLOW.read_text()
    workflow = yaml.safe_load(text)
    # YAML reads the key `on` as true.
    assert set(workflow[True]) == {"pull_request_target"}
    assert workflow["permissions"] == {"contents": "read"} and "secrets." not in text
    (job,) = workflow["jobs"].values()
    steps = job["steps"]
    assert "permissions" not in job and not any("uses" in step for step in steps)
    # Nothing that a stranger may choose is pasted into a script.
    assert not any("${{" in step["run"] for step in steps)
    base = {"github.server_url", "github.repository", "github.event.pull_request.base.sha"}
    assert set(re.findall(r"\$\{\{ (.*?) \}\}", text)) <= base | {"github.event.pull_request.number"}
    assert SCRIPT in steps[-1]["run"]
    assert not any(re.search("checkout.*pull/head", step["run"]) for step in steps)
