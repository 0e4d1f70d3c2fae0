"""Every command and every Python block of the documentation runs as it is written.

They run in this process, in an empty folder for each page; the slow tests run the pages' own install lines in fresh
environments, and the commands and blocks there as a user does.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
import yaml
from ruleworld_data import __version__
from ruleworld_data.generate import table
from ruleworld_data.spec import SCALES, SUBTASKS, WorldSpec
from transformers import AutoModelForCausalLM, Qwen2Config
from typer.testing import CliRunner

from dynarule import RuleAdapter, dynarule_config

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/README.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/docs/*.md")),
)

# Run by tests of their own, or only described here: with what stands for each.
ELSEWHERE = {
    "make demo": "tests/benchmarks: the demo recipe",
    "make test": "this run",
    "git clone": "the checkout this test runs in",
    "cd ": "likewise",
}
# Blocks marked `sh` need something that stands in for a model, a server or finished runs: the tests that run them.
WITH_STAND_INS = {
    "README.md": "tests/benchmarks/models/test_added_models.py",
    "benchmarks/docs/reports.md": "tests/benchmarks/docs/test_extending.py",
    "benchmarks/docs/running.md": "tests/benchmarks/docs/test_extending.py",
    "dynarule/docs/rule-books.md": "tests/benchmarks/run/test_books.py",
    "dynarule/docs/serving.md": "tests/contract/test_serving.py",
    "ruleworld-data/docs/plugins.md": "tests/data/plugins/test_plugin_environments.py",
}
# What they read is the same on every page, and no later command reads what they leave: one page runs them for all.
ONCE = ("rwbench run smoke ", "ruleworld verify data")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.M | re.S)


def commands(page: str) -> list[str]:
    """The commands of a page's shell blocks, continued lines joined, comments dropped."""
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [
        line.split("  #")[0].strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
    ]


@pytest.fixture(scope="module")
def ran():
    """The commands of `ONCE` that a page has run."""
    return set()


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    """What a command encodes, the next page's finds."""
    return tmp_path_factory.mktemp("cache")


class Hashed:
    """Stands in for MiniLM in runs of rwbench: a vector of each text's hash; 8,000 rules cost half a minute otherwise.

    The slow tests below run the same commands with the encoder, and tests of dense retrieval are of the encoder.
    """

    def __init__(self, encoder):
        assert encoder == "minilm"

    def encode_query(self, texts, **_):
        draws = [np.random.default_rng(crc32(text.encode())).standard_normal(32) for text in texts]
        return np.array([draw / np.linalg.norm(draw) for draw in draws], dtype=np.float32)

    encode_document = encode_query


@pytest.fixture
def quick_encoder(monkeypatch):
    from rwbench.retrievers import dense

    dense.embeddings.cache_clear()  # it holds what the process has encoded
    monkeypatch.setattr(dense, "_model", Hashed)
    yield
    dense.embeddings.cache_clear()


TRAINING = "dynarule/docs/training.md"
"""Its example trains for a minute and a half: as it is written among the slow tests, for two steps among the others."""


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_run(page, tmp_path, embeddings, ran, quick_encoder, monkeypatch):
    lines = [line for line in commands(page) if line not in ran]
    ran.update(line for line in lines if line.startswith(ONCE))
    if page == TRAINING:
        lines = [re.sub(r"max_steps=\d+", "max_steps=2", line) for line in lines]
        assert "max_steps=2" in " ".join(lines)
    run_here(lines, page, tmp_path, embeddings, monkeypatch)


@pytest.mark.slow
def test_the_example_trains_to_what_the_page_says(tmp_path, embeddings, monkeypatch):
    """The page's table is that of the card which its commands wrote, but for another torch's rounding."""
    run_here(commands(TRAINING), TRAINING, tmp_path, embeddings, monkeypatch)
    card = (tmp_path / "depot/stage2/README.md").read_text()
    measured = dict(re.findall(r"^\| (\d+) \| ([\d.]+) \|.*\|.*\|$", card, flags=re.M))
    rows = re.findall(r"^\| (?:step|Recall@1) \|.*$", text_of(TRAINING), flags=re.M)
    steps, recalls = (re.findall(r"(?<![@\w])[\d.]+", row) for row in rows)
    assert len(steps) >= 6
    for step, recall in zip(steps, recalls, strict=True):
        assert abs(float(measured[step]) - float(recall)) < 0.1, (step, measured)


QWEN = {
    "0.5B": (896, 24, 14, 2, 4864, 151936, True),
    "3B": (2048, 36, 16, 2, 11008, 151936, True),
    "7B": (3584, 28, 28, 4, 18944, 152064, False),
}
"""Width, layers, heads, their groups, width within, vocabulary, and whether it is tied, of Qwen2.5."""


@pytest.mark.parametrize("name", QWEN)
def test_what_a_training_costs_is_computed_from_the_shapes_of_the_models(name):
    names = (
        "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size"
    )
    *shape, tied = QWEN[name]
    config = Qwen2Config(**dict(zip(names.split(), shape, strict=True)), tie_word_embeddings=tied)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        frozen = sum(parameter.numel() for parameter in model.parameters())
        trained = sum(part.numel() for part in RuleAdapter(model, dynarule_config(384)).parameters())
    (row,) = re.findall(rf"^\| {name} \|(.*)\|$", text_of(TRAINING), flags=re.M)
    says = [float(re.sub("[, GB]", "", cell)) for cell in row.split("|")]
    a_second = 300e12 / (4 * frozen) / 200
    expected = [2 * frozen / 1e9, 16 * trained / 1e9, *(seconds * a_second for seconds in (600, 3600, 28800))]
    assert says == pytest.approx(expected, rel=0.06)


def run_here(lines, page, tmp_path, embeddings, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in {"RWBENCH_CACHE": str(embeddings), "COLUMNS": "160"}.items():
        monkeypatch.setenv(name, value)
    for line in lines:
        if line.startswith(tuple(ELSEWHERE)):
            continue
        if line.startswith("pip install"):
            check_install_line(line)
            continue
        words = shlex.split(line)
        assert (BIN / words[0]).exists(), f"{page} names a command that is not ours: {line}"
        done = call(words)
        assert done.exit_code == 0 and "Traceback" not in done.output, (
            f"{line}\n{done.output}\n{done.exception}"
        )


def call(words: list[str]):
    """Run a command of ours in this process."""
    import dynarule.cli.app
    import ruleworld_data.cli
    import rwbench.cli.app

    apps = {"ruleworld": ruleworld_data.cli, "dynarule": dynarule.cli.app, "rwbench": rwbench.cli.app}
    return CliRunner().invoke(apps[words[0]].app, words[1:], input="")


def check_install_line(line: str) -> None:
    """What the line installs are folders of a clone, with extras that they have, and all that they need beside them."""
    needs, ours = {}, {"ruleworld-data", "dynarule", "rwbench"}
    for word in shlex.split(line)[2:]:
        if word.startswith("-"):
            continue
        name, _, extras = word.rstrip("]").partition("[")
        assert name.startswith("./"), f"{line}: no package of ours is on an index; install it from the clone"
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]
        known = project.get("optional-dependencies", {})
        chosen = list(filter(None, extras.split(",")))
        assert set(chosen) <= set(known), line
        listed = project["dependencies"] + [need for extra in chosen for need in known[extra]]
        needs[project["name"]] = {re.split(r"[\[<>=!~ ;]", need)[0] for need in listed}
    missing = set().union(*needs.values()) & ours - needs.keys()
    assert not missing, f"{line}: {missing} is needed and on no index"


SHOWN = re.compile(r"^```bash\n(ruleworld show [^\n]*)\n```\n\n((?:> [^\n]*\n)+)", flags=re.M)


@pytest.mark.parametrize("page", [page for page in PAGES if SHOWN.search(text_of(page))])
def test_questions_shown_are_those_that_the_command_prints(page):
    """Written anew, when the data is meant to change, by RULEWORLD_UPDATE_GOLDEN=1 and this test."""

    def question(shown: re.Match) -> str:
        printed = json.loads(call([*shlex.split(shown[1]), "--json"]).output)
        quote = textwrap.fill(printed["rows"][0]["question"], 118)
        return shown[0].removesuffix(shown[2]) + textwrap.indent(quote, "> ") + "\n"

    check_golden(page, SHOWN.sub(question, text_of(page)))


def test_the_readme_shows_what_the_command_prints():
    """The block ends in a line of three dots; the same switch writes it anew."""
    page = "ruleworld-data/README.md"
    pattern = r"^```text\n\$ (ruleworld show .*?)\n\n(.*?)\n\.\.\.\n```"
    shown = re.search(pattern, text_of(page), flags=re.M | re.S)
    lines = call(shlex.split(shown[1])).output.splitlines()[: len(shown[2].splitlines())]
    check_golden(page, text_of(page).replace(shown[2], "\n".join(lines)))


def check_golden(page: str, printed: str) -> None:
    if os.environ.get("RULEWORLD_UPDATE_GOLDEN"):
        (ROOT / page).write_text(printed, encoding="utf-8")
    assert printed == text_of(page)


def test_commands_that_need_a_stand_in_have_a_test_of_their_own():
    assert {page for page in PAGES if blocks(page, "sh")} == set(WITH_STAND_INS)
    for page, test in WITH_STAND_INS.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not read {page}"


def run(words: list, folder: Path, **env: str) -> None:
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "COLUMNS": "160"} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, (
        f"{shlex.join(map(str, words))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(line.startswith("pip install") for line in commands(page))]
)
def test_install_lines_make_an_environment_in_which_the_page_runs(page, tmp_path, monkeypatch):
    """A fresh virtual environment, the page's own install lines, then its commands and its Python."""
    bin, place = tmp_path / "env/bin", tmp_path / "place"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    place.mkdir()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    env = {"PATH": f"{bin}{os.pathsep}/usr/bin:/bin", "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    # The CPU build, as the pages say for a machine without a GPU.
    (torch,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), flags=re.M)
    run([bin / "python", "-m", "pip", "install", "--quiet", torch], ROOT, **env)
    for line in commands(page):
        if line.startswith("pip install"):
            run([bin / "python", "-m", *shlex.split(line)], ROOT, **env)
        elif not line.startswith(tuple(ELSEWHERE)):
            run([bin / shlex.split(line)[0], *shlex.split(line)[1:]], place, **env)
    for block in blocks(page, "python"):
        run([bin / "python", "-c", block], place, **env)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_of_the_page_run(page, tmp_path, monkeypatch):
    """Each as a script with names of its own, which shows an error's line by the block's number."""
    monkeypatch.chdir(tmp_path)
    for i, block in enumerate(blocks(page, "python")):
        script = tmp_path / f"block{i}.py"
        script.write_text(block, encoding="utf-8")
        runpy.run_path(str(script), run_name="__main__")


def test_prose_is_of_short_lines_and_the_front_page_of_two_screens():
    assert len(text_of("README.md").splitlines()) <= 110
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for page in pages.stdout.split():
        prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S)
        assert [line for line in prose.splitlines() if len(line) > 120 and line[0] != "|"] == [], page


def test_the_first_question_of_the_front_page_is_the_first_of_the_test_split():
    (row,) = table("single_rule", WorldSpec(split="test")).slice(0, 1).to_pylist()
    shown = " ".join(text_of("README.md").replace("\n> ", " ").split())
    assert row["question"] in shown and row["answers"] == ["18"]


def test_links_and_names_of_files_lead_somewhere():
    """`src/...` is of the page's package, other folders are the repository's."""
    named = r"`((?:src|tests|benchmarks|dynarule|ruleworld-data)/[\w./-]+)`"
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", text_of(page)):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
        for name in re.findall(named, text_of(page)):
            places = (ROOT / page.split("/")[0] / name, ROOT / name)
            assert any(place.exists() for place in places), f"{page} names {name}"


def test_the_data_card_counts_what_the_scales_hold():
    full, paper = SCALES["full"], SCALES["paper"]
    rules = full.sizes.rule_counts()
    kept = rules | paper.subset
    rows = [f"| {name} | {rules[name]:,} | {kept[name]:,} |" for name in rules]
    rows.append(f"| all | {full.rule_count():,} | {paper.rule_count():,} |")
    tests = paper.evaluation["test"]
    rows += [f"| {name} | {full.train[name]:,} | {paper.train[name]:,} | {tests} |" for name in SUBTASKS]
    totals = [sum(scale.train.values()) for scale in (full, paper)]
    rows.append(f"| all | {totals[0]:,} | {totals[1]:,} | {tests * len(SUBTASKS):,} |")
    card = text_of("ruleworld-data/docs/data-card.md")
    assert [row for row in card.splitlines() if re.search(r"\| [\d,]+ \|$", row)] == rows


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """`make docs`: strict, so a link to nowhere or a docstring that cannot be read fails."""
    config = ROOT / ".docs" / "mkdocs.yml"
    words = [BIN / "mkdocs", "build", "--quiet", "--config-file", config, "--site-dir", tmp_path / "site"]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    reference = (tmp_path / "site/reference/dynarule/bank.html").read_text(encoding="utf-8")
    assert "RuleBank" in reference


def test_the_citation_names_the_version_that_is_here():
    assert yaml.safe_load(text_of("CITATION.cff"))["version"] == __version__
    assert f"## {__version__}" in text_of("CHANGELOG.md")
