"""The rules: texts, embeddings and ids, shared by all layers and changed while serving.

A bank may change between two forwards of a model, by one thread at a time: rules that a generation has selected stay
what they were, and the next selection (the next prompt, the next ``<search>``) sees the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .clauses import parts_of
from .embedding_cache import Encode, embed, unique_texts
from .encoders import PREMISE_KEYS, key_texts
from .rows import SharedRows, check_embeddings, largest
from .sources import Rules, check_rules, listed, make_rules, read_rules, same_form

if TYPE_CHECKING:
    from ..projection import RuleProjection


class RuleBank:
    """Rules as embeddings: the whole rule is the key, its conclusion the value.

    Parameters
    ----------
    keys_UP, values_VP : Tensor
        Embeddings of rules and of conclusions; never written to, a change copies them.
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
        Premise and conclusion of rules whose owner says them otherwise than `parts_of` finds them, by text.
    keys, values : SharedRows
        Different embeddings of rules and of conclusions, and the rows of each rule; some may be of removed rules.

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
        self._ids, self._texts = tuple(listed("ids", ids)), tuple(listed("texts", texts))
        self.parts: dict[str, tuple[str, str]] = {}
        self.file: Any = None  # what tells the file that holds it as it is from another, in `changed_bank`
        self._found: dict[str, tuple[str, str]] = {}  # as `parts_of` found, which takes long for all
        check_embeddings(self.ids, (keys_UP, key_rows_M), (values_VP, value_rows_M))
        self.keys = SharedRows(keys_UP, key_rows_M)
        self.values = SharedRows(values_VP, value_rows_M)
        # 1 / sigma by layer (NaN: of a rule that came since), with the weights and the version that they are of
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
            `dynarule.bank.parts_of`.
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
        if premises and len(premises) != len(made.texts):
            raise ValueError(f"{len(made.texts)} rules, {len(premises)} premises; give one or None per rule")
        name = getattr(encode, "fingerprint", "") if encoder is None else encoder
        read = key_texts(made.texts, name)
        if premises and name.endswith(PREMISE_KEYS):
            read = [given or found for given, found in zip(premises, read, strict=True)]
        texts, rows = unique_texts([*read, *made.conclusions])
        rows_NP = embed(encode, texts, dtype, progress)
        keys, values = (SharedRows(rows_NP, rows_M).used() for rows_M in rows.tensor_split(2))
        bank = cls(keys.different, values.different, made.ids, made.texts, name, values.at_M, keys.at_M)
        # Without premises of an owner's own none are noted: conclusions of a table alone are values, no more.
        for text, premise, conclusion in zip(made.texts, premises, made.conclusions, strict=False):
            found = parts_of(text)
            if (parts := (premise or found[0], conclusion)) != found:
                bank.parts[text] = parts
        return bank

    @classmethod
    def from_rules(cls, rules: Rules, encode: Encode, **settings: Any) -> RuleBank:
        """Embed rules as `dynarule.bank.read_rules` returns them; ``settings`` are further ones of `from_texts`."""
        given = rules.texts, rules.conclusions, encode, rules.ids
        return cls.from_texts(*given, premises=rules.premises, **settings)

    @classmethod
    def from_file(cls, path: str | PathLike[str], encode: Encode) -> RuleBank:
        """Embed the rules of a file, see `dynarule.bank.read_rules`."""
        return cls.from_rules(read_rules(path), encode)

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

    def __reduce__(self) -> Any:
        """Copy or pickle the rules alone, without what was computed for a model's layers."""
        sides, rows = (self.keys.different, self.values.different), (self.values.at_M, self.keys.at_M)
        own = {"parts": self.parts, "version": self.version}
        return type(self), (*sides, self.ids, self.texts, self.encoder, *rows), own

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the rules, in order."""
        return self._ids

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the rules, in order."""
        return self._texts

    @property
    def keys_MP(self) -> Tensor:
        """Embeddings of whole rules, one per rule."""
        return self.keys.whole()

    @property
    def values_MP(self) -> Tensor:
        """Embeddings of conclusions, one per rule."""
        return self.values.whole()

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
        """Return premise and conclusion of a rule's text, as its owner says, else as `parts_of` does."""
        if text not in self.parts and text not in self._found:
            self._found[text] = parts_of(text)
        return self.parts.get(text) or self._found[text]

    def row(self, id: str) -> int:
        """Return the row of a rule; a KeyError if the id is not there."""
        try:
            return self._row_of[same_form(id)]
        except (KeyError, AttributeError):
            raise KeyError(f"no rule {id!r} in this bank of {len(self)} rules") from None

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> RuleBank:
        """Move the embeddings; those that are there already stay mapped from their file."""
        there = torch.empty(0, device=device, dtype=dtype or self.dtype)
        if (there.device, there.dtype) == (self.device, self.dtype):
            return self
        keys, values = self.keys.to(device, dtype), self.values.to(device, dtype)
        if there.dtype != self.dtype:
            check_embeddings(self.ids, (keys.different, keys.at_M), (values.different, values.at_M))
        self.keys, self.values = keys, values
        self.version += 1
        self._scales.clear()
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
        count = len(self) if top_k is None else min(top_k, len(self))
        return largest(self.scores(projection, query_BHD), count, allowed_BM)

    def scores(self, projection: RuleProjection, query_BHD: Tensor) -> Tensor:
        """Return the scores of all rules for rule queries, fp32 (B, M); rules that share a key share the product."""
        scale_M, keys_UP = self.inverse_scale(projection), self.keys.different
        if not self.keys.shared:
            return projection.score(query_BHD, keys_UP, scale_M)
        return projection.score(query_BHD, keys_UP, scale_M.new_ones(()))[:, self.keys.every] * scale_M

    def inverse_scale(self, projection: RuleProjection) -> Tensor:
        """Return 1 / sigma of every rule in a layer, fp32 (M,); computed again only for changed rules."""
        weight, bias = projection.k.weight, projection.k.bias
        changes = (version_of(part) for part in (weight, bias, self.keys.different))
        weights = (*changes, weight.data_ptr(), bias.data_ptr())
        kept_weights, version, scale_M = self._scales.get(projection, ((), -1, torch.empty(0)))
        if kept_weights != weights or scale_M.device != self.device:
            scale_M = projection.inverse_scale(self.keys.different)[self.keys.every]
        elif version != self.version and len(rows := scale_M.isnan().nonzero()[:, 0]):
            scale_M[rows] = projection.inverse_scale(self.keys[rows])
        self._scales[projection] = (weights, self.version, scale_M)
        return scale_M

    def add(self, other: RuleBank) -> None:
        """Append another bank's rules.

        Raises
        ------
        ValueError
            If the other bank has another encoder or width, or an id or a text is there already: nothing changes.
        """
        self._check_change(other)
        self._become(range(len(self) + len(other)), other)

    def remove(self, ids: Sequence[str]) -> None:
        """Drop rules by id; a KeyError if one is not there, and the bank is unchanged."""
        gone = {self.row(name) for name in listed("ids", ids)}
        if gone:
            self._become([row for row in range(len(self)) if row not in gone])

    def replace(self, other: RuleBank) -> None:
        """Put another bank's rules in the place of those that have the same ids.

        Raises
        ------
        KeyError, ValueError
            If an id, encoder or width is not the bank's, or another rule has a new text: nothing changes.
        """
        rows, order = [self.row(name) for name in other.ids], list(range(len(self)))
        self._check_change(other, {self.texts[row] for row in rows})
        for number, row in enumerate(rows, len(self)):
            order[row] = number
        self._become(order, other)

    @torch.inference_mode(False)  # embeddings that are born in inference mode could not be trained on
    def _become(self, order: Sequence[int], other: RuleBank | None = None) -> None:
        """Hold some of the rules that are here and, behind them, another bank's, by number, in this order."""
        ids, texts, keys, values, new = self.ids, self.texts, self.keys, self.values, 0
        if other is not None:
            ids, texts, new = ids + other.ids, texts + other.texts, len(other)
            keys, values = keys.followed_by(other.keys), values.followed_by(other.values)
            said_anew = {*other.texts}
            self.parts = {text: p for text, p in self.parts.items() if text not in said_anew} | other.parts
        order_M = torch.tensor(order, dtype=torch.long, device=self.device)
        self.keys, self.values = keys.take(order_M), values.take(order_M)
        for projection, (weights, version, scale_M) in list(self._scales.items()):
            scale_M = torch.cat([scale_M, scale_M.new_full((new,), torch.nan)])[order_M.to(scale_M.device)]
            self._scales[projection] = weights, version, scale_M
        self._ids, self._texts = (tuple(held[row] for row in order) for held in (ids, texts))
        if self.parts:
            held = {*self.texts}
            self.parts = {text: parts for text, parts in self.parts.items() if text in held}
        if len(self._found) > 2 * len(texts):  # a bank that is changed for years must not grow
            self._found.clear()
        self.version += 1
        for kept, said in (("_row_of", self.ids), ("_row_of_text", self.texts)):
            if (
                new and order == range(len(ids)) and kept in vars(self)
            ):  # of an addition, only what is new is read
                vars(self)[kept].update((same_form(said[row]), row) for row in order[-new:])
            else:
                vars(self).pop(kept, None)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {same_form(name): row for row, name in enumerate(self.ids)}

    @cached_property
    def _row_of_text(self) -> dict[str, int]:
        return {same_form(text): row for row, text in enumerate(self.texts)}

    def _check_change(self, other: RuleBank, leaving: Collection[str] | None = None) -> None:
        """Refuse rules of another encoder, ids that are not new where no text leaves, and a text's second place."""
        if not isinstance(other, RuleBank):
            kind = type(other).__name__
            raise ValueError(f"rules come as a RuleBank, got a {kind}; see RuleBank.from_texts")
        if other.encoder != self.encoder or other.encoder_dim != self.encoder_dim:
            raise ValueError(
                f"cannot take rules of encoder {other.encoder!r} (width {other.encoder_dim}) into a bank of "
                f"{self.encoder!r} (width {self.encoder_dim}); encode them with the bank's encoder"
            )
        for name, text in zip(other.ids, other.texts, strict=True):
            if leaving is None and same_form(name) in self._row_of:
                raise ValueError(f"rule {name!r} is in the bank already; remove it first, or use replace")
            at = self._row_of_text.get(same_form(text))
            if at is not None and self.texts[at] not in (leaving or ()):
                raise ValueError(f"rules {self.ids[at]!r} and {name!r} are the same text, {text!r}; keep one")


def version_of(weight: Tensor) -> int:
    """Return what changes with a weight; those that were made under ``inference_mode`` stay as they are."""
    return 0 if weight.is_inference() else weight._version
