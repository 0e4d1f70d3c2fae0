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
MAY_IMPORT = {
    "ruleworld_data": {"ruleworld_data"},
    "dynarule": {"dynarule"},
    "rwbench": {"rwbench", "ruleworld_data", "dynarule"},
}
TOP_LEVEL = {
    "ruleworld-data",
    "dynarule",
    "benchmarks",
    "tests",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "constraints.txt",
}
MAX_LINES = 400


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [Path(name) for name in names.split("\0") if name]


def modules(package: str) -> list[Path]:
    return sorted(PACKAGES[package].rglob("*.py"))


def imported_names(path: Path) -> set[str]:
    """Top-level names a file imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_top_level_holds_what_the_design_names_and_nothing_else():
    found = {path.parts[0] for path in tracked()}
    assert {name for name in found if not name.startswith(".")} == TOP_LEVEL


def test_the_demo_ends_with_what_to_type_for_a_pretrained_model():
    """A command that there is; what it lacks it says itself."""
    demo = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ndemo:")[1].split("\n\n")[0]
    typed = re.fullmatch(r'\t@echo ".*: \$\(BIN\)/rwbench (models add smollm2)"', demo.splitlines()[-1])
    assert CliRunner().invoke(app, [*typed[1].split(), "--help"]).exit_code == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package):
    for path in modules(package):
        ours = imported_names(path) & set(PACKAGES)
        assert ours <= MAY_IMPORT[package], path


def test_ruleworld_data_never_imports_torch():
    for path in modules("ruleworld_data"):
        assert not imported_names(path) & {"torch", "transformers", "sentence_transformers"}, path


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_long(package):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(package)}
    assert lengths
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package):
    heavy = ("numpy", "pyarrow", "datasets", "evaluate", "torch", "transformers", "matplotlib", "clingo")
    code = f"import sys, {package}; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["ruleworld", "rwbench", "dynarule"])
def test_help_loads_nothing_heavy(command):
    module = {
        "ruleworld": "ruleworld_data.cli",
        "rwbench": "rwbench.cli.app",
        "dynarule": "dynarule.cli.app",
    }[command]
    heavy = ("numpy", "pyarrow", "datasets", "evaluate", "torch", "transformers", "matplotlib", "clingo")
    code = (
        f"import sys\nsys.argv = [{command!r}, '--help']\nfrom {module} import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Usage" in out.stdout
    assert out.stderr.strip() == "[]"


def test_no_pickle_and_no_eval_in_the_packages():
    """Submissions and builds are data: nothing of ours unpickles or evaluates."""
    for package in PACKAGES:
        for path in modules(package):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            called = {
                node.func.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert not called & {"eval", "exec"}, path
            assert not imported_names(path) & {"pickle", "dill", "cloudpickle", "joblib"}, path
