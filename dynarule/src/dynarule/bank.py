"""The rules themselves: texts, embeddings and ids, shared by all layers, changed while serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Encode = Callable[[Sequence[str]], Tensor]
"""Texts to embeddings (N, P), the document side of a sentence encoder."""


@dataclass(frozen=True)
class BankRule:
    """One rule of a bank, for traces: its id and text."""

    id: str
    text: str


class RuleBank:
    """Rules as embeddings: the whole rule is the key, its conclusion the value.

    Parameters
    ----------
    keys_MP, values_MP : Tensor
        Embeddings of rules and of conclusions.
    ids, texts : sequence of str
        Provenance, one per rule; ids are unique.
    encoder : str
        Name and revision of the encoder, so that banks and adapters that do not fit are refused.

    Raises
    ------
    ValueError
        If shapes differ, an id comes twice, a text is empty, or an embedding is not finite.
    """

    def __init__(
        self, keys_MP: Tensor, values_MP: Tensor, ids: Sequence[str], texts: Sequence[str], encoder: str = ""
    ) -> None:
        self.encoder = encoder
        self.version = 0
        self.keys_MP, self.values_MP = keys_MP, values_MP
        self.ids, self.texts = list(ids), list(texts)
        self._check()

    @classmethod
    def from_texts(
        cls,
        rules: Sequence[str],
        conclusions: Sequence[str],
        encode: Encode,
        ids: Sequence[str] | None = None,
        encoder: str = "",
    ) -> RuleBank:
        """Embed rules and their conclusions."""
        names = [str(i) for i in range(len(rules))] if ids is None else list(ids)
        return cls(encode(list(rules)), encode(list(conclusions)), names, list(rules), encoder)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def encoder_dim(self) -> int:
        """P."""
        return self.keys_MP.shape[-1]

    def __getitem__(self, row: int) -> BankRule:
        return BankRule(self.ids[row], self.texts[row])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> RuleBank:
        """Move the embeddings."""
        self.keys_MP = self.keys_MP.to(device, dtype)
        self.values_MP = self.values_MP.to(device, dtype)
        self.version += 1
        return self

    def add(self, other: RuleBank) -> None:
        """Append another bank's rules.

        Raises
        ------
        ValueError
            If the other bank has another encoder or width, or an id is there already.
        """
        if other.encoder != self.encoder or other.encoder_dim != self.encoder_dim:
            raise ValueError(
                f"cannot add rules of encoder {other.encoder!r} (width {other.encoder_dim}) to a bank of "
                f"{self.encoder!r} (width {self.encoder_dim}); encode them with the bank's encoder"
            )
        known = set(self.ids)
        twice = [name for name in other.ids if name in known]
        if twice:
            raise ValueError(f"rule {twice[0]!r} is in the bank already; remove it first, or use replace")
        self.keys_MP = torch.cat([self.keys_MP, other.keys_MP.to(self.keys_MP)])
        self.values_MP = torch.cat([self.values_MP, other.values_MP.to(self.values_MP)])
        self.ids += other.ids
        self.texts += other.texts
        self.version += 1

    def remove(self, ids: Sequence[str]) -> None:
        """Drop rules by id.

        Raises
        ------
        KeyError
            If an id is not there.
        """
        rows = {name: row for row, name in enumerate(self.ids)}
        for name in ids:
            if name not in rows:
                raise KeyError(f"no rule {name!r} in this bank of {len(self)} rules")
        gone = {rows[name] for name in ids}
        keep = [row for row in range(len(self)) if row not in gone]
        index = torch.tensor(keep, dtype=torch.long, device=self.keys_MP.device)
        self.keys_MP, self.values_MP = self.keys_MP[index], self.values_MP[index]
        self.ids, self.texts = [self.ids[row] for row in keep], [self.texts[row] for row in keep]
        self.version += 1

    def replace(self, other: RuleBank) -> None:
        """Replace the rules that another bank has under the same ids.

        Raises
        ------
        KeyError, ValueError
            As for `remove` and `add`.
        """
        if other.encoder != self.encoder or other.encoder_dim != self.encoder_dim:
            raise ValueError(
                f"cannot take rules of encoder {other.encoder!r} into a bank of {self.encoder!r}; "
                "encode them with the bank's encoder"
            )
        self.remove(other.ids)
        self.add(other)

    def _check(self) -> None:
        count = len(self.ids)
        if self.keys_MP.ndim != 2 or self.keys_MP.shape != self.values_MP.shape or len(self.keys_MP) != count:
            raise ValueError(
                "keys and values must be (rules, encoder width) and as many as ids, got keys "
                f"{tuple(self.keys_MP.shape)}, values {tuple(self.values_MP.shape)}, {count} ids"
            )
        if len(self.texts) != count:
            raise ValueError(f"{count} ids but {len(self.texts)} texts")
        if len(set(self.ids)) < count:
            twice = next(name for i, name in enumerate(self.ids) if name in self.ids[:i])
            raise ValueError(f"rule id {twice!r} comes twice; ids tell rules apart in traces")
        empty = next((i for i, text in enumerate(self.texts) if not text.strip()), None)
        if empty is not None:
            raise ValueError(f"rule {self.ids[empty]!r} has no text")
        for name, tensor in (("key", self.keys_MP), ("value", self.values_MP)):
            bad = (~torch.isfinite(tensor).all(-1)).nonzero()
            if len(bad):
                raise ValueError(f"the {name} embedding of rule {self.ids[int(bad[0])]!r} is not finite")
