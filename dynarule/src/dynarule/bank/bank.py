"""The rules themselves: texts, embeddings and ids, shared by all layers, changed while serving.

A bank is changed between two forwards of a model, also in the middle of a generation: rules a generation has
already kept stay what they were, and the next selection (the next prompt, the next ``<search>``) sees the change. One
thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..projection import encoder_scores
from .embedding_cache import Encode, encode_unique
from .index import ExactIndex, SearchIndex
from .sources import check_rules, listed, make_rules, read_rules

if TYPE_CHECKING:
    from ..projection import RuleProjection


class RuleBank:
    """Rules as embeddings: the whole rule is the key, its conclusion the value.

    Parameters
    ----------
    keys_MP, values_MP : Tensor
        Embeddings of rules and of conclusions; never written to, the first change of the bank copies them.
    ids, texts : sequence of str
        Provenance, one per rule; neither an id nor a text comes twice.
    encoder : str
        Fingerprint of the encoder, so that banks and adapters that do not fit are refused.

    Attributes
    ----------
    version : int
        Grows with every change.
    index : SearchIndex
        How the best rules are found; exact unless set, see `dynarule.bank.use_index`.

    Raises
    ------
    ValueError
        If shapes differ, an embedding is not finite, or as `dynarule.bank.sources.check_rules`.
    """

    def __init__(
        self, keys_MP: Tensor, values_MP: Tensor, ids: Sequence[str], texts: Sequence[str], encoder: str = ""
    ) -> None:
        self.encoder = encoder
        self.version = 0
        self.ids, self.texts = listed("ids", ids), listed("texts", texts)
        self.index: SearchIndex = ExactIndex()
        # Buffers with room to grow; only the first len(ids) rows count. Not ours until the first change.
        self._keys, self._values, self._ours = keys_MP, values_MP, False
        self._stamps = torch.zeros(len(self.ids), dtype=torch.long)
        # 1 / sigma of every rule for every layer that asked, with the weights and the version they are of.
        self._scales: WeakKeyDictionary[RuleProjection, tuple[tuple[int, ...], int, Tensor]]
        self._scales = WeakKeyDictionary()
        self._check()

    @classmethod
    def from_texts(
        cls,
        rules: Sequence[str],
        conclusions: Sequence[str] | None,
        encode: Encode,
        ids: Sequence[str] | None = None,
        encoder: str | None = None,
    ) -> RuleBank:
        """Embed rules and their conclusions.

        Parameters
        ----------
        rules, conclusions : sequence of str
            Lists, or columns of a ``datasets.Dataset``. Conclusions None: found in each rule, see
            `dynarule.bank.conclusion_of`.
        encode : callable
            A `SentenceEncoder`, an `EmbeddingCache` over one, or any function from texts to embeddings (N, P).
        ids : sequence of str, optional
            None: "0", "1", ...
        encoder : str, optional
            None: ``encode.fingerprint``, where there is one.

        Raises
        ------
        ValueError
            If a rule is empty, too long or comes twice, or the lengths differ.
        """
        made = make_rules(rules, conclusions, ids)
        keys_MP, values_MP = encode_unique(encode, [*made.texts, *made.conclusions]).tensor_split(2)
        name = getattr(encode, "fingerprint", "") if encoder is None else encoder
        return cls(keys_MP, values_MP, made.ids, made.texts, name)

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        encode: Encode,
        text: str | None = None,
        conclusion: str | None = None,
        id: str | None = None,
        encoder: str | None = None,
    ) -> RuleBank:
        """Embed the rules of a file: ``.parquet``, ``.csv``, ``.tsv``, or one rule per line.

        `dynarule.bank.sources.read_rules` says which columns of a table are read; ``text="fol"`` reads the logic of
        RuleWorld's rule table.

        Raises
        ------
        FileNotFoundError, ValueError
            If the file is not there or does not hold rules.
        """
        rules = read_rules(path, text, conclusion, id)
        return cls.from_texts(rules.texts, rules.conclusions, encode, rules.ids, encoder)

    def save(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the bank as a folder; see `dynarule.bank.files.save_bank`."""
        from .files import save_bank

        save_bank(self, folder, overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> RuleBank:
        """Read what `save` wrote; see `dynarule.bank.files.load_bank`."""
        from .files import load_bank

        return load_bank(folder)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def keys_MP(self) -> Tensor:
        """Embeddings of whole rules; a view that a change of the bank may write to."""
        return self._keys[: len(self.ids)]

    @property
    def values_MP(self) -> Tensor:
        """Embeddings of conclusions; a view, like `keys_MP`."""
        return self._values[: len(self.ids)]

    @property
    def encoder_dim(self) -> int:
        """P."""
        return self._keys.shape[-1]

    def row(self, id: str) -> int:
        """Return the row of a rule.

        Raises
        ------
        KeyError
            If the id is not there.
        """
        try:
            return self._row_of[id]
        except KeyError:
            raise KeyError(f"no rule {id!r} in this bank of {len(self)} rules") from None

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> RuleBank:
        """Move the embeddings."""
        self._keys, self._values = self.keys_MP.to(device, dtype), self.values_MP.to(device, dtype)
        self._ours = False  # .to may return the very same tensor
        self.version += 1
        self._stamps[:] = self.version
        return self

    def search(
        self,
        projection: RuleProjection,
        query_BHD: Tensor,
        top_k: int | None,
        allowed_BM: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the best rules for rule queries, through the bank's index.

        Parameters
        ----------
        projection : RuleProjection
            The layer's projections.
        query_BHD : Tensor
            Rule queries, or their mean over tokens.
        top_k : int or None
            K; None, or more than there are: all rules.
        allowed_BM : Tensor of bool or None
            Which rules each query may find, at least K; they are then all scored, whatever the index. None: all.

        Returns
        -------
        tuple of Tensor
            Scores (B, K), the mean over heads of q~ . k~ / sqrt(D), best first, and the rows of the rules.
        """
        asked, scale_M = projection.encoder_query(query_BHD), self.inverse_scale(projection)
        count = len(self) if top_k is None else min(top_k, len(self))
        if allowed_BM is None:
            return self.index.search(self, *asked, scale_M, count)
        scores_BM = encoder_scores(*asked, self.keys_MP, scale_M)
        best = scores_BM.masked_fill(~allowed_BM.to(scores_BM.device), -torch.inf).topk(count, dim=-1)
        return best.values, best.indices

    def inverse_scale(self, projection: RuleProjection) -> Tensor:
        """Return 1 / sigma of every rule in a layer, fp32 (M,); computed again only for changed rules."""
        weight, bias = projection.k.weight, projection.k.bias
        weights = (weight._version, bias._version, weight.data_ptr(), bias.data_ptr())
        kept_weights, version, scale_M = self._scales.get(projection, (None, 0, self._keys))
        if kept_weights != weights or scale_M.device != self._keys.device:
            version, scale_M = -1, torch.empty(0, device=self._keys.device)
        elif version == self.version:
            return scale_M
        new_M = scale_M.new_empty(len(self))
        same = min(len(self), len(scale_M))
        new_M[:same] = scale_M[:same]
        rows = self.changed_since(version)
        if len(rows):
            new_M[rows] = projection.inverse_scale(self.keys_MP[rows] if version >= 0 else self.keys_MP)
        self._scales[projection] = (weights, self.version, new_M)
        return new_M

    def changed_since(self, version: int) -> Tensor:
        """Return the rows that hold another rule, or other embeddings, than at a version."""
        return (self._stamps[: len(self)] > version).nonzero()[:, 0].to(self._keys.device)

    def add(self, other: RuleBank) -> None:
        """Append another bank's rules, in amortised time proportional to their number.

        Raises
        ------
        ValueError
            If the other bank has another encoder or width, or an id or a text is there already; the bank is then
            unchanged.
        """
        self._check_change(other)
        rows = list(range(len(self), len(self) + len(other)))
        self._own(len(self) + len(other))
        self.ids += other.ids
        self.texts += other.texts
        self._write(rows, other)

    def remove(self, ids: Sequence[str]) -> None:
        """Drop rules by id; the last rules move into the gaps, so the order of rows is not kept.

        Raises
        ------
        KeyError
            If an id is not there; the bank is then unchanged.
        """
        gone = sorted({self.row(name) for name in listed("ids", ids)})
        if not gone:
            return
        stop = len(self) - len(gone)
        gaps = [row for row in gone if row < stop]
        movers = sorted(set(range(stop, len(self))) - set(gone))
        self._own(len(self))
        for row in gone:
            del self._row_of[self.ids[row]]
            self._texts_held.remove(self.texts[row])
        self._keys[gaps] = self._keys[movers]
        self._values[gaps] = self._values[movers]
        for gap, mover in zip(gaps, movers, strict=True):
            self.ids[gap], self.texts[gap] = self.ids[mover], self.texts[mover]
            self._row_of[self.ids[gap]] = gap
        del self.ids[stop:], self.texts[stop:]
        self._mark(gaps)

    def replace(self, other: RuleBank) -> None:
        """Replace, in place, the rules that another bank has under the same ids.

        Raises
        ------
        KeyError, ValueError
            If an id or another encoder or width is not the bank's, or another rule has a new text; the bank is then
            unchanged.
        """
        rows = [self.row(name) for name in other.ids]
        leaving = {self.texts[row] for row in rows}
        self._check_change(other, leaving)
        self._own(len(self))
        self._texts_held.difference_update(leaving)
        self._write(rows, other)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def _texts_held(self) -> set[str]:
        return set(self.texts)

    def _check_change(self, other: RuleBank, leaving: Collection[str] | None = None) -> None:
        """Refuse rules of another encoder, ids that are not new where no text leaves, and a text's second place."""
        if other.encoder != self.encoder or other.encoder_dim != self.encoder_dim:
            raise ValueError(
                f"cannot take rules of encoder {other.encoder!r} (width {other.encoder_dim}) into a bank of "
                f"{self.encoder!r} (width {self.encoder_dim}); encode them with the bank's encoder"
            )
        for name, text in zip(other.ids, other.texts, strict=True):
            if leaving is None and name in self._row_of:
                raise ValueError(f"rule {name!r} is in the bank already; remove it first, or use replace")
            if text in self._texts_held and text not in (leaving or ()):
                there = self.ids[self.texts.index(text)]
                raise ValueError(
                    f"rules {there!r} and {name!r} are the same text, {text!r}; keep one of them"
                )

    def _write(self, rows: list[int], other: RuleBank) -> None:
        """Put another bank's rules into rows that are ours."""
        if not rows:
            return
        self._keys[rows] = other.keys_MP.detach().to(self._keys)
        self._values[rows] = other.values_MP.detach().to(self._values)
        for row, name, text in zip(rows, other.ids, other.texts, strict=True):
            self._row_of[name], self.texts[row] = row, text
        self._texts_held.update(other.texts)
        self._mark(rows)

    @torch.inference_mode(False)  # buffers born in inference mode could not be changed outside it
    def _own(self, count: int) -> None:
        """Make the buffers ours, with room for a number of rules."""
        held, room = len(self.ids), len(self._keys)
        if self._ours and count <= room:
            return
        room = room if count <= room else max(count, held + held // 2)

        def copied(old: Tensor) -> Tensor:
            new = old.new_zeros(room, *old.shape[1:])
            new[:held] = old[:held]
            return new

        self._keys, self._values = copied(self._keys), copied(self._values)
        self._stamps, self._ours = copied(self._stamps), True

    def _mark(self, rows: list[int]) -> None:
        self.version += 1
        self._stamps[rows] = self.version

    def _check(self) -> None:
        keys, values = self._keys, self._values
        if keys.ndim != 2 or keys.shape != values.shape or len(keys) != len(self.ids):
            raise ValueError(
                "keys and values must be (rules, encoder width) and as many as ids, got keys "
                f"{tuple(keys.shape)}, values {tuple(values.shape)}, {len(self.ids)} ids"
            )
        if (
            keys.dtype != values.dtype
            or not keys.is_floating_point()
            or keys.itemsize < 2
            or not keys.shape[1]
        ):
            raise ValueError(
                "keys and values must be fp32, bf16 or fp16, both alike, and at least one number wide, got "
                f"{keys.dtype} and {values.dtype}, width {keys.shape[1]}"
            )
        check_rules(self.ids, self.texts)
        for name, tensor in (("key", keys), ("value", values)):
            # A sum is finite only where all its terms are; in blocks, so that a mapped bank is not copied.
            sums = [part.float().sum(-1) for part in tensor.split(8_192)]
            bad = (~torch.isfinite(torch.cat(sums))).nonzero()
            if len(bad):
                raise ValueError(f"the {name} embedding of rule {self.ids[int(bad[0])]!r} is not finite")
