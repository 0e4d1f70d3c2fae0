"""Every command and every Python block of the documentation runs as it is written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
READMES = ("README.md", "ruleworld-data/README.md", "benchmarks/README.md", "dynarule/README.md")
PAGES = (*READMES, *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/docs/*.md")))

# Run by tests of their own, or only described here: with the test that stands for each.
ELSEWHERE = {
    "make demo": "tests/benchmarks: the main recipe",
    "make test": "this run",
    "git clone": "the checkout this test runs in",
    "cd ": "likewise",
}


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def commands(page: str) -> list[str]:
    """The commands of a page's shell blocks, continued lines joined, comments dropped."""
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [
        line.split("  #")[0].strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
    ]


def environment() -> dict[str, str]:
    return os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "160",
    }


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_run(page, tmp_path):
    for line in commands(page):
        if line.startswith(tuple(ELSEWHERE)):
            continue
        if line.startswith("pip install"):
            check_install_line(line)
            continue
        words = shlex.split(line)
        assert (BIN / words[0]).exists(), f"{page} names a command that is not ours: {line}"
        run(words, tmp_path)
    if page == "dynarule/README.md":
        check_recall_of_the_example(page, tmp_path / "depot" / "stage2" / "README.md")


def run(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


def check_recall_of_the_example(page: str, card: Path) -> None:
    """The page's table is that of the card which its commands wrote, but for another torch's rounding."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = [
        re.findall(r"[\d.]+", line) for line in re.findall(r"^\| (?:step|Recall@1) \|.*$", text, flags=re.M)
    ]
    said = dict(zip(rows[0], map(float, rows[1][-len(rows[0]) :]), strict=True))
    measured = {
        step: float(recall)
        for step, recall in re.findall(r"^\| (\d+) \| ([\d.]+) \|.*\|.*\|$", card.read_text(), flags=re.M)
    }
    assert len(said) >= 6 and said.keys() <= measured.keys()
    assert all(abs(measured[step] - recall) < 0.1 for step, recall in said.items()), (said, measured)


@pytest.mark.slow
def test_two_processes_are_started_as_the_page_says(tmp_path):
    """The command of the text, on the page's example: one adapter of two processes, not two of one."""
    page = (ROOT / "dynarule/README.md").read_text(encoding="utf-8")
    launcher = re.search(r"`(python -m torch\.distributed\.run [^`]*) train \.\.\.`", page)[1]
    run(["dynarule", "example", "depot"], tmp_path)
    train = (
        "train --model depot/model --rules depot/rules.txt --encoder layers:1 --questions depot/train.jsonl"
    )
    train += (
        " --out depot/stage1 --set max_steps=2 --set batch_size=4 --set accumulation=1 --set pool_size=36"
    )
    run([sys.executable, *shlex.split(launcher)[1:], *train.split(), "--device", "cpu"], tmp_path)
    card = (tmp_path / "depot/stage1/README.md").read_text(encoding="utf-8")
    assert "| processes | 2 |" in card and "| steps | 2, 16 questions in all |" in card


def check_install_line(line: str) -> None:
    """What the line installs is a project here, with the extras it names."""
    import tomllib

    projects = {}
    for folder in ("ruleworld-data", "dynarule", "benchmarks"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        projects[project["name"]] = set(project.get("optional-dependencies", {}))
    for word in shlex.split(line)[2:]:
        if word.startswith("-"):
            continue
        name, _, extras = word.rstrip("]").partition("[")
        assert name in projects, line
        assert set(filter(None, extras.split(","))) <= projects[name], line


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_of_the_page_run(page, tmp_path):
    for i, block in enumerate(blocks(page, "python")):
        script = tmp_path / f"block{i}.py"
        script.write_text(block, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{page}, block {i}\n{block}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_the_data_card_counts_what_the_scales_hold():
    from ruleworld_data.spec import SCALES, SUBTASKS

    full, paper = SCALES["full"], SCALES["paper"]
    rules = full.sizes.rule_counts()
    kept = rules | paper.subset
    rows = [f"| {name} | {rules[name]:,} | {kept[name]:,} |" for name in rules]
    rows.append(f"| all | {full.rule_count():,} | {paper.rule_count():,} |")
    tests = paper.evaluation["test"]
    rows += [f"| {name} | {full.train[name]:,} | {paper.train[name]:,} | {tests} |" for name in SUBTASKS]
    totals = [sum(scale.train.values()) for scale in (full, paper)]
    rows.append(f"| all | {totals[0]:,} | {totals[1]:,} | {tests * len(SUBTASKS):,} |")
    card = (ROOT / "ruleworld-data/docs/data-card.md").read_text(encoding="utf-8")
    assert [row for row in card.splitlines() if re.search(r"\| [\d,]+ \|$", row)] == rows


def test_the_headline_table_is_the_benchmark_table():
    """The slow test of the smoke recipe checks the benchmark's table against a run; this one must be the same."""
    tables = [
        re.search(
            r"<!-- table:.*?-->\n(.*?)<!-- end -->", (ROOT / page).read_text(encoding="utf-8"), flags=re.S
        )
        for page in ("README.md", "benchmarks/README.md")
    ]
    assert all(tables)
    assert tables[0].group(1).strip() == tables[1].group(1).strip() != ""
