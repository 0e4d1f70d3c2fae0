"""Models by name: a shipped one, a folder, or one that an endpoint serves.

A model folder holds ``base/`` (a causal model and its tokenizer, as transformers saves them) and, where trained, one
adapter folder per method: ``dynarule/``, ``srki/``, ``kblam/``, or ``dynarule-fol/`` and ``dynarule-nl/`` for one per
representation. A plain transformers folder is a model without adapters. ``prompt.toml`` in the base folder replaces the
prompt template of this package (see `ruleworld_data.prompts`).
"""

import hashlib
import json
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from ruleworld_data.prompts import Template, parse_template, template_named

from ..cache import cache_root

SHIPPED = Path(__file__).parent
PROMPT_FILE = "prompt.toml"
STEP = "<step>"
"""Before each step in the answers of bases that are trained here; ``<search>`` inherits its row."""
ADDED = "models"
"""Folder of the cache."""
BASE_SUFFIXES = (".json", ".safetensors", ".jinja", ".model", ".txt")
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = (
    ADAPTER_CONFIG,
    "adapter_model.safetensors",
    "chat_template.jinja",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
)
"""What decides an adapter's answers."""
WHOLE_FILE, FILE_END, TENSOR_PIECE = 1 << 26, 1 << 20, 1 << 12
"""Files up to this size are hashed whole; of larger ones the size, both ends, and a piece of every tensor."""


def shipped() -> list[str]:
    """Return the names of the models that come with this package."""
    return sorted(path.name for path in SHIPPED.iterdir() if _is_model(path))


def added_models() -> list[str]:
    """Return the names of the models that `rwbench models add` put into the cache."""
    folder = cache_root() / ADDED
    return sorted(path.name for path in folder.iterdir() if _is_model(path)) if folder.is_dir() else []


def added_folder(name: str) -> Path:
    """Return where a model of a name is, or would be, in the cache."""
    return cache_root() / ADDED / name


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("base/config.json", "config.json"))


def resolve(name: str) -> Path:
    """Return the folder of a model; a FileNotFoundError says what there is.

    ``name`` is a shipped model's, a path, that of a model that was added, or one of the Hub that was downloaded.
    """
    folder = SHIPPED / name if name in shipped() else Path(name)
    if _is_model(folder):
        return folder
    if name in added_models():
        return added_folder(name)
    if hub := from_hub(name):
        return hub
    from .added import KNOWN

    if name in KNOWN:
        raise FileNotFoundError(f"the model {name!r} is not here yet; type: rwbench models add {name}")
    raise FileNotFoundError(
        f"no model {name!r}: it is neither a shipped model ({', '.join(shipped()) or 'none here'}) nor a folder with "
        "config.json in it or in base/, nor a name that the Hub knows; for one behind an endpoint add --endpoint http://host:port/v1"
    )


def from_hub(name: str, download: bool = False) -> Path | None:
    """Return the folder of a model of the Hub in its cache, where ``owner/name`` is one; None if it is not there.

    It is downloaded only where a user asks for it by this name: what a folder of runs names never is.
    """
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) or Path(name).exists():
        return None
    from huggingface_hub import snapshot_download

    wanted = [f"*{suffix}" for suffix in BASE_SUFFIXES]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not download))
    except (OSError, ValueError):
        return None


def base_folder(name: str) -> Path:
    """Return the folder of a model's base, which transformers loads."""
    folder = resolve(name)
    return folder / "base" if (folder / "base").is_dir() else folder


def adapter_folder(name: str, method: str, representation: str) -> Path | None:
    """Return the folder of a model's adapter for a method, or None if it has none."""
    for candidate in (f"{method}-{representation}", method):
        folder = resolve(name) / candidate
        if (folder / ADAPTER_CONFIG).is_file():
            return folder
    return None


def model_template(name: str, prompt: str = "") -> Template:
    """Return the prompt template that a model's folder brings, else the one of this package with an id."""
    path = base_folder(name) / PROMPT_FILE
    return parse_template(path.read_bytes(), str(path)) if path.is_file() else template_named(prompt)


def step_mark(name: str, tokenizer: Any) -> str:
    """Return the token with which a model begins each step: of the marks that its prompt removes, one that it has.

    A model that was taught none has `STEP`, which its tokenizer does not know.
    """
    known = tokenizer.get_vocab()
    return next((mark for mark in model_template(name).remove if mark in known), STEP)


def fingerprint(folder: Path) -> str:
    """Return 12 hexadecimal digits that change when a base or an adapter changes.

    Of an adapter, configuration, weights and tokenizer count: not its card, the log and the recipes of its training.
    """
    files = [each for each in folder.iterdir() if each.suffix in BASE_SUFFIXES and each.name[0] != "."]
    if (folder / ADAPTER_CONFIG).is_file():
        files = [path for path in files if path.name in ADAPTER_FILES]
    # A base's prompt has a hash of its own in the spec.
    return _hash_files(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(files)))


@lru_cache(maxsize=64)
def _hash_files(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Hash names and contents; sizes (bytes) and times only tell whether a file is the one that was hashed before."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(WHOLE_FILE if size <= WHOLE_FILE else FILE_END))
            if size > WHOLE_FILE:
                for place, length in [*_tensors(file), (size - FILE_END, FILE_END)]:
                    file.seek(place)
                    digest.update(file.read(length))
    return digest.hexdigest()[:12]


def _tensors(file: BinaryIO) -> list[tuple[int, int]]:
    """Return where each tensor of a safetensors file begins, and how much of it is hashed; nothing of another file.

    Training changes numbers everywhere in a tensor, but it may leave all tensors at the ends of a file as they were: a
    LoRA of some layers does.
    """
    file.seek(0)
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length)) if length <= FILE_END else {}
        places = sorted(each["data_offsets"] for name, each in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return []
    return [(8 + length + start, min(TENSOR_PIECE, stop - start)) for start, stop in places]
