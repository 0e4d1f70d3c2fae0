"""What the pages of benchmarks/ say to do, done; and their tables, as the commands print them."""

import importlib
import json
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
from rwbench.methods import Method
from rwbench.recipes import recipes
from rwbench.retrievers import Retriever
from rwbench.score.errors import ERROR_CLASSES
from rwbench.score.results import find_results
from rwbench.score.samples import read_samples

from ..command import rwbench

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "benchmarks/docs"
REPORTS = (DOCS / "reports.md").read_text(encoding="utf-8")
FILES = (ROOT / "README.md", *ROOT.glob("*/README.md"), *DOCS.glob("*.md"))
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in FILES)
FAMILIES = {"retrievers": Retriever.registry, "methods": Method.registry, "recipes": recipes}


@pytest.fixture
def dropped_in(tmp_path):
    """The files of extending.md lie in folders that are part of the packages, as if they had been added there."""
    text = (DOCS / "extending.md").read_text()
    blocks = re.findall(r"^```python (\w+)/(\w+)\.py\n(.*?)^```", text, flags=re.M | re.S)
    assert {family for family, _, _ in blocks} == set(FAMILIES)
    for family, name, code in blocks:
        folder = tmp_path / family
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(code)
        importlib.import_module(f"rwbench.{family}").__path__.append(str(folder))
    yield
    for family, name, _ in blocks:
        importlib.import_module(f"rwbench.{family}").__path__.remove(str(tmp_path / family))
        sys.modules.pop(f"rwbench.{family}.{name}", None)
        FAMILIES[family].remove(name)


def test_a_retriever_a_method_and_a_recipe_are_one_file_each(dropped_in, tmp_path):
    words = ["run", "mine", "--scale", "tiny", "--limit", "3", "--out", str(tmp_path / "runs"), "--json"]
    result = rwbench(*words, code=0)
    echo, overlap = json.loads(result.stdout)["runs"]
    assert echo["spec"]["method"] == {"name": "echo", "word": "12"}
    assert set(echo["metrics"]) == {"exact_match", "strict_match"}
    assert overlap["spec"]["method"]["retriever"] == {"name": "overlap"}
    assert overlap["metrics"]["recall@10"]["macro"]["value"] > 0.3
    assert "mine" in json.loads(rwbench("list", "--json").stdout)["recipes"]


def test_the_method_that_asks_a_model_runs_on_one(dropped_in, serve, tmp_path):
    server = serve(
        lambda prompt, nth: "\\boxed{2}" if "A first answer was: \\boxed{1}" in prompt else "\\boxed{1}"
    )
    words = ["run", "mine", "--scale", "tiny", "--limit", "1", "--out", str(tmp_path / "runs"), "--json"]
    result = rwbench(*words, "--model", "m", "--endpoint", server.url, code=0)
    run = next(r for r in json.loads(result.stdout)["runs"] if r["spec"]["method"]["name"] == "twice")
    samples = read_samples(tmp_path / "runs" / run["run_id"] / "samples.jsonl")
    assert {(s["output"], s["usage"]["calls"], s["outcome"]) for s in samples} == {("\\boxed{2}", 2, "ok")}


def test_what_the_page_says_about_models_is_so(serve, save_model, workspace, tmp_path, monkeypatch):
    """Its commands on a random model and a server of this test, and its prompt template."""
    monkeypatch.chdir(tmp_path)
    words = [str(text) for text in workspace.rules("mini").table["nl"].to_pylist()[:500]]
    # Small: prompts of a hundred rules and more do not fit, which stops nothing. A random model does not end its
    # answers by itself, so every second token does.
    save_model(tmp_path / "my-model", positions=1_200, words=words)
    config = tmp_path / "my-model" / "base" / "generation_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": list(range(0, 300, 2))}))
    blocks = re.findall(r"^```(sh|toml)\n(.*?)^```", (DOCS / "running.md").read_text(), flags=re.M | re.S)
    (template,) = (body for language, body in blocks if language == "toml")
    (tmp_path / "my-model" / "base" / "prompt.toml").write_text(template)
    server = serve(lambda prompt, nth: "\\boxed{1}")
    lines = [line for language, body in blocks if language == "sh" for line in body.splitlines()]
    commands = [line for line in lines if "my-model" in line]
    assert len(commands) == 3
    results = []
    for line in commands:
        words = shlex.split(line.replace("http://localhost:8000/v1", server.url))[1:]
        results.append(rwbench(*words))
        assert results[-1].exit_code == 0, results[-1].output
    assert "The first prompt:" in results[0].stdout and "not run here: DynaRule" in results[0].stderr
    samples = [s for path in (tmp_path / "runs").glob("*/samples.jsonl") for s in read_samples(path)]
    assert {s["error"] for s in samples} == {None}
    assert {"ok", "context_exceeded"} < {s["outcome"] for s in samples}
    looked = json.loads(rwbench(*shlex.split(commands[1])[1:], "--dry-run", "--json").stdout)["runs"]
    asked = {run["folder"]: read_samples(Path(run["folder"]) / "samples.jsonl") for run in looked}
    too_long = {folder for folder, (first, *_) in asked.items() if first["outcome"] == "context_exceeded"}
    assert too_long == {run["folder"] for run in looked if run["excess_tokens"]} not in (set(), {*asked})


def test_the_pages_name_every_recipe():
    text = "".join((DOCS / page).read_text() for page in ("paper.md", "running.md"))
    named = re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(recipes.items())


@pytest.mark.slow
def test_the_table_is_what_the_recipe_gives(tmp_path):
    """At paper scale, so slow; rows that need the encoder are compared where it is installed."""
    result = rwbench("run", "smoke", "--out", tmp_path, "--json", code=0)
    skipped = [note.split(" (needs")[0] for note in json.loads(result.stdout)["skipped"]]
    table = rwbench("report", tmp_path, "--markdown").stdout
    page = (ROOT / "benchmarks/README.md").read_text()
    shown = re.search(r"<!-- table: .*?-->\n(.*?)<!-- end -->", page, flags=re.S)[1]
    for line in table.strip().splitlines():
        assert line in shown, line
    assert len(shown.strip().splitlines()) == len(table.strip().splitlines()) + len(skipped)


def test_tables_of_committed_results_are_what_the_command_prints(monkeypatch):
    pattern = r"<!-- table: rwbench (report benchmarks/results/\w+ [^>]+) -->\n(.*?)<!-- end -->"
    monkeypatch.setattr("rwbench.cli.report.checked_results", cache(find_results))
    found = [
        (page, *match)
        for page in PAGES
        for match in re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    ]
    assert len(found) >= 3
    printed = {}
    for page, command, table in found:
        if command not in printed:
            _, folder, *rest = shlex.split(command)
            printed[command] = rwbench("report", ROOT / folder, *rest)
        done = printed[command]
        assert done.exit_code == 0 and done.stdout.strip() == table.strip(), (page, command)


def test_the_commands_of_reports_run(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, (*ids, _solver) = shutil.copytree(finished[0], tmp_path / "runs"), finished[1]
    lines = [
        line.split("  #")[0] for line in re.search(r"```sh\n(.*?)```", REPORTS, flags=re.S)[1].splitlines()
    ]
    assert [line.split()[1] for line in lines] == ["report"] * 4 + ["compare"]
    for line in lines:
        words = shlex.split(line)
        for run_id in ids:
            if "RUN" in words:
                words[words.index("RUN")] = f"runs/{run_id}"
        rwbench(*words[1:], code=0)
    assert (out / "report.html").is_file()


def test_the_classes_of_errors_are_the_code_s():
    named = set(re.findall(r"^\| (.*?) \|", REPORTS, flags=re.M))
    assert {name for cell in named for name in re.findall(r"`(\w+)`", cell)} == set(ERROR_CLASSES) - {
        "correct"
    }
