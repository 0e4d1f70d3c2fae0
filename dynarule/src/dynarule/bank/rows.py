"""Embeddings by rule that may be more than memory holds twice: mapped from a file, shared, changed in place, grown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class GrowingRows:
    """A matrix or vector that grows at its end without being copied for every row that is added.

    New rows go into the buffer's spare room or, where it has none, into a tail of their own: a few more rules do not
    copy the gigabytes that are mapped from a file. Only ``owned`` rows are written to; else the first change of one
    copies all.
    """

    def __init__(self, given: Tensor, owned: bool = False) -> None:
        self._buffer, self._held, self._owned = given, len(given), owned
        self._tail, self._more = given[:0], 0
        self.width = given.shape[-1]

    def __len__(self) -> int:
        return self._held + self._more

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self._buffer.device

    @property
    def dtype(self) -> torch.dtype:
        """Of their numbers."""
        return self._buffer.dtype

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return some rows, by any shape of indices."""
        if not self._more:
            return self._buffer[rows]
        flat = rows.flatten()
        late = flat >= self._held
        out = self._buffer[: self._held][flat.masked_fill(late, 0)] if self._held else self._tail[flat * 0]
        out[late] = self._tail[flat[late] - self._held]
        return out.view(*rows.shape, *out.shape[1:])

    def tiles(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the first row and the rows of parts of at most ``size``; views."""
        for first, block in ((0, self._buffer[: self._held]), (self._held, self._tail[: self._more])):
            for start in range(0, len(block), size):
                yield first + start, block[start : start + size]

    def whole(self) -> Tensor:
        """Return all rows as one tensor, a view; a tail moves into the buffer first."""
        if self._more:
            self._grow(len(self))
        return self._buffer[: self._held]

    def append(self, rows: Tensor) -> None:
        """Add rows at the end, in amortised time proportional to their number."""
        total = len(self) + len(rows)
        if self._owned and not self._more and total <= len(self._buffer):
            self._buffer[self._held : total] = rows
            self._held = total
            return
        wanted = self._more + len(rows)
        if wanted > len(self._tail):
            self._tail = _with_room(self._tail[: self._more], max(wanted, 2 * self._more))
        self._tail[self._more : wanted] = rows
        self._more = wanted
        if 2 * self._more > self._held:
            self._grow(wanted)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Put values into rows."""
        late = rows >= self._held
        if not self._owned and bool((~late).any()):
            self._own(len(self._buffer))
        self._buffer[rows[~late]] = values[~late] if values.ndim else values
        self._tail[rows[late] - self._held] = values[late] if values.ndim else values

    def cut(self, count: int) -> None:
        """Drop the rows from ``count`` on."""
        self._more = max(0, count - self._held)
        self._held = min(self._held, count)

    def _grow(self, room: int) -> None:
        """Move the tail into the buffer, which gets half as much room again."""
        held, tail = self._held, self._tail[: self._more]
        self._own(max(len(self), held + max(room, held) // 2))
        self._buffer[held : held + len(tail)] = tail
        self._held, self._tail, self._more = held + len(tail), tail[:0], 0

    def _own(self, room: int) -> None:
        self._buffer, self._owned = _with_room(self._buffer[: self._held], room), True


@torch.inference_mode(False)  # buffers born in inference mode could not be changed outside it
def _with_room(rows: Tensor, room: int) -> Tensor:
    new = rows.new_zeros(room, *rows.shape[1:])
    new[: len(rows)] = rows
    return new


class SharedRows:
    """The different embeddings (U, P), and the row of each rule among them, (M,); None: one each, in order.

    Rules of one premise share a key, rules of one conclusion a value: RuleWorld's 4,936,113 rules have 6,845 premises
    and 84,257 conclusions, so what grows with the rules is one number each.
    """

    def __init__(self, different: Tensor, at: Tensor | None = None, owned: bool = False) -> None:
        self.different = GrowingRows(different, owned)
        self._at = None if at is None else GrowingRows(at.to(different.device, torch.int32), owned)

    @property
    def shared(self) -> bool:
        """Whether rules may share an embedding."""
        return self._at is not None

    @property
    def count(self) -> int:
        """M, rules."""
        return len(self.different if self._at is None else self._at)

    def at(self, rules: Tensor) -> Tensor:
        """Return the rows of some rules' embeddings: equal numbers, equal embeddings."""
        return rules if self._at is None else self._at[rules].long()

    def __getitem__(self, rules: Tensor) -> Tensor:
        """Return the embeddings of some rules, (..., P)."""
        return self.different[self.at(rules)]

    def whole(self) -> Tensor:
        """Return one embedding per rule (M, P): a view where none is shared, else a copy."""
        different = self.different.whole()
        return different if self._at is None else different[self._at.whole().long()]

    def to(self, device: torch.device | str, dtype: torch.dtype | None) -> SharedRows:
        """Return a copy there."""
        return SharedRows(
            self.different.whole().to(device, dtype), None if self._at is None else self._at.whole()
        )

    def append(self, other: SharedRows) -> None:
        """Add another bank's rules at the end, in amortised time proportional to their number."""
        if self._at is None and other._at is None:
            self.different.append(self._like(other))
            return
        taken = self._take(other, self.count + other.count)
        self._numbers().append(taken)

    def write(self, rules: Tensor, other: SharedRows) -> None:
        """Put another bank's embeddings in the place of some rules'."""
        if self._at is None and other._at is None:
            self.different.write(rules, self._like(other))
            return
        taken = self._take(other, self.count)
        self._numbers().write(rules, taken)

    def move(self, into: Tensor, of: Tensor) -> None:
        """Give some rules the embeddings of others."""
        moved = self.different if self._at is None else self._at
        moved.write(into, moved[of])

    def cut(self, count: int) -> None:
        """Drop the rules from ``count`` on."""
        (self.different if self._at is None else self._at).cut(count)

    def _like(self, other: SharedRows) -> Tensor:
        return other.different.whole().detach().to(self.different.device, self.different.dtype)

    def _numbers(self) -> GrowingRows:
        """Return the row of each rule, which from now on is kept."""
        if self._at is None:
            every = torch.arange(len(self.different), dtype=torch.int32, device=self.different.device)
            self._at = GrowingRows(every, owned=True)
        return self._at

    def _take(self, other: SharedRows, count: int) -> Tensor:
        """Take over another bank's embeddings, and return the rows of its rules."""
        at = self._numbers().whole()
        if len(self.different) > 2 * count:
            # most are of rules that have gone: a bank that is changed for years must not grow
            used_U, at = at.unique(return_inverse=True)
            self.different = GrowingRows(self.different[used_U.long()], owned=True)
            self._at = GrowingRows(at.to(torch.int32), owned=True)
        first = len(self.different)
        self.different.append(self._like(other))
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
