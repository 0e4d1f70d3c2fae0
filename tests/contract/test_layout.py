"""The repository's own rules: layout, who may import whom, what an import may cost."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rwbench.cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "ruleworld_data": ROOT / "ruleworld-data/src/ruleworld_data",
    "dynarule": ROOT / "dynarule/src/dynarule",
    "rwbench": ROOT / "benchmarks/src/rwbench",
}
BARRED = {
    "ruleworld_data": {"dynarule", "rwbench", "torch", "transformers", "sentence_transformers"},
    "dynarule": {"ruleworld_data", "rwbench"},
    "rwbench": set(),
}
UNSAFE = {"pickle", "dill", "cloudpickle", "joblib"}
HEAVY = ("numpy", "pyarrow", "datasets", "evaluate", "torch", "peft", "transformers", "matplotlib", "clingo")
COMMANDS = {"ruleworld": "ruleworld_data.cli", "rwbench": "rwbench.cli.app", "dynarule": "dynarule.cli.app"}
FOLDERS = "ruleworld-data dynarule benchmarks tests"
FILES = "pyproject.toml README.md Makefile LICENSE CHANGELOG.md CITATION.cff CONTRIBUTING.md constraints.txt"
MAX_LINES = 400


def test_top_level_holds_what_the_design_names_and_nothing_else():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    top = {name.split("/")[0] for name in listed.stdout.split("\0") if name and name[0] != "."}
    assert top == {*FOLDERS.split(), *FILES.split()}


def test_the_demo_ends_with_what_to_type_for_a_pretrained_model():
    """A command that there is; what it lacks it says itself."""
    demo = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ndemo:")[1].split("\n\n")[0]
    typed = re.fullmatch(r'\t@echo ".*: \$\(BIN\)/rwbench (models add smollm2)"', demo.splitlines()[-1])
    assert CliRunner().invoke(app, [*typed[1].split(), "--help"]).exit_code == 0


def test_names_of_lazy_packages_are_seen_by_type_checkers():
    for path in PACKAGES["ruleworld_data"].glob("*/__init__.py"):
        text = path.read_text(encoding="utf-8")
        if "= attach(" in text:
            lazy = re.findall(r'\b(\w+)=["(]', text.split("= attach(")[1].split("\n)\n")[0])
            assert sorted(lazy) == sorted(re.findall(r"^    from \.(\w+) import \*$", text, flags=re.M)), path


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_short_safe_and_import_what_they_may(package):
    """Submissions and builds are data: nothing of ours unpickles or evaluates, also inside functions."""
    paths = sorted(PACKAGES[package].rglob("*.py"))
    assert len(paths) > 10
    for path in paths:
        text = path.read_text(encoding="utf-8")
        imported, called = set(), set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
        assert not imported & (BARRED[package] | UNSAFE) and not called & {"eval", "exec"}, path
        assert len(text.splitlines()) <= MAX_LINES, path


def test_no_checkpoint_of_ours_is_a_pickle():
    """Those of the lab and of finders are safetensors; torch's own format is a pickle, whatever reads it."""
    folders = ("ruleworld-data/src", "dynarule/src", "benchmarks/src", "benchmarks/lab")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 200
    assert [path for path in paths if re.search(r"torch\.(load|save)\(", path.read_text("utf-8"))] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command):
    """Nor does the package itself, which its command imports."""
    code = (
        f"import sys\nsys.argv = [{command!r}, '--help']\nfrom {COMMANDS[command]} import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Usage" in out.stdout
    assert out.stderr.strip() == "[]"
