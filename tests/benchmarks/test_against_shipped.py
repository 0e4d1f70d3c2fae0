"""What a training says in the end: how far its result is from what comes in the box."""

import json
import shutil

import pytest
from rwbench.models import SHIPPED
from rwbench.models.against import against_shipped_adapter, against_shipped_base
from safetensors.torch import load_file, save_file


def test_a_copy_of_the_shipped_adapter_is_the_same():
    lines = against_shipped_adapter(SHIPPED / "tiny/dynarule-nl", "dynarule", "nl")
    assert lines[:2] == ["against the shipped tiny/dynarule-nl:", "  weights  the same"]
    log = json.loads((SHIPPED / "tiny/dynarule-nl/log.json").read_text())
    recall = [entry["eval_recall_at_1"] for entry in log if "eval_recall_at_1" in entry][-1]
    assert [line.split() for line in lines if "recall" in line] == [
        ["held-out", "recall", "at", "1", "shipped", f"{recall:.4f},", "here", f"{recall:.4f},", "+0.0000"]
    ]
    assert not any("runtime" in line or "per second" in line for line in lines)


def test_another_training_is_told_by_weights_and_held_out_figures(tmp_path):
    """All weights a tenth larger: a tenth of their length apart. A figure that was not measured is said to be so."""
    folder = tmp_path / "adapter"
    shutil.copytree(SHIPPED / "tiny/srki-fol", folder)
    name = json.loads((folder / "adapter.json").read_text())["weights"]
    save_file({key: 1.1 * tensor.double() for key, tensor in load_file(folder / name).items()}, folder / name)
    entries = json.loads((folder / "log.json").read_text())
    last = next(entry for entry in reversed(entries) if "eval_lm_loss" in entry)
    shipped = last["eval_lm_loss"]
    last["eval_lm_loss"] += 0.25
    del last["eval_recall_at_1"]
    (folder / "log.json").write_text(json.dumps(entries))
    lines = [line.strip() for line in against_shipped_adapter(folder, "srki", "fol")]
    assert "weights  10.00% of their length apart" in lines
    (loss,) = [line for line in lines if "lm loss" in line]
    assert loss.endswith(f"shipped {shipped:.4f}, here {shipped + 0.25:.4f}, +0.2500")
    (recall,) = [line for line in lines if "recall" in line]
    assert recall.endswith("here not measured")


@pytest.mark.parametrize("changed", ["recipe", "method", "shape"])
def test_what_cannot_be_compared_is_said(changed, tmp_path):
    folder = tmp_path / "adapter"
    shutil.copytree(SHIPPED / "tiny/dynarule-fol", folder)
    recipe = json.loads((folder / "adapters.json").read_text())
    if changed == "recipe":
        (folder / "adapters.json").write_text(json.dumps(recipe | {"name": "mine"}))
    if changed == "shape":
        name = json.loads((folder / "adapter.json").read_text())["weights"]
        tensors = load_file(folder / name)
        tensors.popitem()
        save_file(tensors, folder / name)
    lines = against_shipped_adapter(folder, "kblam" if changed == "method" else "dynarule", "fol")
    said = {
        "recipe": "no dynarule adapter for fol of recipe mine is shipped to compare with",
        "method": "no kblam adapter for fol of recipe cpu is shipped to compare with",
        "shape": "  weights  of another shape",
    }
    assert said[changed] in lines


def test_a_base_is_compared_gate_by_gate(tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(SHIPPED / "tiny/base", folder)
    cells = json.loads((folder / "gates.json").read_text())
    lookups = [cell for cell in cells if cell["gate"] == "lookup" and cell["representation"] == "nl"]
    before = sum(cell["success"] for cell in lookups) / len(lookups)
    for cell in lookups:
        cell["success"] = 0.5
    (folder / "gates.json").write_text(json.dumps(cells))
    lines = against_shipped_base(folder)
    assert lines[:2] == ["against the shipped tiny/base:", "  weights  the same"]
    (line,) = [line for line in lines if "lookup, NL" in line]
    assert line.endswith(f"shipped {before:.4f}, here 0.5000, {0.5 - before:+.4f}")
