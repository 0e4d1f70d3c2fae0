"""Building a bank in parts, by any number of processes and machines that share a folder.

The contract is that of ``ruleworld build`` and ``rwbench run``. The work is a list of units in an order that depends
on the input alone; here a unit is a block of different texts. Each is a file that is written whole or not at all and
says what it is of. ``--shard i/n`` makes every n-th unit from the i-th on, and leaves those that are there; any n, any
order and any number of tries make the same files. ``--merge`` makes none, says what is missing, and assembles the bank.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._files import changing, part_of, write_whole
from .bank import RuleBank
from .embedding_cache import Encode, encode_unique
from .encoders import key_texts
from .files import Stored, StreamedTensor, is_bank, replaced, write_bank
from .sources import Rules

BLOCK = 16_384
"""Texts of a unit. Always encoded together: what shares a batch decides the last bits of an embedding."""
PARTS, HEAD = ".parts", "plan.json"
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
Shard = tuple[int, int]
"""Which units: (i, n) for every n-th from the i-th on, 1 <= i <= n."""


def parse_shard(text: str) -> Shard:
    """Read ``i/n``; nothing is ``1/1``, all units.

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
    """What will be built: rules, the different texts to embed, and which are each rule's key and its conclusion."""

    rules: Rules
    texts: list[str]
    key_at: Tensor
    conclusion_at: Tensor
    head: dict[str, object]
    folder: Path

    @property
    def blocks(self) -> int:
        """Units in all."""
        return -(-len(self.texts) // BLOCK)

    def path(self, block: int) -> Path:
        """Return where a unit is written."""
        return self.folder / PARTS / f"{block + 1:05d}-of-{self.blocks:05d}.safetensors"

    def missing(self) -> list[int]:
        """Return the units that are not there."""
        return [block for block in range(self.blocks) if not self.path(block).is_file()]


def plan_bank(rules: Rules, folder: Path, encoder: str | None = None, dtype: str = "fp32") -> BankPlan:
    """Say what a bank is made of; no unit is looked at.

    Parameters
    ----------
    rules : Rules
        Checked rules.
    folder : path
        The bank's folder, in which the units lie until they are merged.
    encoder : str or None
        Its fingerprint; None: that of the units which are there.
    dtype : str
        ``fp32``, ``fp16`` or ``bf16``.

    Raises
    ------
    FileNotFoundError
        Without an encoder, if there are no units.
    ValueError
        If the folder holds units of other rules, another encoder or another dtype.
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
    there = folder / PARTS / HEAD
    if there.is_file():
        found = json.loads(there.read_text(encoding="utf-8"))
        if encoder is None:
            head |= {name: found.get(name) for name in ("encoder", "dtype")}
        for name, value in head.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{folder} holds parts of another bank: {name} is {found.get(name)!r} there and {value!r} here; "
                    f"choose another folder, or delete {folder / PARTS}"
                )
    elif encoder is None:
        raise FileNotFoundError(
            f"no parts of a bank in {folder}; make them with: dynarule bank build --shard 1/1"
        )
    place: dict[str, int] = {}
    told = [*key_texts(rules.texts, str(head["encoder"] or "")), *rules.conclusions]
    at = torch.tensor([place.setdefault(text, len(place)) for text in told], dtype=torch.long)
    key_at, conclusion_at = at.tensor_split(2)
    return BankPlan(rules, list(place), key_at, conclusion_at, head, folder)


def build_parts(
    plan: BankPlan,
    encode: Encode,
    shard: Shard = (1, 1),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Make the units of a shard that are not there; ``progress`` is told how many of how many are."""
    folder = plan.folder / PARTS
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / HEAD, json.dumps(plan.head))
    mine = range(shard[0] - 1, plan.blocks, shard[1])
    for done, block in enumerate(mine, 1):
        path = plan.path(block)
        if not path.is_file():
            with part_of(path) as part:
                if not path.is_file():  # or another process made it while this one waited
                    _write_block(plan, block, encode, part)
                    part.replace(path)
        if progress:
            progress(done, len(mine))


def _write_block(plan: BankPlan, block: int, encode: Encode, path: Path) -> None:
    from safetensors.torch import save_file

    rows = encode_unique(encode, plan.texts[block * BLOCK : (block + 1) * BLOCK])
    kept = rows.detach().cpu().to(DTYPES[str(plan.head["dtype"])]).contiguous()
    bad = (~torch.isfinite(kept).all(-1)).nonzero()
    if len(bad):
        text = plan.texts[block * BLOCK + int(bad[0])]
        raise ValueError(
            f"the embedding of {text!r:.80} does not fit {plan.head['dtype']}; build the bank with --dtype fp32"
        )
    save_file({"rows": kept}, path, {name: str(value) for name, value in plan.head.items()})


def merge_parts(plan: BankPlan, overwrite: bool = False) -> RuleBank:
    """Assemble the bank from its units, which then go.

    Raises
    ------
    ValueError
        If a unit is missing, damaged or of another bank, by name.
    """
    if missing := plan.missing():
        names = ", ".join(plan.path(block).name for block in missing[:3])
        raise ValueError(
            f"{len(missing)} of {plan.blocks} parts are missing in {plan.folder / PARTS}, such as {names}; make them "
            "with the same command and --shard i/n, or with neither --shard nor --merge"
        )
    units = [_open_block(plan, block) for block in range(plan.blocks)]
    keys, values = (_gathered(units, at) for at in (plan.key_at, plan.conclusion_at))
    with changing(plan.folder):
        if is_bank(plan.folder) and not overwrite:
            raise FileExistsError(f"{plan.folder} exists already; choose a new folder, or --overwrite")
        with replaced(plan.folder) as file:
            write_bank(
                file,
                ids=plan.rules.ids,
                texts=plan.rules.texts,
                encoder=str(plan.head["encoder"] or ""),
                keys=keys,
                values=values,
            )
        shutil.rmtree(plan.folder / PARTS)
    return RuleBank.load(plan.folder)


def _open_block(plan: BankPlan, block: int) -> Tensor:
    """Map a unit's rows, checked against the plan."""
    from safetensors import SafetensorError, safe_open

    path = plan.path(block)
    try:
        with safe_open(path, "pt") as file:
            about, rows = file.metadata() or {}, file.get_tensor("rows")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"the part {path} is damaged ({error}); delete it and make it again") from None
    for name, value in plan.head.items():
        if about.get(name) != str(value):
            raise ValueError(
                f"the part {path} is of another bank: {name} is {about.get(name)!r} there and {str(value)!r} in "
                f"{HEAD}; delete it and make it again"
            )
    if rows.ndim != 2 or len(rows) != min(BLOCK, len(plan.texts) - block * BLOCK):
        raise ValueError(f"the part {path} holds {tuple(rows.shape)} numbers; delete it and make it again")
    return rows


def _gathered(units: list[Tensor], at: Tensor) -> Stored:
    """Return the rows of all units that rules have, and whose they are."""
    used, at = at.unique(return_inverse=True)
    one_each = torch.equal(at, torch.arange(len(used)))
    shape = (len(used), units[0].shape[1])
    return Stored(StreamedTensor(units[0].dtype, shape, _rows(units, used)), at[:0] if one_each else at)


def _rows(units: list[Tensor], rows: Tensor) -> Iterator[Tensor]:
    """Yield rows of all units, given in ascending order."""
    for number, unit in enumerate(units):
        here = rows[(rows >= number * BLOCK) & (rows < (number + 1) * BLOCK)]
        if len(here):
            yield unit[here - number * BLOCK]
