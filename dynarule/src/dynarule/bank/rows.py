"""Rows of a bank that may be more than memory holds twice: mapped from a file, changed in place, grown at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class GrowingRows:
    """A matrix, or a vector, that grows at its end without being copied for every row that is added.

    New rows go into the buffer's room or, where it has none, into a tail of their own: a few rules more do not copy
    the gigabytes that are mapped from a file.

    Parameters
    ----------
    given : Tensor
        The first rows; (N, ...).
    ours : bool
        Whether they may be written to: of a mapped file, privately, page by page. Else the first change of one of
        them copies all.
    """

    def __init__(self, given: Tensor, ours: bool = False) -> None:
        self._buffer, self._held, self._ours = given, len(given), ours
        self._tail, self._more = given[:0], 0

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

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self._buffer.shape[-1]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return some rows, by any shape of indices."""
        if not self._more:
            return self._buffer[rows]
        flat = rows.flatten()
        late = flat >= self._held
        found = self._buffer[: self._held][flat.masked_fill(late, 0)] if self._held else self._tail[flat * 0]
        found[late] = self._tail[flat[late] - self._held]
        return found.view(*rows.shape, *found.shape[1:])

    def tiles(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the first row and the rows of parts of at most so many; views."""
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
        more = len(self) + len(rows)
        if self._ours and not self._more and more <= len(self._buffer):
            self._buffer[self._held : more] = rows
            self._held = more
            return
        wanted = self._more + len(rows)
        if wanted > len(self._tail):
            self._tail = _roomy(self._tail[: self._more], max(wanted, 2 * self._more))
        self._tail[self._more : wanted] = rows
        self._more = wanted
        if 2 * self._more > self._held:
            self._grow(wanted)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Put values into rows."""
        late = rows >= self._held
        if not self._ours and bool((~late).any()):
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
        self._buffer, self._ours = _roomy(self._buffer[: self._held], room), True


@torch.inference_mode(False)  # buffers born in inference mode could not be changed outside it
def _roomy(rows: Tensor, room: int) -> Tensor:
    new = rows.new_zeros(room, *rows.shape[1:])
    new[: len(rows)] = rows
    return new


def used_rows(rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return those of some rows that are used, and where; None, where each is used once, in order."""
    used, at = at.to(rows.device).long().unique(return_inverse=True)
    if len(used) == len(at):
        return rows[used[at]], None
    return rows[used], at.to(torch.int32)


def check_embeddings(
    ids: Sequence[str], keys: tuple[Tensor, Tensor | None], values: tuple[Tensor, Tensor | None]
) -> None:
    """Raise ValueError if these are no keys (U, P) and values (V, P), and whose they are, of so many rules."""
    (keys_UP, _), (values_VP, _) = keys, values
    for name, (rows, at) in (("key", keys), ("value", values)):
        if (
            rows.ndim != 2
            or rows.shape[1] != keys_UP.shape[-1]
            or len(rows if at is None else at) != len(ids)
        ):
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
        # A sum is finite only where all its terms are; in blocks, so that a mapped bank is not copied.
        sums = [part.float().sum(-1) for part in rows.split(8_192)]
        finite = torch.isfinite(torch.cat(sums))
        if not bool(finite.all()):
            bad = ~(finite if at is None else finite[at.to(finite.device).long()])
            if bool(bad.any()):
                raise ValueError(f"the {name} embedding of rule {ids[int(bad.nonzero()[0])]!r} is not finite")
