"""A bank as a folder: embeddings as safetensors, texts as parquet or JSON lines, and a description that fits them.

========================== ==================================================
``embeddings.safetensors``  ``keys`` and ``values``, (M, P)
``rules.parquet``           columns ``id`` and ``text`` (``rules.jsonl`` where pyarrow is not installed)
``bank.json``               format, encoder, number, width, and the hash of the other two
========================== ==================================================
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import sync

if TYPE_CHECKING:
    from .bank import RuleBank

FORMAT = 1
DESCRIPTION, EMBEDDINGS = "bank.json", "embeddings.safetensors"


def save_bank(bank: RuleBank, folder: str | PathLike[str], overwrite: bool = False) -> None:
    """Write a bank, whole or not at all: into a temporary folder, synced, then renamed.

    Parameters
    ----------
    bank : RuleBank
        The rules, with their embeddings in the bank's dtype.
    folder : path
        Where; must not exist, unless ``overwrite`` and it is a bank.

    Raises
    ------
    FileExistsError, ValueError
        If the folder is there already; if it is there and no bank.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    if folder.exists():
        if not overwrite:
            raise FileExistsError(f"{folder} exists already; choose a new folder, or pass overwrite=True")
        if not (folder / DESCRIPTION).is_file():
            raise ValueError(f"{folder} is not a rule bank (no {DESCRIPTION}), so it is not overwritten")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        tensors = {
            "keys": bank.keys_MP.detach().cpu().contiguous(),
            "values": bank.values_MP.detach().cpu().contiguous().clone(),  # may share the keys' memory
        }
        save_file(tensors, work / EMBEDDINGS)
        rules = _write_rules(bank, work)
        description = {
            "format": FORMAT,
            "encoder": bank.encoder,
            "rules": len(bank),
            "width": bank.encoder_dim,
            "dtype": str(bank.keys_MP.dtype).removeprefix("torch."),
            "sha256": {name: _sha256(work / name) for name in (EMBEDDINGS, rules)},
        }
        (work / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        for path in work.iterdir():
            sync(path)
        work.chmod(0o755)
        old = work.with_suffix(".old")
        if folder.exists():
            folder.replace(old)
        work.replace(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load_bank(folder: str | PathLike[str], mmap: bool = True, verify: bool = True) -> RuleBank:
    """Read a bank.

    Parameters
    ----------
    folder : path
        What `save_bank` wrote.
    mmap : bool
        Embeddings stay in the file until they are read, and processes share them; the file must stay as it is. The
        first change of the bank copies them.
    verify : bool
        Whether the hashes are checked, which reads the files once.

    Raises
    ------
    FileNotFoundError
        If there is no bank.
    ValueError
        If a file is missing, truncated, edited or of another format.
    """
    from safetensors import SafetensorError, safe_open

    from .bank import RuleBank

    folder = Path(folder)
    if not (folder / DESCRIPTION).is_file():
        raise FileNotFoundError(f"no rule bank in {folder} (no {DESCRIPTION}); write one with RuleBank.save")
    about = _description(folder)
    for name, digest in about["sha256"].items():
        if not (folder / name).is_file():
            raise ValueError(f"the rule bank {folder} is damaged: {name} is missing; save it again")
        if verify and _sha256(folder / name) != digest:
            raise ValueError(
                f"the rule bank {folder} is damaged: {name} is truncated or was edited; save it again"
            )
    with _reading(folder, EMBEDDINGS, SafetensorError), safe_open(folder / EMBEDDINGS, "pt") as file:
        keys, values = file.get_tensor("keys"), file.get_tensor("values")
    ids, texts = _read_rules(folder, about)
    shape = (about["rules"], about["width"])
    if tuple(keys.shape) != shape or tuple(values.shape) != shape or len(ids) != about["rules"]:
        raise ValueError(
            f"the rule bank {folder} is damaged: {DESCRIPTION} says {shape}, the files hold keys {tuple(keys.shape)}, "
            f"values {tuple(values.shape)}, {len(ids)} ids; save it again"
        )
    if not mmap:
        keys, values = keys.clone(), values.clone()
    return RuleBank(keys, values, ids, texts, about["encoder"])


@contextmanager
def _reading(folder: Path, name: str, *errors: type[Exception]) -> Iterator[None]:
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except expected as error:
        raise ValueError(f"the rule bank {folder} is damaged: {name}: {error!r}; save it again") from error


def _description(folder: Path) -> dict[str, Any]:
    with _reading(folder, f"{DESCRIPTION} is not JSON", UnicodeDecodeError, json.JSONDecodeError):
        about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    expected = {"format": int, "encoder": str, "rules": int, "width": int, "dtype": str, "sha256": dict}
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else about
        raise ValueError(f"{folder / DESCRIPTION} has format {found!r}, this version reads {FORMAT}")
    wrong = [name for name, kind in expected.items() if not isinstance(about.get(name), kind)]
    files = set(about["sha256"]) if "sha256" not in wrong else set()
    if wrong or files not in ({EMBEDDINGS, "rules.parquet"}, {EMBEDDINGS, "rules.jsonl"}):
        raise ValueError(
            f"the rule bank {folder} is damaged: {DESCRIPTION} lacks {wrong or 'its files'}; save it again"
        )
    return about


def _write_rules(bank: RuleBank, work: Path) -> str:
    if find_spec("pyarrow") is None:
        lines = (json.dumps({"id": id, "text": text}) for id, text in zip(bank.ids, bank.texts, strict=True))
        (work / "rules.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return "rules.jsonl"
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": pa.array(bank.ids, pa.string()), "text": pa.array(bank.texts, pa.string())}
    pq.write_table(pa.table(columns), work / "rules.parquet", compression="zstd")
    return "rules.parquet"


def _read_rules(folder: Path, about: dict[str, Any]) -> tuple[list[str], list[str]]:
    if "rules.jsonl" in about["sha256"]:
        with _reading(folder, "rules.jsonl", UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
            lines = (folder / "rules.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
            rules = [json.loads(line) for line in lines]
            return [rule["id"] for rule in rules], [rule["text"] for rule in rules]
    if find_spec("pyarrow") is None:
        raise ImportError(f"the rule bank {folder} holds its texts as parquet: pip install pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _reading(folder, "rules.parquet", pa.ArrowException):
        table = pq.read_table(folder / "rules.parquet", columns=["id", "text"])
    return table["id"].to_pylist(), table["text"].to_pylist()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
