"""`dynarule push` against a stand-in of the Hub's API: the adapter and its card arrive, and nothing else."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from dynarule.cli.app import app
from dynarule.hub import files_to_push
from typer.testing import CliRunner

from dynarule import RuleAdapter, dynarule_config

fake_hub = runpy.run_path(str(Path(__file__).parents[1] / "data" / "fake_hub.py"))


@pytest.fixture
def adapter(tiny_model, tmp_path) -> Path:
    """What training leaves behind: the adapter, a card, a checkpoint with an optimizer's state."""
    folder = tmp_path / "stage2"
    model = tiny_model("qwen2")
    config = dynarule_config(encoder_dim=16, confidence_layer=1, top_k=2)
    config.encoder = "minilm"
    RuleAdapter(model, config).save(folder)
    (folder / "README.md").write_text("---\nlibrary_name: dynarule\n---\n\n# Adapter\n")
    (folder / "log.json").write_text("[]\n")
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / "optimizer.pt").write_bytes(b"state")
    (folder / "notes.txt").write_text("mine")
    return folder


@pytest.fixture
def push(adapter, monkeypatch):
    def run(hub, *arguments: str):
        hub.reach(monkeypatch, adapter.parent)
        return CliRunner().invoke(app, ["push", str(adapter), *arguments])

    return run


def test_the_adapter_and_its_card_arrive_and_older_weights_go(adapter, push):
    planned = files_to_push(adapter, "me/rules")
    (weights,) = (path.name for path in adapter.glob("*.safetensors"))
    assert set(planned) == {"adapter_config.json", "README.md", "log.json", weights}
    with fake_hub["Hub"]() as hub:
        old = fake_hub["Repository"]({}, {"adapter-0.safetensors": b"old", "figure.png": b"theirs"})
        hub.repositories["models/me/rules"] = old
        done = push(hub, "--to", "me/rules", "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["files"] == planned
        assert old.files == {"figure.png": b"theirs"} | {
            name: (adapter / name).read_bytes() for name in planned
        }


def test_a_dry_run_lists_files_and_sizes_and_asks_nobody(adapter, push):
    with fake_hub["Hub"]() as hub:
        done = push(hub, "--to", "me/rules", "--private", "--dry-run")
        assert done.exit_code == 0 and hub.requests == []
        planned = files_to_push(adapter, "me/rules")
        for name, size in planned.items():
            assert f"{size:>12,}  {name}\n" in done.stdout
        assert done.stdout.endswith(
            f"4 files, {sum(planned.values()):,} bytes; nothing sent to private model me/rules\n"
        )


def test_what_cannot_be_pushed_is_refused_with_words(adapter, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no adapter_config\.json"):
        files_to_push(tmp_path, "me/rules")
    with pytest.raises(ValueError, match="give --to OWNER/rules"):
        files_to_push(adapter, "rules")
    (adapter / "recipe.json").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match=r"recipe\.json is a link out of the folder"):
        files_to_push(adapter, "me/rules")
    (adapter / "README.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no README\.md: a card"):
        files_to_push(adapter, "me/rules")


def test_a_base_model_named_by_a_local_path_is_noted(adapter, push):
    info = json.loads((adapter / "adapter_config.json").read_text())
    info["base_model_name_or_path"] = "/home/me/model"
    (adapter / "adapter_config.json").write_text(json.dumps(info))
    with fake_hub["Hub"]() as hub:
        done = push(hub, "--to", "me/rules", "--dry-run")
    assert (
        "names its base model by a path of this machine (/home/me/model); others cannot load" in done.stderr
    )
