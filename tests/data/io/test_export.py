"""The exported repository: opens as a plain folder, and its card says what is in it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.io import build
from ruleworld_data.io.card import export
from ruleworld_data.spec import CONFIGS, QUESTION_SPLITS, SUBTASKS


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("export")
    build(root / "build", "tiny")
    export(root / "build", root / "hub")
    return root / "build", root / "hub"


def front_matter(hub: Path) -> dict:
    return yaml.safe_load((hub / "README.md").read_text(encoding="utf-8").split("---\n")[1])


def test_the_folder_opens_by_itself(folders, run_python):
    _, hub = folders
    out = run_python(
        f"""
from datasets import load_dataset, get_dataset_config_names
print(get_dataset_config_names({str(hub)!r}))
d = load_dataset({str(hub)!r}, "multi_hop_3")
print({{s: len(d[s]) for s in d}})
print(d["test"][0]["question"])
print(load_dataset({str(hub)!r}, "rules", split="heldout")[0]["nl"])
""",
        RULEWORLD_NO_HOOK="1",
    )
    assert str(sorted(CONFIGS)) in out or all(f"'{config}'" in out for config in CONFIGS)
    assert str({"train": 100, "validation": 20, "test": 50, "mini": 50, "heldout": 20}) in out
    assert question_table("multi_hop_3", "test", "tiny")["question"][0].as_py() in out
    assert rule_table("heldout", "tiny")["nl"][0].as_py() in out


def test_the_card_tells_every_configuration_split_and_size(folders):
    _, hub = folders
    card = front_matter(hub)
    assert card["license"] == "apache-2.0" and card["size_categories"] == ["1K<n<10K"]
    assert {c["config_name"] for c in card["configs"]} == set(CONFIGS)
    for info in card["dataset_info"]:
        told = {split["name"]: split["num_examples"] for split in info["splits"]}
        if info["config_name"] != "rules":
            assert told == {"train": 100, "validation": 20, "test": 50, "mini": 50, "heldout": 20}
    text = (hub / "README.md").read_text(encoding="utf-8")
    assert "1,984 abstract" in text and "1,100 training questions" in text
    row = question_table("multi_hop_3", "test", "tiny").slice(0, 1).to_pylist()[0]
    assert row["question"] in text and row["steps"][-1]["nl"] in text
    assert not re.search(r"\{[a-z_]+\}", text.split("---\n", 2)[2].replace("\\boxed{12}", ""))


def test_the_benchmark_file_names_every_task(folders):
    _, hub = folders
    described = yaml.safe_load((hub / "eval.yaml").read_text(encoding="utf-8"))
    assert [task["id"] for task in described["tasks"]] == list(SUBTASKS)
    assert all(task["split"] in QUESTION_SPLITS for task in described["tasks"])


def test_nothing_is_overwritten_and_nothing_half_written(folders, tmp_path):
    folder, hub = folders
    with pytest.raises(ValueError, match="not an empty folder"):
        export(folder, hub)
    (tmp_path / "out").mkdir()
    assert "README.md" in export(folder, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_edited_shard_is_not_shipped(folders, tmp_path):
    """A changed answer must not reach the card, the statistics or anybody's download."""
    from ruleworld_data.io import build_stats

    folder, _ = folders
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shard = copy / "single_rule" / "test-00000-of-00001.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    for use in (build_stats, lambda place: export(place, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"test-00000-of-00001\.parquet was changed"):
            use(copy)
    assert {path.name for path in tmp_path.iterdir()} == {"copy"}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["shards"][0].update(path="../escaped.parquet"),
        lambda m: m["shards"].pop(),
        lambda m: m["shards"].append({}),
        lambda m: m.update(shards=[1]),
        lambda m: m.update(scale="huge"),
        lambda m: m.update(seed="0"),
        lambda m: m.update(generator_version="0.0.1"),
    ],
)
def test_a_manifest_that_lies_is_refused(folders, tmp_path, change):
    from ruleworld_data.io import build_stats

    copy = tmp_path / "copy"
    shutil.copytree(folders[0], copy)
    manifest = json.loads((copy / "build.json").read_text())
    change(manifest)
    (copy / "build.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError):
        build_stats(copy)
    with pytest.raises(ValueError):
        export(copy, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"copy"}


def test_a_neighbour_of_the_target_is_left_alone(folders, tmp_path):
    neighbour = tmp_path / ".hub.tmp"
    neighbour.mkdir()
    (neighbour / "mine").write_text("")
    export(folders[0], tmp_path / "hub")
    assert (neighbour / "mine").exists()
    assert {path.name for path in tmp_path.iterdir()} == {".hub.tmp", "hub"}
