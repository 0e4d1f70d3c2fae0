"""The start-up hook: names work without an import, in fresh interpreters, and nothing it does can break one."""

import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from ruleworld_data.io import register

SOURCE = Path(__file__).parents[3] / "ruleworld-data" / "src"
Run = Callable[..., str]


def run_bare(code):
    """Run code under -S, where little is loaded yet and no .pth file is read."""
    code = f"import sys\nsys.path.insert(0, {str(SOURCE)!r})\n{code}"
    words = [sys.executable, "-S", "-E", "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_hook_imports_nothing_but_sys_at_start():
    """Every Python of the environment pays for this file."""
    printed = run_bare("""
before = set(sys.modules)
import _ruleworld_hook
print(sorted(set(sys.modules) - before - {"_ruleworld_hook"}), type(sys.meta_path[0]).__name__)
""")
    assert printed == "[] Finder\n"


def test_what_is_imported_already_is_patched_with_the_package():
    """Where Python reads no .pth file the names work from the import of ruleworld_data on."""
    printed = run_bare("""
import types
load = sys.modules["datasets.load"] = types.ModuleType("datasets.load")
load.dataset_module_factory, load.DatasetModule = print, lambda *fields: fields
import ruleworld_data
print(load.dataset_module_factory("ruleworld")[0])
""")
    assert printed == "ruleworld_data.io.builder\n"


def test_names_work_without_an_import_and_only_once_patched(run_python):
    printed = run_python(
        """
assert "ruleworld_data" not in sys.modules and "datasets" not in sys.modules
import datasets
import datasets.inspect
from datasets.load import dataset_module_factory
assert datasets.inspect.dataset_module_factory is dataset_module_factory
print(datasets.get_dataset_config_names("ruleworld")[8], datasets.get_dataset_split_names("ruleworld", "rules"))

import ruleworld_data, ruleworld_data.io.register, _ruleworld_hook
ruleworld_data.io.register.patch(datasets.load)
_ruleworld_hook.install()
assert datasets.load.dataset_module_factory is dataset_module_factory
assert not hasattr(dataset_module_factory.__wrapped__, "_ruleworld"), "wrapped twice"
assert sum(type(finder).__name__ == "Finder" for finder in sys.meta_path) == 1

import importlib
importlib.reload(datasets.load)
print("reloaded:", hasattr(datasets.load.dataset_module_factory, "_ruleworld"))
"""
    )
    assert printed.splitlines() == ["multi_hop_2 ['train', 'heldout']", "reloaded: True"]


def test_opt_out(run_python):
    code = "import ruleworld_data, datasets.load; print(hasattr(datasets.load.dataset_module_factory, '_ruleworld'))"
    assert run_python(code, RULEWORLD_NO_HOOK="1").strip() == "False"


def test_broken_package_breaks_nothing_else(run_python, tmp_path):
    broken = tmp_path / "path" / "ruleworld_data"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("syntax error")
    printed = run_python(
        f"""
sys.path.insert(0, {str(broken.parent)!r})
import datasets
print(len(datasets.Dataset.from_dict({{"a": [1, 2]}})))
"""
    )
    assert "\n2\n" in "\n" + printed
    assert "RuntimeWarning: ruleworld-data could not add its names to datasets.load" in printed
    assert "RULEWORLD_NO_HOOK=1" in printed
    assert "Traceback" not in printed


def test_what_means_something_else_goes_to_the_library(tmp_path, monkeypatch):
    """data_files, data_dir, positional arguments, other names and a folder of the name: not ours."""
    asked: list[tuple] = []
    load = types.ModuleType("datasets.load")
    load.DatasetModule = lambda *fields: fields
    load.dataset_module_factory = lambda *args, **kwargs: asked.append((args, kwargs))
    register.patch(load)
    monkeypatch.chdir(tmp_path)
    factory = load.dataset_module_factory
    ours = ("ruleworld_data.io.builder", register.module_hash(), {"dataset_name": "ruleworld"})
    assert factory("ruleworld", revision=None, data_files=None) == ours and asked == []
    calls = [
        (("ruleworld",), {"data_files": "a.csv"}),
        (("ruleworld",), {"data_dir": "a"}),
        (("ruleworld", "main"), {}),
        (("./ruleworld",), {}),
        (("org/ruleworld",), {}),
    ]
    for args, kwargs in calls:
        assert factory(*args, **kwargs) is None
    with pytest.raises(ValueError, match="has no revision"):
        factory("ruleworld", revision="1.2")
    (tmp_path / "ruleworld").mkdir()
    factory("ruleworld")
    assert asked == [*calls, (("ruleworld",), {})]
    with pytest.raises(RuntimeError, match="has no function dataset_module_factory; this release"):
        register.patch(types.ModuleType("datasets.load"))


def test_hash_covers_every_file_of_the_package(tmp_path):
    """A cache is never served to changed code: one changed byte anywhere, or name, changes the hash."""
    package = Path(shutil.copytree(SOURCE / "ruleworld_data", tmp_path / "ruleworld_data"))
    code = "from ruleworld_data.io.register import module_hash; print(module_hash())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def code_hash():
        words = [sys.executable, "-S", "-c", code]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    seen = {code_hash()}
    for file in (package / "generate.py", package / "prompts" / "answer.toml"):
        file.write_bytes(file.read_bytes() + b"\n")
        seen.add(code_hash())
    (package / "generate.py").rename(package / "generate_.py")
    assert len(seen | {code_hash()}) == 4
