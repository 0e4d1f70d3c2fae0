"""Folders of models: replaced whole, whatever kills the writer."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from rwbench import models
from rwbench.backends.local import DEVICE, Local, load, load_tokenizer
from rwbench.methods.plus import DynaRulePlus
from rwbench.models import adapter_folder, base_folder, fingerprint, shipped, step_mark
from rwbench.recipes import SCOPES, Options
from rwbench.run.data import DataSource
from rwbench.run.runner import run_spec
from rwbench.score.results import find_results
from safetensors.torch import save_file

ROOT = Path(__file__).parents[3]
METHODS = ("dynarule", "srki", "kblam", "dynarule-plus")


def test_a_large_base_that_differs_in_one_layer_is_another(tmp_path, monkeypatch):
    """A LoRA of the upper layers leaves what stands at both ends of the file as it was: embeddings and norms."""
    monkeypatch.setattr(models, "WHOLE_FILE", 1000)
    monkeypatch.setattr(models, "FILE_END", 1000)
    tensors = {f"{name}.weight": torch.randn(40, 40) for name in ("embed", "layers.3", "norm")}
    found = set()
    for _ in range(2):
        save_file(tensors, tmp_path / "model.safetensors")
        found.add(fingerprint(tmp_path))
        tensors["layers.3.weight"] += 0.01
    assert len(found) == 2
    for header in (b"[1]", b'{"a": 1}', b'{"a": {}}', b"x"):  # no safetensors: both ends alone
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"x" * 5000)
        assert fingerprint(tmp_path) not in found


def test_a_model_runs_where_and_in_what_numbers_it_is_told(model_folder, monkeypatch):
    assert load(str(model_folder), "bfloat16")[0].dtype == torch.bfloat16
    assert "dtype" not in Local.of(str(model_folder)).to_dict()  # older runs keep their ids
    monkeypatch.setenv(DEVICE, "nowhere")
    with pytest.raises(ValueError, match="no model runs on the device 'nowhere' here"):
        load(str(model_folder), "float16")


def test_steps_begin_with_the_mark_that_a_model_was_taught(tmp_path):
    """The mark of a pretrained model is one of its own tokens, which its prompt names; no other token is one."""
    tokenizer = load_tokenizer(base_folder("tiny"))
    assert step_mark("tiny", tokenizer) == "<step>"
    taught = shutil.copytree(base_folder("tiny"), tmp_path / "taught")
    prompt = (taught / "prompt.toml").read_text()
    for mark, known in (("<pad>", "<pad>"), ("<of another>", "<step>")):
        (taught / "prompt.toml").write_text(prompt.replace("<step>", mark))
        assert step_mark(str(taught), tokenizer) == known


def test_committed_results_are_of_what_is_shipped():
    """Every run in the repository names the base, and the adapter, that come with it, or one of further trainings.

    A model that is added, not shipped, is made where it is added: of that one the adapters are here, and all runs are
    of one base.
    """
    added = {"smollm2-rules": ROOT / "benchmarks/base/smollm2"}
    seen, bases = set(), {}
    for run in find_results(ROOT / "benchmarks/results"):
        path, spec = run["run_id"], run["spec"]
        method = spec["method"]
        if not isinstance(method.get("model"), dict):
            continue
        name, weights = method["model"]["model"], method["model"]["weights"]
        assert weights == bases.setdefault(name, weights), path
        if name not in added:
            assert weights == fingerprint(base_folder(name)), path
        if method["name"] in METHODS:
            own = "-".join(filter(None, (method["name"], method.get("variant"))))
            form = spec["representation"]
            folder = added[name] / f"{own}-{form}" if name in added else adapter_folder(name, own, form)
            base = "-smollm2" if name in added else ""
            further = ROOT / f"benchmarks/results/seeds/{own}{base}-{form}/adapters.json"
            of = (
                fingerprint(folder)
                if folder and folder.is_dir()
                else json.loads(further.read_text())["fingerprint"]
            )
            assert method["adapter"] == of, path
            seen.add((name, own, form))
    there = {
        (name, method, form)
        for name in shipped()
        for method in (*METHODS, "dynarule-premise")
        for form in ("fol", "nl")
        if adapter_folder(name, method, form)
    }
    assert there <= seen


def test_the_shipped_search_answers_among_a_thousand_rules(tmp_path):
    """Eleven questions, one of each sub-task: keys, search and reading are those of the training."""
    source, model = DataSource("paper"), Local.of("tiny")
    options = Options(source, limit=1, models=(model,), forms=("nl",))
    spec = options.spec(DynaRulePlus.of(model, "nl"), "nl", 1000, SCOPES[1000])
    assert run_spec(spec, source, tmp_path)["metrics"]["exact_match"]["macro"]["value"] > 0.9
