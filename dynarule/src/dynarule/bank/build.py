"""Building a bank in parts, by any number of processes and machines that share a folder.

The contract is that of ``ruleworld build`` and ``rwbench run``: a part is a block of different texts, in an order that
depends on the rules alone, and a file that is written whole or not at all and says what it is of. ``--shard i/n``
makes every n-th part from the i-th on that is not there; any n, order and number of tries make the same files.
``--merge`` makes none, says what is missing, and assembles the bank.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._files import changing, write_once, write_whole
from .bank import RuleBank
from .embedding_cache import Encode, encode_unique, unique_texts
from .encoders import key_texts
from .sources import Rules
from .storage import Stored, StreamedTensor, check_place, replaced, write_bank

BLOCK = 16_384
"""Texts of a part. Always encoded together: what shares a batch decides the last bits of an embedding."""
PARTS, HEAD = ".parts", "plan.json"
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
Shard = tuple[int, int]
"""Which parts: (i, n) for every n-th from the i-th on, 1 <= i <= n."""


def parse_shard(text: str) -> Shard:
    """Read ``i/n``; an empty text is ``1/1``, all parts.

    Examples
    --------
    >>> parse_shard("2/16"), parse_shard("")
    ((2, 16), (1, 1))
    """
    number, _, total = text.partition("/") if text else ("1", "/", "1")
    if number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise ValueError(f"--shard must be i/n with 1 <= i <= n, such as 2/16, got {text!r}")


class BankPlan(NamedTuple):
    """What will be built: rules, the different texts to embed, and the rows of keys and conclusions among them."""

    rules: Rules
    texts: list[str]
    rows: Tensor
    head: dict[str, object]
    folder: Path

    @property
    def blocks(self) -> int:
        """Parts in all."""
        return -(-len(self.texts) // BLOCK)

    def path(self, block: int) -> Path:
        """Return where a part is written."""
        return self.folder / PARTS / f"{block + 1:05d}-of-{self.blocks:05d}.safetensors"

    def missing(self) -> list[int]:
        """Return the parts that are not there."""
        return [block for block in range(self.blocks) if not self.path(block).is_file()]


def plan_bank(rules: Rules, folder: Path, encoder: str | None = None, dtype: str = "fp32") -> BankPlan:
    """Say what a bank is made of; no part is looked at.

    Parameters
    ----------
    rules : Rules
        Checked rules.
    folder : path
        The bank's folder, in which the parts lie until they are merged.
    encoder : str or None
        Its fingerprint; None: that of the parts which are there.
    dtype : str
        ``fp32``, ``fp16`` or ``bf16``.

    Raises
    ------
    FileNotFoundError
        Without an encoder, if there are no parts.
    ValueError
        If the folder holds parts of other rules, another encoder or another dtype.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    digest = hashlib.sha256()
    for column in rules:
        digest.update(json.dumps(column).encode())
    head: dict[str, object] = {
        "format": "dynarule bank parts 2",
        "rules": digest.hexdigest(),
        "encoder": encoder,
        "dtype": dtype,
    }
    path = folder / PARTS / HEAD
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        if encoder is None:
            head |= {name: before.get(name) for name in ("encoder", "dtype")}
        _check_head(
            before, head, f"{folder} holds parts", f"choose another folder, or delete {folder / PARTS}"
        )
    elif encoder is None:
        raise FileNotFoundError(
            f"no parts of a bank in {folder}; make them with: dynarule bank build --shard 1/1"
        )
    texts, rows = unique_texts([*key_texts(rules.texts, str(head["encoder"] or "")), *rules.conclusions])
    return BankPlan(rules, texts, rows, head, folder)


def _check_head(there: Mapping[str, object], here: Mapping[str, object], what: str, remedy: str) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            raise ValueError(
                f"{what} of another bank: {name} is {there.get(name)!r} there and {value!r} here; {remedy}"
            )


def build_parts(
    plan: BankPlan, encode: Encode, shard: Shard = (1, 1), progress: Callable[[int, int], None] | None = None
) -> None:
    """Make the parts of a shard that are not there; ``progress`` gets the number of them that are, and all."""
    folder = plan.folder / PARTS
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / HEAD, json.dumps(plan.head))
    mine = range(shard[0] - 1, plan.blocks, shard[1])
    for done, block in enumerate(mine, 1):
        write_once(plan.path(block), lambda part, block=block: _write_block(plan, block, encode, part))  # type: ignore[misc]
        if progress:
            progress(done, len(mine))


def _write_block(plan: BankPlan, block: int, encode: Encode, path: Path) -> None:
    from safetensors.torch import save_file

    texts = plan.texts[block * BLOCK : (block + 1) * BLOCK]
    rows = encode_unique(encode, texts).detach().cpu().to(DTYPES[str(plan.head["dtype"])]).contiguous()
    bad = (~torch.isfinite(rows).all(-1)).nonzero()
    if len(bad):
        raise ValueError(
            f"the embedding of {texts[int(bad[0])]!r:.80} does not fit {plan.head['dtype']}; build the bank with "
            "--dtype fp32"
        )
    save_file({"rows": rows}, path, {name: str(value) for name, value in plan.head.items()})


def merge_parts(plan: BankPlan, overwrite: bool = False) -> RuleBank:
    """Assemble the bank from its parts, which then go.

    Raises
    ------
    ValueError
        If a part is missing, damaged or of another bank, by name.
    """
    if missing := plan.missing():
        names = ", ".join(plan.path(block).name for block in missing[:3])
        raise ValueError(
            f"{len(missing)} of {plan.blocks} parts are missing in {plan.folder / PARTS}, such as {names}; make them "
            "with the same command and --shard i/n, or with neither --shard nor --merge"
        )
    parts = [_open_block(plan, block) for block in range(plan.blocks)]
    keys, values = (_gathered(parts, rows) for rows in plan.rows.tensor_split(2))
    with changing(plan.folder):
        check_place(plan.folder, overwrite)
        with replaced(plan.folder) as file:
            encoder = str(plan.head["encoder"] or "")
            write_bank(file, plan.rules.ids, plan.rules.texts, encoder, keys, values)
        shutil.rmtree(plan.folder / PARTS)
    return RuleBank.load(plan.folder)


def _open_block(plan: BankPlan, block: int) -> Tensor:
    """Map a part's rows, checked against the plan."""
    from safetensors import SafetensorError, safe_open

    path = plan.path(block)
    try:
        with safe_open(path, "pt") as file:
            head, rows = file.metadata() or {}, file.get_tensor("rows")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"the part {path} is damaged ({error}); delete it and make it again") from None
    wanted = {name: str(value) for name, value in plan.head.items()}
    _check_head(head, wanted, f"the part {path} is", "delete it and make it again")
    if rows.ndim != 2 or len(rows) != min(BLOCK, len(plan.texts) - block * BLOCK):
        raise ValueError(f"the part {path} holds {tuple(rows.shape)} numbers; delete it and make it again")
    return rows


def _gathered(parts: list[Tensor], at: Tensor) -> Stored:
    """Return the rows of all parts that some rule has, and the row of each rule among them."""
    used, at = at.unique(return_inverse=True)
    one_each = torch.equal(at, torch.arange(len(used)))
    shape = (len(used), parts[0].shape[1])
    return Stored(StreamedTensor(parts[0].dtype, shape, _rows(parts, used)), at[:0] if one_each else at)


def _rows(parts: list[Tensor], rows: Tensor) -> Iterator[Tensor]:
    """Yield rows of all parts, given in ascending order."""
    for number, part in enumerate(parts):
        inside = rows[(rows >= number * BLOCK) & (rows < (number + 1) * BLOCK)]
        if len(inside):
            yield part[inside - number * BLOCK]
