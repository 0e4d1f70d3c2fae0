"""A faiss index beside a bank, as `faiss.write_index` writes it: what is read is checked before faiss sees it.

faiss trusts a file's sizes, so a damaged or hostile one can crash or overrun a process. All that such a file can hold
follows from the bank, but for the numbers of centroids and of the quantizer, and the lists of rules. Everything else
must be, byte for byte, what faiss itself writes of an empty index of that shape.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import replacing, write_whole

if TYPE_CHECKING:
    from .bank import RuleBank

INDEX, FACTS = "index.faiss", "index.json"
FORMAT = "dynarule index 3"
LISTS_HEAD = (
    32  # "ilar", lists and bytes of a code (8 each), "full" or "sprs", how many numbers say the sizes (8)
)


def empty_index(faiss: Any, width: int, nlist: int) -> Any:
    """Return an index of 8 bits a dimension, not trained."""
    return faiss.index_factory(width, f"IVF{nlist},SQ8", faiss.METRIC_INNER_PRODUCT)


def is_current(bank: RuleBank, folder: Path) -> bool:
    """Return whether a folder holds the index of a bank as it is now; the index itself is not read."""
    facts = _read_facts(folder)
    return bool(bank.digest) and (facts.get("format"), facts.get("bank")) == (FORMAT, bank.digest)


def write_index(faiss: Any, index: Any, bank: RuleBank, folder: Path) -> None:
    """Write an index of all rules of a bank, in the block of `changing`; its facts last, so a kill leaves none."""
    (folder / FACTS).unlink(missing_ok=True)
    with replacing(folder / INDEX) as part:
        faiss.write_index(index, str(part))
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    facts = {"format": FORMAT, "bank": bank.digest, "sha256": digest}
    write_whole(folder / FACTS, json.dumps(facts, indent=1) + "\n")


def read_index(faiss: Any, bank: RuleBank, folder: Path, nlist: int) -> Any:
    """Return the index of a bank; entry i is row i.

    Raises
    ------
    ValueError
        If the file is not what was written, or not an index of this bank's shape.
    """
    path, count, width = folder / INDEX, len(bank), bank.encoder_dim
    try:
        limit = 65_536 + 4 * width * (nlist + 2) + 16 * nlist + count * (width + 8)
        if path.stat().st_size > limit:
            raise ValueError(f"it has {path.stat().st_size:,} bytes, and at most {limit:,} are possible")
        data = np.fromfile(path, np.uint8)
        if hashlib.sha256(data.data).hexdigest() != _read_facts(folder).get("sha256"):
            raise ValueError(f"it is not the file that {FACTS} describes")
        _check(faiss, data, width, nlist, count)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}); make it again: dynarule bank index BANK") from None
    return faiss.deserialize_index(data)


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        if (folder / FACTS).stat().st_size > 4_096:
            return {}
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _check(faiss: Any, data: np.ndarray, width: int, nlist: int, count: int) -> None:
    """Raise ValueError if a file is not an index of `count` rules, of finite numbers, each in exactly one list."""
    low, high = (_frame(faiss, width, nlist, count, word) for word in (0x01010101, 0x02020202))
    lists = len(low) - LISTS_HEAD  # where they begin: an empty index ends with an empty head of lists
    numbers = low[:lists] != high[:lists]  # the bytes of centroids and quantizer
    fixed = np.append(~numbers, np.ones(20, bool))
    if len(data) < len(low) or not np.array_equal(data[: len(fixed)][fixed], low[: len(fixed)][fixed]):
        raise ValueError(f"it has another shape than {count:,} rules of width {width} in {nlist} lists")
    if not np.isfinite(data[:lists][numbers].view(np.float32)).all():
        raise ValueError("a centroid or the quantizer is not finite")
    code_size = int(data[lists + 12 : lists + 20].view(np.uint64)[0])
    sizes, at = _list_sizes(data, lists + 20, nlist)
    if sizes.max(initial=0) > count or sizes.sum() != count or len(data) != at + count * (code_size + 8):
        raise ValueError(f"its lists do not hold {count:,} rules")
    rows = np.empty(count, np.int64)
    done = 0
    for size in sizes.tolist():  # of each list the codes, then the rows
        at += size * code_size
        rows[done : done + size] = np.frombuffer(data, np.int64, size, at)
        done, at = done + size, at + size * 8
    if not np.array_equal(np.sort(rows), np.arange(count)):
        raise ValueError("it does not hold each rule once")


def _frame(faiss: Any, width: int, nlist: int, count: int, word: int) -> np.ndarray:
    """Return the bytes of an index whose numbers are all one word, and that has no rules in its lists."""
    number = np.uint32(word).view(np.float32)
    index = empty_index(faiss, width, nlist)
    index.quantizer.add(np.full((nlist, width), number))
    faiss.copy_array_to_vector(np.full(2 * width, number), index.sq.trained)
    index.is_trained, index.ntotal = True, count
    return faiss.serialize_index(index)


def _list_sizes(data: np.ndarray, at: int, nlist: int) -> tuple[np.ndarray, int]:
    """Return the size of every list, and where the first begins."""
    kind, words = bytes(data[at : at + 4]), int(np.frombuffer(data, np.uint64, 1, at + 4)[0])
    if words > 2 * nlist:
        raise ValueError(f"it has sizes of {words} lists instead of {nlist}")
    given = np.frombuffer(data, np.uint64, words, at + 12)
    if kind == b"full" and words == nlist:
        sizes = given
    elif kind == b"sprs" and words % 2 == 0:  # pairs of list and size: at most half of the lists have rules
        sizes = np.zeros(nlist, np.uint64)
        numbers = given[::2]
        if len(set(numbers.tolist())) != len(numbers) or numbers.max(initial=0) >= nlist:
            raise ValueError("it names a list twice, or one that is not there")
        sizes[numbers.astype(np.int64)] = given[1::2]
    else:
        raise ValueError(f"its lists are of kind {kind!r}")
    return sizes, at + 12 + 8 * words
