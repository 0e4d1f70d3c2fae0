"""What a public forge runs on a pull request: on a repository of this test, main's code on the pull request's data."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rwbench.leaderboard.files import SUBMISSIONS as PLACE
from rwbench.leaderboard.files import added_submissions
from rwbench.leaderboard.parsing import Refused

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github/workflows/submissions.yml"
SCRIPT = "benchmarks/leaderboard/check_pull_request.sh"
NEW = f"{PLACE}/2026-01-31_naive"
GOOD = f"{PLACE}/2026-01-31_y/submission.json"


def raw(*paths, mode="100644"):
    """Paths as `git diff --raw -z` gives them."""
    return "".join(f":000000 {mode} 0000000 1234567 A\0{path}\0" for path in paths).encode()


@pytest.fixture
def repository(submissions, tmp_path):
    """Main with one submission; a branch that adds another."""
    place = tmp_path / "main"

    def git(*words):
        who = {
            f"GIT_{role}_{part}": "t@t.example"
            for role in ("AUTHOR", "COMMITTER")
            for part in ("NAME", "EMAIL")
        }
        environment = os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", "-C", place, *words], check=True, env=environment, capture_output=True)

    (place / SCRIPT).parent.mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, place / SCRIPT)
    shutil.copytree(submissions / "2026-01-31_bm25", place / PLACE / "2026-01-31_bm25")
    (place / "README.md").write_text("main\n")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "main")
    git("checkout", "-qb", "pull")

    def commit(change):
        change(place)
        git("add", "-A", ".")
        git("commit", "-qm", "pull")
        git("checkout", "-q", "main")
        return place

    def add(where=None):
        shutil.copytree(submissions / "2026-01-31_naive", place / (where or NEW))

    return commit, add


def check(place):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", SCRIPT, "pull"], cwd=place, env=environment, capture_output=True, text=True, timeout=120
    )
    state = subprocess.run(
        ["git", "-C", place, "status", "--porcelain"], capture_output=True, text=True
    ).stdout
    assert state == ""  # main is as it was
    return done


def test_a_pull_request_with_a_good_submission(repository):
    commit, add = repository
    done = check(commit(lambda place: add()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "2026-01-31_naive: accepted\n"


def test_code_of_the_pull_request_is_not_run(repository, tmp_path):
    """Its own validator, hooks and attributes come along, and none of them has a say."""
    commit, add = repository

    def change(place):
        add()
        (place / SCRIPT).write_text(f"touch {tmp_path}/pwned\n")
        (place / "rwbench").mkdir()
        (place / "rwbench/__init__.py").write_text(f"open('{tmp_path}/pwned', 'w')\n")
        (place / ".gitattributes").write_text("* filter=evil\n")

    done = check(commit(change))
    assert done.returncode == 1
    assert "adds folders to" in done.stdout
    assert not (tmp_path / "pwned").exists()


def test_a_changed_submission_is_refused(repository):
    commit, _ = repository
    done = check(commit(lambda place: (place / PLACE / "2026-01-31_bm25/submission.json").write_text("{}")))
    assert done.returncode == 1
    assert "is on the board already" in done.stdout


def test_a_link_in_place_of_a_file_is_refused(repository):
    commit, add = repository

    def change(place):
        add()
        (place / NEW / "submission.json").unlink()
        (place / NEW / "submission.json").symlink_to("/etc/passwd")

    done = check(commit(change))
    assert done.returncode == 1
    assert "submission.json" in done.stdout
    assert "root:" not in done.stdout


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        f"{PLACE}/2026-01-31_x/../../../x",
        f"{PLACE}/submission.json",
        f"{PLACE}/2026-01-31_x/deep/submission.json",
        f"{PLACE}/2026-01-31_x/.gitattributes",
        f"{PLACE}/2026-01-31_x/submission.json\n",
        f"{PLACE}/2026-01-31_x\x1b[2J/submission.json",
        f"{PLACE}/2026-01-31_X/submission.json",
        f"{PLACE}/2026-01-31_x\n/submission.json",
        f"{PLACE}/2026-01-31_x/Submission.json",
        f"{PLACE}/2026-01-31_\u0445/submission.json",
        f"{PLACE}/../submissions/submission.json",
        ".gitmodules",
        ".github/workflows/submissions.yml",
    ],
)
def test_paths_that_are_no_submission(path, tmp_path):
    (tmp_path / PLACE).mkdir(parents=True)
    assert added_submissions(raw(GOOD), tmp_path) == [tmp_path / PLACE / "2026-01-31_y"]
    with pytest.raises(Refused, match="and nothing else"):
        added_submissions(raw(GOOD, path), tmp_path)


@pytest.mark.parametrize("mode", ["120000", "100755", "160000", "040000", "000000"])
def test_files_that_are_not_plain(mode, tmp_path):
    """A link with the right content would pass every other check, and break `git clone` of main."""
    (tmp_path / PLACE).mkdir(parents=True)
    with pytest.raises(Refused, match=f"is not a plain file, got mode {mode}"):
        added_submissions(raw(GOOD, mode=mode), tmp_path)


def test_the_workflow_runs_main_s_code_with_no_rights():
    workflow = yaml.safe_load(WORKFLOW.read_text())
    # YAML reads the key `on` as true.
    assert set(workflow[True]) == {"pull_request_target"}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert "permissions" not in job
    steps = job["steps"]
    assert not any("uses" in step for step in steps)
    assert "secrets." not in WORKFLOW.read_text()
    # Nothing that a stranger may choose is pasted into a script.
    assert not any("${{" in step["run"] for step in steps)
    used = set(re.findall(r"\$\{\{ (.*?) \}\}", WORKFLOW.read_text()))
    assert used <= {
        "github.server_url",
        "github.repository",
        "github.event.pull_request.number",
        "github.event.pull_request.base.sha",
    }
    assert SCRIPT in steps[-1]["run"]
    assert not any(
        "checkout" in step["run"] and "pull/head" in step["run"].split("checkout")[1].split("\n")[0]
        for step in steps
    )
