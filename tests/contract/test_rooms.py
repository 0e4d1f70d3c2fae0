"""Rooms: what a folder holds, what is public, who imports whom."""

import ast
import importlib
import subprocess
import sys
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "ruleworld_data": ROOT / "ruleworld-data/src/ruleworld_data",
    "dynarule": ROOT / "dynarule/src/dynarule",
    "rwbench": ROOT / "benchmarks/src/rwbench",
}
COMMANDS = {"ruleworld": "ruleworld_data", "dynarule": "dynarule", "rwbench": "rwbench"}
MAX_MODULES = 15


def name_of(path: Path, package: str) -> str:
    parts = path.relative_to(PACKAGES[package].parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    name_of(path, package): (path, ast.parse(path.read_text(encoding="utf-8")))
    for package, folder in PACKAGES.items()
    for path in sorted(folder.rglob("*.py"))
}


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The module that a `from` import names, without dots in front."""
    if not node.level:
        return node.module or ""
    base = module.split(".")
    if TREES[module][0].name != "__init__.py":
        base = base[:-1]
    base = base[: len(base) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def at_import(tree: ast.Module):
    """The import statements that run when a module is imported."""
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_are_small_and_say_what_they_hold(package):
    sizes = Counter(path.parent for path in PACKAGES[package].rglob("*.py") if path.name != "__init__.py")
    assert {folder.name: n for folder, n in sizes.items() if n > MAX_MODULES} == {}
    for module, (path, tree) in TREES.items():
        if path.name == "__init__.py" and path.is_relative_to(PACKAGES[package]):
            assert ast.get_docstring(tree), f"{module} does not say what it holds"


def test_no_import_circles():
    graph = defaultdict(set)
    for module, (_, tree) in TREES.items():
        for node in at_import(tree):
            if isinstance(node, ast.ImportFrom):
                source = absolute(module, node)
                graph[module] |= {
                    f"{source}.{alias.name}" if f"{source}.{alias.name}" in TREES else source
                    for alias in node.names
                }
        graph[module] = {found for found in graph[module] if found in TREES and found != module}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_only_commands_import_commands():
    for module, (_, tree) in TREES.items():
        if not {"cli", "__main__"} & {*module.split(".")}:
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and not is_type_only(tree, node):
                    source = absolute(module, node)
                    assert "cli" not in source.split("."), f"{module}:{node.lineno} imports {source}"


def test_scores_runs_and_reports_stand_on_each_other_in_one_direction():
    order = ["score", "run", "report", "leaderboard"]
    for module, (_, tree) in TREES.items():
        room = module.removeprefix("rwbench.").split(".")[0]
        if room in order:
            above = {f"rwbench.{name}" for name in order[order.index(room) + 1 :]}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and not is_type_only(tree, node):
                    source = ".".join(absolute(module, node).split(".")[:2])
                    assert source not in above, f"{module}:{node.lineno} imports {source}"


def is_type_only(tree, node):
    return any(
        isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test) and node in block.body
        for block in tree.body
    )


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


@pytest.mark.parametrize("package", PACKAGES)
def test_types_travel_with_the_package(package):
    assert (PACKAGES[package] / "py.typed").is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_its_version(command):
    done = subprocess.run(
        [Path(sys.executable).with_name(command), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [command, importlib.import_module(COMMANDS[command]).__version__]


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
