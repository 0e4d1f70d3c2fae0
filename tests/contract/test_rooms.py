"""The repository's own rules: layout, what is public, who may import whom, what an import may cost."""

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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


def name_of(path: Path, package: str) -> str:
    parts = path.relative_to(PACKAGES[package].parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    name_of(path, package): (path, ast.parse(path.read_text(encoding="utf-8")))
    for package, folder in PACKAGES.items()
    for path in sorted(folder.rglob("*.py"))
}


def imports(module: str, at_once: bool = False):
    """Each `from` import of a module but those for type checkers: line, the module named, without dots, and names.

    At once: those that run when the module is imported.
    """
    path, tree = TREES[module]
    base = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ImportFrom):
            above = base[: len(base) - node.level + 1] if node.level else []
            named = ".".join([*above, *([node.module] if node.module else [])])
            yield node.lineno, named, [alias.name for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
        elif not (at_once and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            todo += ast.iter_child_nodes(node)


def test_top_level_holds_what_the_design_names_and_nothing_else():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    top = {name.split("/")[0] for name in listed.stdout.split("\0") if name and name[0] != "."}
    assert top == {*FOLDERS.split(), *FILES.split()}


def test_names_of_lazy_packages_are_seen_by_type_checkers():
    for path in PACKAGES["ruleworld_data"].glob("*/__init__.py"):
        text = path.read_text(encoding="utf-8")
        if "= attach(" in text:
            lazy = re.findall(r'\b(\w+)=["(]', text.split("= attach(")[1].split("\n)\n")[0])
            assert sorted(lazy) == sorted(re.findall(r"^    from \.(\w+) import \*$", text, flags=re.M)), path


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_say_what_they_hold_and_types_travel_with_the_package(package):
    assert (PACKAGES[package] / "py.typed").is_file()
    for module, (path, tree) in TREES.items():
        if path.name == "__init__.py" and path.is_relative_to(PACKAGES[package]):
            assert ast.get_docstring(tree), f"{module} does not say what it holds"


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_short_safe_and_import_what_they_may(package):
    """Submissions and builds are data: nothing of ours unpickles or evaluates, also inside functions."""
    own = {module: found for module, found in TREES.items() if module.split(".")[0] == package}
    assert len(own) > 10
    for module, (path, tree) in own.items():
        imported, called = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
        assert not imported & (BARRED[package] | UNSAFE) and not called & {"eval", "exec"}, module
        assert path.read_bytes().count(b"\n") <= MAX_LINES, module


def test_no_import_circles():
    graph = defaultdict(set)
    for module in TREES:
        for _, source, names in imports(module, at_once=True):
            named = (f"{source}.{name}" if f"{source}.{name}" in TREES else source for name in names)
            graph[module] |= {found for found in named if found in TREES and found != module}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_only_commands_import_commands():
    for module in TREES:
        if not {"cli", "__main__"} & {*module.split(".")}:
            for line, source, _ in imports(module):
                assert "cli" not in source.split("."), f"{module}:{line} imports {source}"


def test_scores_runs_and_reports_stand_on_each_other_in_one_direction():
    order = ["score", "run", "report", "leaderboard"]
    for module in TREES:
        room = module.removeprefix("rwbench.").split(".")[0]
        if room in order:
            above = {f"rwbench.{name}" for name in order[order.index(room) + 1 :]}
            for line, source, _ in imports(module):
                assert ".".join(source.split(".")[:2]) not in above, f"{module}:{line} imports {source}"


def test_no_two_classes_of_one_name():
    homes = defaultdict(list)
    for module, (_, tree) in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_rwbench_uses_public_names_of_the_packages_only():
    """From a package or one of its rooms, and in its `__all__`."""
    found = 0
    for module, (_, tree) in TREES.items():
        if not module.startswith("rwbench"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                inside = [
                    one.name for one in node.names if one.name.split(".")[0] in PACKAGES.keys() - {"rwbench"}
                ]
                assert not inside, f"{module}: import {inside}; name what you use with `from ... import`"
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                source = node.module
                if source.split(".")[0] not in ("dynarule", "ruleworld_data"):
                    continue
                assert source.count(".") <= 1, f"{module} reaches into {source}"
                public = importlib.import_module(source).__all__
                names = {alias.name for alias in node.names}
                assert names <= set(public), f"{module}: {names - set(public)} not in {source}.__all__"
                found += len(names)
    assert found > 30


@pytest.mark.parametrize("package", ["ruleworld_data", "dynarule"])
def test_public_names_exist_and_are_listed(package):
    rooms = [package] + [
        module
        for module in TREES
        if module.startswith(f"{package}.") and module.count(".") == 1 and not module.endswith("__main__")
    ]
    for room in rooms:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", ()):
            assert getattr(module, name) is not None and name in dir(module), f"{room}.{name}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_its_version(command):
    done = subprocess.run(
        [Path(sys.executable).with_name(command), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        command,
        importlib.import_module(COMMANDS[command].split(".")[0]).__version__,
    ]


def test_no_model_or_tokenizer_runs_code_of_its_folder():
    """PEFT reads safetensors and JSON, and has no such switch."""
    calls = [
        (module, node)
        for module, (_, tree) in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in ("from_pretrained", "SentenceTransformer")
        and not any(name in ast.unparse(node.func) for name in ("Peft", "DynaRuleConfig", "super()"))
    ]
    assert calls
    for module, node in calls:
        given = {word.arg: word.value for word in node.keywords}.get("trust_remote_code")
        assert isinstance(given, ast.Constant) and given.value is False, f"{module}:{node.lineno}"


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
