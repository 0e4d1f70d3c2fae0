"""The exported repository: opens as a plain folder, says what is in it, and holds no byte that was changed."""

import json
import re
import shutil

import pytest
import yaml
from ruleworld_data.io import build, build_stats, export
from ruleworld_data.spec import SUBTASKS, Dials

from ..cases import question_table, rule_table

ROWS = {"train": 100, "validation": 20, "test": 50, "mini": 50, "heldout": 20}


def test_the_folder_opens_by_itself(exported, run_python):
    out = run_python(
        f"""
from datasets import load_dataset, get_dataset_config_names
print(sorted(get_dataset_config_names({str(exported)!r})))
d = load_dataset({str(exported)!r}, "multi_hop_3")
print({{s: len(d[s]) for s in d}})
print(d["test"][0]["question"])
print(load_dataset({str(exported)!r}, "rules", split="heldout")[0]["nl"])
""",
        RULEWORLD_NO_HOOK="1",
    )
    assert str(sorted((*SUBTASKS, "rules"))) in out and str(ROWS) in out
    assert question_table("multi_hop_3", "test", "tiny")["question"][0].as_py() in out
    assert rule_table("heldout", "tiny")["nl"][0].as_py() in out


def test_the_card_tells_every_configuration_split_and_size(exported):
    text = (exported / "README.md").read_text(encoding="utf-8")
    card = yaml.safe_load(text.split("---\n")[1])
    assert card["license"] == "apache-2.0" and card["size_categories"] == ["1K<n<10K"]
    assert {c["config_name"] for c in card["configs"]} == {*SUBTASKS, "rules"}
    for config in card["configs"]:
        splits = ROWS if config["config_name"] != "rules" else ("train", "heldout")
        assert [file["split"] for file in config["data_files"]] == list(splits)
    assert "1,984 abstract" in text and "1,100 training questions" in text
    row = question_table("multi_hop_3", "test", "tiny").slice(0, 1).to_pylist()[0]
    assert row["question"] in text and row["steps"][-1]["nl"] in text
    assert not re.search(r"\{[a-z_]+\}", text.split("---\n", 2)[2].replace("\\boxed{12}", ""))


def test_a_world_without_chains_of_three_is_exported(tmp_path):
    build(tmp_path / "build", "tiny", dials=Dials(hops=1, parts=1))
    export(tmp_path / "build", tmp_path / "out")
    assert 'load_dataset("OWNER/NAME", "single_rule"' in (tmp_path / "out/README.md").read_text()


def test_nothing_is_overwritten_and_nothing_half_written(built, exported, tmp_path):
    with pytest.raises(FileExistsError, match="exists already; choose a new folder"):
        export(built, exported)
    (tmp_path / "out").mkdir()
    (tmp_path / ".out.tmp").write_text("a neighbour")
    assert "README.md" in export(built, tmp_path / "out", "me/rules")
    assert 'load_dataset("me/rules", "multi_hop_3"' in (tmp_path / "out/README.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.tmp"}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["shards"][0].update(path="../escaped.parquet"),
        lambda m: m["shards"].pop(),
        lambda m: m.update(generator_version="0.0.1"),
        lambda m: m.update(seed=99),
        lambda m: m.update(dials={"words": 0.5}),
    ],
)
def test_a_manifest_that_lies_is_refused(built, tmp_path, change):
    copy = shutil.copytree(built, tmp_path / "copy")
    manifest = json.loads((copy / "build.json").read_text())
    change(manifest)
    (copy / "build.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError):
        build_stats(copy)
    with pytest.raises(ValueError):
        export(copy, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"copy"}
