"""Embeddings by rule: shared between rules, mapped from a file until they change, and grown in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class GrowingRows:
    """A tensor that grows at its end: with spare room, so that rows which come one by one copy it a few times only."""

    def __init__(self, rows: Tensor) -> None:
        self._buffer, self._count, self._owned = rows, len(rows), False

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Tensor:
        """All rows, a view that a later change may write to."""
        return self._buffer[: self._count]

    def append(self, more: Tensor) -> None:
        """Add rows at the end, in amortised time proportional to their number."""
        total = self._count + len(more)
        self._reserve(total)
        self._buffer[self._count : total] = more
        self._count = total

    def write(self, at: Tensor, values: Tensor) -> None:
        """Put values into rows."""
        if len(at):
            self._reserve(self._count)
            self._buffer[at] = values

    def cut(self, count: int) -> None:
        """Drop the rows from ``count`` on."""
        self._count = count

    @torch.inference_mode(False)  # a buffer born in inference mode could not be changed outside it
    def _reserve(self, total: int) -> None:
        if self._owned and total <= len(self._buffer):
            return
        room = max(total, self._count * 3 // 2) if total > self._count else total
        grown = self._buffer.new_zeros(room, *self._buffer.shape[1:])
        grown[: self._count] = self.rows
        self._buffer, self._owned = grown, True  # what was given is the caller's, or mapped from a file


class SharedRows:
    """The different embeddings (U, P), and the row of each rule among them, (M,); None: one each, in order.

    Rules of one premise share a key, rules of one conclusion a value: RuleWorld's 4,936,113 rules have 6,845 premises
    and 84,257 conclusions, so what grows with the rules is one number each.
    """

    def __init__(self, different: Tensor, at: Tensor | None = None) -> None:
        self._different = GrowingRows(different)
        self._at = None if at is None else GrowingRows(at.to(different.device, torch.int32))

    @property
    def different(self) -> Tensor:
        """Embeddings (U, P), some of them perhaps of rules that have gone; a view."""
        return self._different.rows

    @property
    def shared(self) -> bool:
        """Whether rules may share an embedding."""
        return self._at is not None

    @property
    def count(self) -> int:
        """M, rules."""
        return len(self._rule_rows)

    @property
    def _rule_rows(self) -> GrowingRows:
        return self._different if self._at is None else self._at

    def at(self, rules: Tensor) -> Tensor:
        """Return the rows of some rules' embeddings: equal numbers, equal embeddings."""
        return rules if self._at is None else self._at.rows[rules].long()

    def __getitem__(self, rules: Tensor) -> Tensor:
        """Return the embeddings of some rules, (..., P)."""
        return self.different[self.at(rules)]

    def whole(self) -> Tensor:
        """Return one embedding per rule (M, P): a view where none is shared, else a copy."""
        return self.different if self._at is None else self.different[self._at.rows.long()]

    def used(self) -> tuple[Tensor, Tensor]:
        """Return the embeddings that some rule has, and the row of each rule; no rows where every rule has its own."""
        if self._at is None:
            return self.different, torch.empty(0, dtype=torch.int32)
        used_U, at_M = self._at.rows.unique(return_inverse=True)
        return self.different[used_U.long()], at_M.to(torch.int32)

    def to(self, device: torch.device | str, dtype: torch.dtype | None) -> SharedRows:
        """Return a copy there."""
        return SharedRows(self.different.to(device, dtype), None if self._at is None else self._at.rows)

    def append(self, other: SharedRows) -> None:
        """Add another bank's rules at the end, in amortised time proportional to their number."""
        taken = self._take(other, self.count + other.count)
        self._rule_rows.append(taken)

    def write(self, rules: Tensor, other: SharedRows) -> None:
        """Put another bank's embeddings in the place of some rules'."""
        taken = self._take(other, self.count)
        self._rule_rows.write(rules, taken)

    def move(self, into: Tensor, of: Tensor) -> None:
        """Give some rules the embeddings of others."""
        self._rule_rows.write(into, self._rule_rows.rows[of])

    def cut(self, count: int) -> None:
        """Drop the rules from ``count`` on."""
        self._rule_rows.cut(count)

    def _take(self, other: SharedRows, count: int) -> Tensor:
        """Return what stands for another bank's rules here: their embeddings or, once any are shared, their rows."""
        theirs = other.different.detach().to(self.different.device, self.different.dtype)
        if self._at is None and other._at is None:
            return theirs
        if self._at is None:
            every = torch.arange(len(self._different), dtype=torch.int32, device=self.different.device)
            self._at = GrowingRows(every)
        if len(self._different) > 2 * count:
            # most are of rules that have gone: a bank that is changed for years must not grow
            used, at = self.used()
            self._different, self._at = GrowingRows(used), GrowingRows(at)
        first = len(self._different)
        self._different.append(theirs)
        every = torch.arange(other.count, device=other.different.device)
        return first + other.at(every).to(self.different.device, torch.int32)


def used_rows(rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the rows that are used, and where; None where each is used once, in order."""
    used, at = at.to(rows.device).long().unique(return_inverse=True)
    if len(used) == len(at):
        return rows[used[at]], None
    return rows[used], at.to(torch.int32)


def check_embeddings(
    ids: Sequence[str], keys: tuple[Tensor, Tensor | None], values: tuple[Tensor, Tensor | None]
) -> None:
    """Raise ValueError unless these are finite keys (U, P) and values (V, P), and rows of them for every id."""
    (keys_UP, _), (values_VP, _) = keys, values
    for name, (rows, at) in (("key", keys), ("value", values)):
        count = len(rows if at is None else at)
        if rows.ndim != 2 or rows.shape[1] != keys_UP.shape[-1] or count != len(ids):
            raise ValueError(
                "keys and values must be (rules, encoder width) and as many as ids, got keys "
                f"{tuple(keys_UP.shape)}, values {tuple(values_VP.shape)}, {len(ids)} ids"
            )
        if at is not None and len(at) and not 0 <= int(at.min()) <= int(at.max()) < len(rows):
            raise ValueError(f"{name} rows must be 0 to {len(rows) - 1}, the last of the {name}s")
    alike = keys_UP.dtype == values_VP.dtype and keys_UP.is_floating_point() and keys_UP.itemsize >= 2
    if not alike or not keys_UP.shape[1]:
        raise ValueError(
            "keys and values must be fp32, bf16 or fp16, both alike, and at least one number wide, got "
            f"{keys_UP.dtype} and {values_VP.dtype}, width {keys_UP.shape[1]}"
        )
    for name, (rows, at) in (("key", keys), ("value", values)):
        # a sum is finite only where all its terms are; in blocks, so that a mapped bank is not copied
        finite = torch.isfinite(torch.cat([part.float().sum(-1) for part in rows.split(8_192)]))
        if not bool(finite.all()):
            bad = ~(finite if at is None else finite[at.to(finite.device).long()])
            if bool(bad.any()):
                raise ValueError(f"the {name} embedding of rule {ids[int(bad.nonzero()[0])]!r} is not finite")
