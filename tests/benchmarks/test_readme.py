"""What benchmarks/README.md says to do, done: the three files it shows, dropped in, and run."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from rwbench.cli import app
from rwbench.methods import Method
from rwbench.recipes import recipes
from rwbench.retrievers import Retriever
from typer.testing import CliRunner

README = Path(__file__).parents[2] / "benchmarks" / "README.md"
FAMILIES = {"retrievers": Retriever.registry, "methods": Method.registry, "recipes": recipes}


@pytest.fixture
def dropped_in(tmp_path):
    """The README's files lie in folders that are part of the packages, as if they had been added there."""
    blocks = re.findall(r"^```python (\w+)/(\w+)\.py\n(.*?)^```", README.read_text(), flags=re.M | re.S)
    assert {family for family, _, _ in blocks} == set(FAMILIES)
    for family, name, code in blocks:
        folder = tmp_path / family
        folder.mkdir()
        (folder / f"{name}.py").write_text(code)
        importlib.import_module(f"rwbench.{family}").__path__.append(str(folder))
        FAMILIES[family]._loaded = False
    yield
    for family, name, _ in blocks:
        importlib.import_module(f"rwbench.{family}").__path__.remove(str(tmp_path / family))
        sys.modules.pop(f"rwbench.{family}.{name}", None)
        FAMILIES[family].remove({"overlap": "overlap", "echo": "echo", "mine": "mine"}[name])


def test_a_retriever_a_method_and_a_recipe_are_one_file_each(dropped_in, tmp_path):
    words = ["run", "mine", "--scale", "tiny", "--limit", "3", "--out", str(tmp_path / "runs"), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    echo, overlap = json.loads(result.stdout)["runs"]
    assert echo["spec"]["method"] == {"name": "echo", "word": "12"}
    assert set(echo["metrics"]) == {"exact_match", "strict_match"}
    assert overlap["spec"]["method"]["retriever"] == {"name": "overlap"}
    assert overlap["metrics"]["recall@10"]["macro"]["value"] > 0.3
    assert "mine" in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)["recipes"]


def test_two_components_of_one_name_are_refused(dropped_in):
    Retriever.registry.items()

    class Overlap(Retriever):
        name = "overlap"

    with pytest.raises(ValueError, match="two retrievers are named 'overlap'"):
        Retriever.registry.add("overlap", Overlap)


@pytest.mark.slow
def test_the_table_is_what_the_recipe_gives(tmp_path):
    """At paper scale, so slow; rows that need the encoder are compared where it is installed."""
    result = CliRunner().invoke(app, ["run", "smoke", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    skipped = [note.split(" (needs")[0] for note in json.loads(result.stdout)["skipped"]]
    table = CliRunner().invoke(app, ["report", str(tmp_path), "--markdown"]).stdout
    shown = re.search(r"<!-- table: .*?-->\n(.*?)<!-- end -->", README.read_text(), flags=re.S)[1]
    for line in table.strip().splitlines():
        assert line in shown, line
    assert len(shown.strip().splitlines()) == len(table.strip().splitlines()) + len(skipped)
