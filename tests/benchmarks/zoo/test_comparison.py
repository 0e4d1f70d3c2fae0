"""What a training says in the end: how far its result is from what is shipped."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from rwbench.cli.app import app
from rwbench.zoo.adapters.recipe import read_recipe
from rwbench.zoo.models import SHIPPED
from rwbench.zoo.models.comparison import compare_adapter, compare_base
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

ADAPTERS = Path(__file__).parents[3] / "benchmarks/adapters"


@pytest.fixture
def adapter(tmp_path):
    """A copy of a shipped adapter, to be changed."""
    return Path(shutil.copytree(SHIPPED / "tiny/srki-fol", tmp_path / "adapter"))


def change(path, function):
    value = json.loads(path.read_text())
    function(value)
    path.write_text(json.dumps(value))


def test_a_copy_of_the_shipped_adapter_is_the_same():
    lines = compare_adapter(SHIPPED / "tiny/dynarule-nl", "dynarule", "nl")
    assert lines[:3] == [
        "against the shipped tiny/dynarule-nl:",
        "  recipe   the same",
        "  weights  the same",
    ]
    log = json.loads((SHIPPED / "tiny/dynarule-nl/log.json").read_text())
    recall = [entry["eval_recall_at_1"] for entry in log if "eval_recall_at_1" in entry][-1]
    assert [line.split() for line in lines if "recall" in line] == [
        ["held-out", "recall", "at", "1", "shipped", f"{recall:.4f},", "here", f"{recall:.4f},", "+0.0000"]
    ]
    assert not any("runtime" in line or "per second" in line for line in lines)
    kblam = compare_adapter(SHIPPED / "tiny/kblam-nl", "kblam", "nl")
    assert [line.split()[1:3] for line in kblam if "held-out" in line] == [["lm", "loss"]]  # it has no other


@pytest.mark.parametrize(
    "folder", sorted(SHIPPED.glob("*/*-*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_trained_again_by_its_recipe_an_adapter_has_the_same_recipe(folder):
    """As `rwbench adapters train` would write it now, from the file in the repository."""
    written = json.loads((folder / "adapters.json").read_text())
    recipe = read_recipe(ADAPTERS / f"{written['name']}.toml")
    assert json.loads(json.dumps(asdict(recipe))) == written
    method, _ = folder.name.split("-")
    last = json.loads(json.dumps(recipe.trainings(method)[-1][1].to_dict()))
    assert last.items() <= json.loads((folder / "recipe.json").read_text()).items()


def test_another_training_is_told_by_weights_and_held_out_figures(adapter):
    """All weights a tenth larger: a tenth of their length apart. A figure that was not measured is said to be so."""
    name = "adapter_model.safetensors"
    save_file(
        {key: 1.1 * tensor.double() for key, tensor in load_file(adapter / name).items()}, adapter / name
    )
    entries = json.loads((adapter / "log.json").read_text())
    last = next(entry for entry in reversed(entries) if "eval_lm_loss" in entry)
    shipped = last["eval_lm_loss"]
    last["eval_lm_loss"] += 0.25
    del last["eval_recall_at_1"]
    (adapter / "log.json").write_text(json.dumps(entries))
    lines = [line.strip() for line in compare_adapter(adapter, "srki", "fol")]
    assert "weights  10.00% of their length apart" in lines
    (loss,) = [line for line in lines if "lm loss" in line]
    assert loss.endswith(f"shipped {shipped:.4f}, here {shipped + 0.25:.4f}, +0.2500")
    (recall,) = [line for line in lines if "recall" in line]
    assert recall.endswith("here not measured")


@pytest.mark.parametrize(
    ("file", "changes", "said", "figures"),
    [
        ("adapters.json", {"top_k": 9}, "  recipe   another: top_k", True),
        ("adapters.json", {"held_out": 3}, "  recipe   another: held_out", False),
        ("adapters.json", {"scale": "tiny", "seed": 4}, "  recipe   another: scale, seed", False),
        ("adapter_config.json", {"base": {"weights_hash": "0"}}, "  base     another, so weights and", False),
    ],
)
def test_what_differs_is_named_and_other_questions_are_not_compared(adapter, file, changes, said, figures):
    change(adapter / file, lambda value: value.update(changes))
    lines = compare_adapter(adapter, "srki", "fol")
    assert any(line.startswith(said) for line in lines), lines
    assert any("lm loss" in line for line in lines) == figures
    assert ("  held-out questions are others, so their figures cannot be compared" in lines) == (
        not figures and file == "adapters.json"
    )


def test_questions_of_another_last_world_are_others(adapter):
    change(adapter / "adapters.json", lambda recipe: recipe["stages"][-1].update(world=[3, 0]))
    assert any("lm loss" in line for line in compare_adapter(adapter, "srki", "fol"))
    change(adapter / "adapters.json", lambda recipe: recipe["stages"][-1].update(world=[0, 3]))
    assert not any("lm loss" in line for line in compare_adapter(adapter, "srki", "fol"))


def test_weights_of_another_shape_are_said_to_be(adapter):
    name = "adapter_model.safetensors"
    tensors = load_file(adapter / name)
    tensors.popitem()
    save_file(tensors, adapter / name)
    assert "  weights  of another shape" in compare_adapter(adapter, "srki", "fol")


def test_one_line_says_that_nothing_is_shipped(adapter):
    alone = ["no kblam adapter for fol of recipe srki is shipped to compare with"]
    assert compare_adapter(adapter, "kblam", "fol") == alone
    change(adapter / "adapters.json", lambda recipe: recipe.update(name="mine"))
    assert compare_adapter(adapter, "srki", "fol") == [
        "no srki adapter for fol of recipe mine is shipped to compare with"
    ]


def test_a_base_is_compared_gate_by_gate(tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(SHIPPED / "tiny/base", folder)
    cells = json.loads((folder / "gates.json").read_text())
    lookups = [cell for cell in cells if cell["gate"] == "lookup" and cell["representation"] == "nl"]
    before = sum(cell["success"] for cell in lookups) / len(lookups)
    for cell in lookups:
        cell["success"] = 0.5
    (folder / "gates.json").write_text(json.dumps(cells))
    change(folder / "training.json", lambda said: said.update(earlier=None, tokens=7_000_000))
    lines = compare_base(folder)
    assert lines[:3] == [
        "against the shipped tiny/base:",
        "  trained  shipped 43.5 M tokens (cpu, further, cooldown, opening), here 7.0 M tokens (opening)",
        "  weights  the same",
    ]
    (line,) = [line for line in lines if "lookup, NL" in line]
    assert line.endswith(f"shipped {before:.4f}, here 0.5000, {0.5 - before:+.4f}")


def test_the_commands_say_it(monkeypatch, tmp_path):
    """Beside what they wrote; the training itself is not what is tried here."""
    import rwbench.zoo.adapters.train
    import rwbench.zoo.base.ship

    monkeypatch.setattr(rwbench.zoo.adapters.train, "train_adapter", lambda *_: SHIPPED / "tiny/dynarule-nl")
    words = ["--method", "dynarule", "--representation", "nl", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["adapters", "train", str(ADAPTERS / "cpu.toml"), *words])
    assert done.stdout.splitlines()[1:3] == ["against the shipped tiny/dynarule-nl:", "  recipe   the same"]
    monkeypatch.setattr(rwbench.zoo.base.ship, "write_base", lambda *_: {"model.safetensors": 1 << 20})
    words = ["--out", str(tmp_path), "--to", str(SHIPPED / "tiny/base")]
    done = CliRunner().invoke(app, ["base", "ship", str(ADAPTERS.parent / "base/cpu.toml"), *words])
    assert done.stdout.splitlines()[1] == "against the shipped tiny/base:"
    assert "  weights  the same" in done.stdout
