"""Embeddings by rule, shared between rules, mapped from a file until they change; the best of many scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

BLOCKED, BLOCK = 1 << 18, 256  # more scores than this are looked through in blocks of so many


class SharedRows:
    """The different embeddings (U, P), and the row of each rule among them, (M,); None: one each, in order.

    Rules of one premise share a key, rules of one conclusion a value: RuleWorld's 4,936,113 rules have 6,845 premises
    and 84,257 conclusions, so what grows with the rules is one number each. Nothing is ever written to: a bank that
    changes has new ones, and embeddings that are mapped from a file stay as they are there.
    """

    def __init__(self, different: Tensor, at: Tensor | None = None) -> None:
        self.different = different  # some of them perhaps of rules that have gone
        self.at_M = None if at is None else at.to(different.device, torch.int32)

    def __len__(self) -> int:
        """Return M, rules."""
        return len(self.different if self.at_M is None else self.at_M)

    @property
    def shared(self) -> bool:
        """Whether rules may share an embedding."""
        return self.at_M is not None

    def at(self, rules: Tensor) -> Tensor:
        """Return the rows of some rules' embeddings: equal numbers, equal embeddings."""
        return rules if self.at_M is None else self.at_M[rules].long()

    def __getitem__(self, rules: Tensor) -> Tensor:
        """Return the embeddings of some rules, (..., P)."""
        return self.different[self.at(rules.to(self.different.device))]

    @cached_property
    def every(self) -> Tensor:
        """`at` of all rules, (M,)."""
        return self.at(torch.arange(len(self), device=self.different.device))

    def whole(self) -> Tensor:
        """Return one embedding per rule (M, P): the tensor itself where none is shared, else a copy."""
        return self.different if self.at_M is None else self.different[self.at_M.long()]

    def used(self) -> SharedRows:
        """Return the same rules with no embedding that none has; where each has its own, in order."""
        if self.at_M is None:
            return self
        used_U, at_M = self.at_M.unique(return_inverse=True)
        rows = self.different[used_U.long()]
        return SharedRows(rows[at_M]) if len(used_U) == len(at_M) else SharedRows(rows, at_M)

    def to(self, device: torch.device | str, dtype: torch.dtype | None) -> SharedRows:
        """Return a copy there."""
        return SharedRows(self.different.to(device, dtype), self.at_M)

    def followed_by(self, other: SharedRows) -> SharedRows:
        """Return these rules with another bank's behind them."""
        theirs = other.different.detach().to(self.different.device, self.different.dtype)
        both = torch.cat([self.different, theirs])
        if self.at_M is None and other.at_M is None:
            return SharedRows(both)
        return SharedRows(both, torch.cat([self.every, len(self.different) + other.every.to(both.device)]))

    def take(self, rules: Tensor) -> SharedRows:
        """Return some of the rules, in this order; nothing is copied where these are all of them."""
        if rules.equal(torch.arange(len(self), device=rules.device)) and not self.shared:
            return self
        if self.at_M is None:
            return SharedRows(self.different[rules])
        taken = SharedRows(self.different, self.at_M[rules])
        # Where most are of rules that have gone: a bank that is changed for years must not grow.
        return taken.used() if len(self.different) > 2 * len(rules) else taken


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
        if at is None or not len(at):
            continue
        if at.ndim != 1 or at.is_floating_point() or not 0 <= int(at.min()) <= int(at.max()) < len(rows):
            raise ValueError(f"{name} rows must be whole numbers, 0 to {len(rows) - 1}, the last {name}")
    alike = keys_UP.dtype == values_VP.dtype and keys_UP.is_floating_point() and keys_UP.itemsize >= 2
    if not alike or not keys_UP.shape[1]:
        raise ValueError(
            "keys and values must be fp32, bf16 or fp16, both alike, and at least one number wide, got "
            f"{keys_UP.dtype} and {values_VP.dtype}, width {keys_UP.shape[1]}"
        )
    for name, (rows, at) in (("key", keys), ("value", values)):
        # the square of a length, which scores need, too; in blocks, so that a mapped bank is not copied
        finite = torch.isfinite(torch.cat([part.float().square().sum(-1) for part in rows.split(8_192)]))
        if not bool(finite.all()):
            bad = ~(finite if at is None else finite[at.to(finite.device).long()])
            if bool(bad.any()):
                raise ValueError(
                    f"the {name} embedding of rule {ids[int(bad.nonzero()[0])]!r} is not finite, or too long"
                )


def largest(scores_BM: Tensor, count: int, allowed_BM: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest scores of each row, of those that are allowed, and their places, (B, count), largest first.

    ``topk`` on a CPU takes 170 ms for 4.9 million numbers. They lie in the ``count`` blocks of the largest maxima: were
    one elsewhere, ``count`` blocks would hold something larger.
    """
    scores_BM = among(allowed_BM, scores_BM)
    rows, total = scores_BM.shape
    whole = total // BLOCK * BLOCK
    if total <= BLOCKED or count > whole // BLOCK:
        best = scores_BM.topk(count, -1)
        return best.values, best.indices
    blocks_BNS = scores_BM[:, :whole].view(rows, -1, BLOCK)
    chosen_BC = blocks_BNS.amax(-1).topk(count, -1).indices
    rest_R = torch.arange(whole, total, device=scores_BM.device)
    inside_S = torch.arange(BLOCK, device=scores_BM.device)
    at_BL = torch.cat([(chosen_BC[..., None] * BLOCK + inside_S).flatten(1), rest_R.expand(rows, -1)], 1)
    best = scores_BM.gather(1, at_BL).topk(count, -1)
    return best.values, at_BL.gather(1, best.indices)


def among(allowed_BM: Tensor | None, scores_BM: Tensor) -> Tensor:
    """Return scores in which rules that are not allowed have -inf; None: all are."""
    if allowed_BM is None:
        return scores_BM
    return scores_BM.masked_fill(~allowed_BM.to(scores_BM.device), -torch.inf)
