"""The rules: texts, embeddings and ids, shared by all layers and changed while serving.

A bank may change between two forwards of a model, also in the middle of a generation: rules that a generation has
selected stay what they were, and the next selection (the next prompt, the next ``<search>``) sees the change. One
thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .clauses import split_rule
from .embedding_cache import Encode, embed, unique_texts
from .encoders import PREMISE_KEYS, key_texts
from .index import best_rules
from .rows import GrowingRows, SharedRows, check_embeddings, used_rows
from .sources import check_rules, listed, make_rules, read_rules

if TYPE_CHECKING:
    from ..projection import RuleProjection


class RuleBank:
    """Rules as embeddings: the whole rule is the key, its conclusion the value.

    Parameters
    ----------
    keys_UP, values_VP : Tensor
        Embeddings of rules and of conclusions; never written to, the first change of one copies them.
    ids, texts : sequence of str
        Provenance, one per rule; neither an id nor a text comes twice.
    encoder : str
        Fingerprint of the encoder, so that banks and adapters that do not fit are refused.
    value_rows_M : Tensor of int or None
        The row of ``values_VP`` of each rule, so that rules may share a conclusion; None: one each.
    key_rows_M : Tensor of int or None
        The row of ``keys_UP``: rules of one premise share a key where the encoder reads premises alone.

    Attributes
    ----------
    version : int
        Grows with every change.
    parts : dict of str to (str, str)
        Premise and conclusion of rules whose owner says them otherwise than `split_rule` finds them, by text.
    keys, values : SharedRows
        Different embeddings of rules and of conclusions, and the rows of each rule; some may be of removed rules.
    folder : Path or None
        Of a bank that was loaded: where from.

    Raises
    ------
    ValueError
        If shapes differ, an embedding is not finite, or as `dynarule.bank.sources.check_rules`.
    """

    def __init__(
        self,
        keys_UP: Tensor,
        values_VP: Tensor,
        ids: Sequence[str],
        texts: Sequence[str],
        encoder: str = "",
        value_rows_M: Tensor | None = None,
        key_rows_M: Tensor | None = None,
    ) -> None:
        self.encoder = encoder
        self.version = 0
        self.folder: Path | None = None
        self.ids, self.texts = listed("ids", ids), listed("texts", texts)
        self.parts: dict[str, tuple[str, str]] = {}
        check_embeddings(self.ids, (keys_UP, key_rows_M), (values_VP, value_rows_M))
        self.keys = SharedRows(keys_UP, key_rows_M)
        self.values = SharedRows(values_VP, value_rows_M)
        self._stamps = GrowingRows(torch.zeros(len(self.ids), dtype=torch.long))
        # 1 / sigma by layer, with the weights and the version of the bank that they are of
        self._scales: WeakKeyDictionary[RuleProjection, tuple[tuple[int, ...], int, Tensor]]
        self._scales = WeakKeyDictionary()
        check_rules(self.ids, self.texts)

    @classmethod
    def from_texts(
        cls,
        rules: Sequence[str],
        conclusions: Sequence[str] | None,
        encode: Encode,
        ids: Sequence[str] | None = None,
        encoder: str | None = None,
        dtype: torch.dtype | None = None,
        progress: Callable[[int, int], None] | None = None,
        premises: Sequence[str | None] = (),
    ) -> RuleBank:
        """Embed rules and their conclusions, each different text once.

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
        dtype : torch.dtype, optional
            Of the embeddings; None: as the encoder gives them.
        progress : callable, optional
            Gets the number of texts that are embedded, and of all.
        premises : sequence of str or None
            When each rule applies; None: found in the rule, as for all if it is empty.

        Raises
        ------
        ValueError
            If a rule is empty, too long or comes twice, the lengths differ, or an embedding is not finite in the dtype.
        """
        made = make_rules(rules, conclusions, ids)
        name = getattr(encode, "fingerprint", "") if encoder is None else encoder
        keys = key_texts(made.texts, name)
        if premises and name.endswith(PREMISE_KEYS):
            keys = [given or found for given, found in zip(premises, keys, strict=True)]
        texts, rows = unique_texts([*keys, *made.conclusions])
        key_rows_M, value_rows_M = rows.tensor_split(2)
        rows_NP = embed(encode, texts, dtype, progress)
        keys_UP, key_rows = used_rows(rows_NP, key_rows_M)
        values_VP, value_rows = used_rows(rows_NP, value_rows_M)
        bank = cls(keys_UP, values_VP, made.ids, made.texts, name, value_rows, key_rows)
        for text, premise, conclusion in zip(made.texts, premises, made.conclusions, strict=False):
            found = split_rule(text)
            if (parts := (premise or found.premise, conclusion)) != found[:2]:
                bank.parts[text] = parts
        return bank

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
        """Embed the rules of a file, which `dynarule.bank.sources.read_rules` reads."""
        rules = read_rules(path, text, conclusion, id)
        return cls.from_texts(
            rules.texts, rules.conclusions, encode, rules.ids, encoder, premises=rules.premises
        )

    def save(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the bank as a folder, whole or not at all; one that holds anything but a bank is refused."""
        from .storage import save_bank

        save_bank(self, folder, overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> RuleBank:
        """Read what `save` wrote; embeddings stay in the file until they are read, and processes share them.

        Raises
        ------
        FileNotFoundError, ValueError
            If there is no bank; if the file is damaged, of another format, or holds what is no bank.
        """
        from .storage import load_bank

        return load_bank(folder)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def keys_MP(self) -> Tensor:
        """Embeddings of whole rules, one per rule: a view that a change of the bank may write to, or a copy."""
        return self.keys.whole()

    @property
    def values_MP(self) -> Tensor:
        """Embeddings of conclusions, one per rule; a copy."""
        return self.values[torch.arange(len(self), device=self.device)]

    def keys_at(self, rows: Tensor) -> Tensor:
        """Return the embeddings of some rules, (..., P)."""
        return self.keys[rows.to(self.device)]

    def values_at(self, rows: Tensor) -> Tensor:
        """Return the embeddings of some rules' conclusions, (..., P)."""
        return self.values[rows.to(self.device)]

    @property
    def device(self) -> torch.device:
        """Where the embeddings are."""
        return self.keys.different.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the embeddings."""
        return self.keys.different.dtype

    @property
    def encoder_dim(self) -> int:
        """P."""
        return self.keys.different.shape[1]

    def parts_of(self, text: str) -> tuple[str, str]:
        """Return premise and conclusion of a rule's text, as its owner says, else as `split_rule` does."""
        return self.parts.get(text) or split_rule(text)[:2]

    def row(self, id: str) -> int:
        """Return the row of a rule; a KeyError if the id is not there."""
        try:
            return self._row_of[id]
        except KeyError:
            raise KeyError(f"no rule {id!r} in this bank of {len(self)} rules") from None

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> RuleBank:
        """Move the embeddings; those that are there already stay mapped from their file."""
        there = torch.empty(0, device=device, dtype=dtype or self.dtype)
        if (there.device, there.dtype) == (self.device, self.dtype):
            return self
        self.keys, self.values = self.keys.to(device, dtype), self.values.to(device, dtype)
        self.version += 1
        self._stamps.write(torch.arange(len(self)), torch.tensor(self.version))
        return self

    def search(
        self,
        projection: RuleProjection,
        query_BHD: Tensor,
        top_k: int | None,
        allowed_BM: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the best rules for rule queries.

        Parameters
        ----------
        projection : RuleProjection
            The layer's projections.
        query_BHD : Tensor
            Rule queries, or their mean over tokens.
        top_k : int or None
            K; None, or more than there are: all rules.
        allowed_BM : Tensor of bool or None
            Which rules each query may find, at least K; None: all.

        Returns
        -------
        tuple of Tensor
            Scores (B, K), the mean over heads of q~ . k~ / sqrt(D), best first, and the rows of the rules.
        """
        query, scale_M = projection.encoder_query(query_BHD), self.inverse_scale(projection)
        return best_rules(self, *query, scale_M, len(self) if top_k is None else top_k, allowed_BM)

    def inverse_scale(self, projection: RuleProjection) -> Tensor:
        """Return 1 / sigma of every rule in a layer, fp32 (M,); computed again only for changed rules."""
        weight, bias = projection.k.weight, projection.k.bias
        weights = (weight._version, bias._version, weight.data_ptr(), bias.data_ptr())
        kept_weights, version, scale_M = self._scales.get(projection, ((), -1, torch.empty(0)))
        if kept_weights != weights or scale_M.device != self.device:
            scale_U = projection.inverse_scale(self.keys.different)
            scale_M = scale_U[self.keys.at(torch.arange(len(self), device=self.device))]
        elif version != self.version:
            old_M, rows = scale_M, self.changed_since(version)
            scale_M = old_M.new_empty(len(self))
            same = min(len(self), len(old_M))
            scale_M[:same] = old_M[:same]
            if len(rows):
                scale_M[rows] = projection.inverse_scale(self.keys_at(rows))
        self._scales[projection] = (weights, self.version, scale_M)
        return scale_M

    def changed_since(self, version: int) -> Tensor:
        """Return the rows that hold another rule, or other embeddings, than at a version."""
        return (self._stamps.rows > version).nonzero()[:, 0].to(self.device)

    def add(self, other: RuleBank) -> None:
        """Append another bank's rules, in amortised time proportional to their number.

        Raises
        ------
        ValueError
            If the other bank has another encoder or width, or an id or a text is there already; the bank is then
            unchanged.
        """
        self._check_change(other)
        self._row_of.update(zip(other.ids, range(len(self), len(self) + len(other)), strict=True))
        self._texts_held.update(other.texts)
        self.ids += other.ids
        self.texts += other.texts
        self.parts |= other.parts
        self.version += 1
        self.keys.append(other.keys)
        self.values.append(other.values)
        self._stamps.append(torch.full((len(other),), self.version))

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
        for row in gone:
            del self._row_of[self.ids[row]]
            self._texts_held.remove(self.texts[row])
            self.parts.pop(self.texts[row], None)
        into, of = torch.tensor(gaps, dtype=torch.long), torch.tensor(movers, dtype=torch.long)
        for moved in (self.keys, self.values):
            moved.move(into, of)
            moved.cut(stop)
        for gap, mover in zip(gaps, movers, strict=True):
            self.ids[gap], self.texts[gap] = self.ids[mover], self.texts[mover]
            self._row_of[self.ids[gap]] = gap
        del self.ids[stop:], self.texts[stop:]
        self.version += 1
        self._stamps.write(into, torch.tensor(self.version))
        self._stamps.cut(stop)

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
        if not rows:
            return
        self._texts_held.difference_update(leaving)
        self.parts = {text: parts for text, parts in self.parts.items() if text not in leaving} | other.parts
        self._texts_held.update(other.texts)
        for row, text in zip(rows, other.texts, strict=True):
            self.texts[row] = text
        self.version += 1
        into = torch.tensor(rows)
        self.keys.write(into, other.keys)
        self.values.write(into, other.values)
        self._stamps.write(into, torch.tensor(self.version))

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
