"""Embeddings by rule, of which rules may share one: rules of one premise a key, rules of one conclusion a value.

RuleWorld's 4,936,113 rules have 6,845 premises and 84,257 conclusions, and rule books of this world repeat themselves
as well, so what grows with the rules is one number for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .rows import GrowingRows


class SharedRows:
    """The different embeddings, and where each rule's is among them.

    Parameters
    ----------
    different : Tensor
        (U, P).
    at : Tensor of int or None
        (M,); None: one each, in the order of the rules.
    ours : bool
        Whether both may be written to, see `GrowingRows`.
    """

    def __init__(self, different: Tensor, at: Tensor | None = None, ours: bool = False) -> None:
        self.different = GrowingRows(different, ours)
        self._at = None if at is None else GrowingRows(at.to(different.device, torch.int32), ours)

    @property
    def shared(self) -> bool:
        """Whether rules may share an embedding, so that there is a number for each."""
        return self._at is not None

    @property
    def count(self) -> int:
        """M, rules."""
        return len(self.different if self._at is None else self._at)

    def at(self, rules: Tensor) -> Tensor:
        """Return where the embeddings of some rules are: equal numbers, equal embeddings."""
        return rules if self._at is None else self._at[rules].long()

    def __getitem__(self, rules: Tensor) -> Tensor:
        """Return the embeddings of some rules, (..., P)."""
        return self.different[self.at(rules)]

    def whole(self) -> Tensor:
        """Return one embedding per rule (M, P): a view where none is shared, else a copy."""
        every = self.different.whole()
        return every if self._at is None else every[self._at.whole().long()]

    def tiles(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the first rule and the embeddings of parts of at most so many rules."""
        if self._at is None:
            yield from self.different.tiles(size)
        else:
            for start, at in self._at.tiles(size):
                yield start, self.different[at.long()]

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
        """Return where each rule's are, from now on a number for each."""
        if self._at is None:
            self._at = GrowingRows(
                torch.arange(len(self.different), dtype=torch.int32, device=self.different.device), ours=True
            )
        return self._at

    def _take(self, other: SharedRows, count: int) -> Tensor:
        """Take over another bank's embeddings, and return the numbers of its rules."""
        at = self._numbers().whole()
        if len(self.different) > 2 * count:
            # Most are of rules that have gone: a bank that is changed for years must not grow.
            used_U, at = at.unique(return_inverse=True)
            self.different = GrowingRows(self.different[used_U.long()], ours=True)
            self._at = GrowingRows(at.to(torch.int32), ours=True)
        first = len(self.different)
        self.different.append(self._like(other))
        return first + other.at(torch.arange(other.count, device=other.different.device)).to(
            self.different.device, torch.int32
        )
