"""The rules themselves: texts, embeddings and ids, shared by all layers, changed while serving.

A bank is changed between two forwards of a model, also in the middle of a generation: rules a generation has
already kept stay what they were, and the next selection (the next prompt, the next ``<search>``) sees the change. One
thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..projection import encoder_scores
from .index import ExactIndex, LayerScales, SearchIndex
from .sources import Rules, read_rules

if TYPE_CHECKING:
    from ..projection import RuleProjection

Encode = Callable[[Sequence[str]], Tensor]
"""Texts to embeddings (N, P), the document side of a sentence encoder."""


class RuleBank:
    """Rules as embeddings: the whole rule is the key, its conclusion the value.

    Parameters
    ----------
    keys_MP, values_MP : Tensor
        Embeddings of rules and of conclusions; never written to, the first change of the bank copies them.
    ids, texts : sequence of str
        Provenance, one per rule; ids are unique.
    encoder : str
        Fingerprint of the encoder, so that banks and adapters that do not fit are refused.

    Attributes
    ----------
    version : int
        Grows with every change.
    index : SearchIndex
        How the best rules are found; exact unless set, see `dynarule.bank.faiss_index.use_index`.

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
        self.ids, self.texts = list(ids), list(texts)
        self.index: SearchIndex = ExactIndex()
        # Buffers with room to grow; only the first len(ids) rows count. Not ours until the first change.
        self._keys, self._values, self._ours = keys_MP, values_MP, False
        self._stamps = torch.zeros(len(self.ids), dtype=torch.long)
        self._scales = LayerScales()
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
            If a rule is empty or comes twice, or the lengths differ.
        """
        return cls._from_rules(Rules.of(rules, conclusions, ids), encode, encoder)

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        encode: Encode,
        text: str = "nl",
        conclusion: str | None = "conclusion_nl",
        id: str | None = "id",
        encoder: str | None = None,
    ) -> RuleBank:
        """Embed the rules of a file: ``.parquet``, ``.tsv``, or one rule per line.

        The columns of a parquet file are by default those of RuleWorld's rule table; ``text="fol",
        conclusion="conclusion_fol"`` reads its logic.

        Raises
        ------
        FileNotFoundError, ValueError
            If the file is not there or does not hold rules.
        """
        return cls._from_rules(read_rules(path, text, conclusion, id), encode, encoder)

    @classmethod
    def _from_rules(cls, rules: Rules, encode: Encode, encoder: str | None) -> RuleBank:
        from .embedding_cache import encode_unique

        name = getattr(encode, "fingerprint", "") if encoder is None else encoder
        both = encode_unique(encode, [*rules.texts, *rules.conclusions])
        count = len(rules.texts)
        return cls(both[:count], both[count:], rules.ids, rules.texts, name)

    def save(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the bank as a folder; see `dynarule.bank.files.save_bank`."""
        from .files import save_bank

        save_bank(self, folder, overwrite)

    @classmethod
    def load(cls, folder: str | PathLike[str], mmap: bool = True, verify: bool = True) -> RuleBank:
        """Read what `save` wrote; see `dynarule.bank.files.load_bank`."""
        from .files import load_bank

        return load_bank(folder, mmap, verify)

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
        self._mark(range(len(self)))
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
        return self._scales(self, projection)

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
        self._fits(other)
        known = self._row_of
        twice = next((name for name in other.ids if name in known), None)
        if twice is not None:
            raise ValueError(f"rule {twice!r} is in the bank already; remove it first, or use replace")
        self._refuse_twice(other)
        if not len(other):
            return
        start, stop = len(self), len(self) + len(other)
        self._own(stop)
        self._keys[start:stop] = other.keys_MP.detach()
        self._values[start:stop] = other.values_MP.detach()
        known.update(zip(other.ids, range(start, stop), strict=True))
        self._texts_held.update(other.texts)
        self.texts += other.texts
        self.ids += other.ids
        self._mark(range(start, stop))

    def remove(self, ids: Sequence[str]) -> None:
        """Drop rules by id; the last rules move into the gaps, so the order of rows is not kept.

        Raises
        ------
        KeyError
            If an id is not there; the bank is then unchanged.
        """
        gone = sorted({self.row(name) for name in ids})
        if not gone:
            return
        known, stop = self._row_of, len(self) - len(gone)
        dropped = set(gone)
        gaps = [row for row in gone if row < stop]
        movers = [row for row in range(stop, len(self)) if row not in dropped]
        self._own(len(self))
        self._texts_held.difference_update([self.texts[row] for row in gone])
        for row in gone:
            del known[self.ids[row]]
        self._keys[gaps] = self._keys[movers]
        self._values[gaps] = self._values[movers]
        for gap, mover in zip(gaps, movers, strict=True):
            self.ids[gap], self.texts[gap] = self.ids[mover], self.texts[mover]
            known[self.ids[gap]] = gap
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
        self._fits(other)
        rows = [self.row(name) for name in other.ids]
        if not rows:
            return
        leaving = {self.texts[row] for row in rows}
        self._refuse_twice(other, leaving)
        self._texts_held.difference_update(leaving)
        self._texts_held.update(other.texts)
        self._own(len(self))
        self._keys[rows] = other.keys_MP.detach().to(self._keys)
        self._values[rows] = other.values_MP.detach().to(self._values)
        for row, text in zip(rows, other.texts, strict=True):
            self.texts[row] = text
        self._mark(rows)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def _texts_held(self) -> set[str]:
        return set(self.texts)

    def _refuse_twice(self, other: RuleBank, leaving: Collection[str] = ()) -> None:
        """Refuse texts that would be in the bank twice: one rule would take two of the K places."""
        held, seen = self._texts_held, dict[str, str]()
        for name, text in zip(other.ids, other.texts, strict=True):
            if text in seen or (text in held and text not in leaving):
                there = seen[text] if text in seen else self.ids[self.texts.index(text)]
                raise ValueError(
                    f"rules {there!r} and {name!r} are the same text, {text!r}; keep one of them"
                )
            seen[text] = name

    @torch.inference_mode(False)  # buffers born in inference mode could not be changed outside it
    def _own(self, count: int) -> None:
        """Make the buffers ours, with room for a number of rules."""
        held = len(self.ids)
        room = len(self._keys)
        if self._ours and count <= room:
            return
        room = room if count <= room else max(count, held + held // 2)
        for name in ("_keys", "_values"):
            old = getattr(self, name)
            new = torch.empty(room, old.shape[1], dtype=old.dtype, device=old.device)
            new[:held] = old[:held]
            setattr(self, name, new)
        stamps = torch.zeros(room, dtype=torch.long)
        stamps[:held] = self._stamps[:held]
        self._stamps, self._ours = stamps, True

    def _mark(self, rows: Sequence[int]) -> None:
        self.version += 1
        self._stamps[slice(rows.start, rows.stop) if isinstance(rows, range) else list(rows)] = self.version

    def _fits(self, other: RuleBank) -> None:
        if other.encoder != self.encoder or other.encoder_dim != self.encoder_dim:
            raise ValueError(
                f"cannot take rules of encoder {other.encoder!r} (width {other.encoder_dim}) into a bank of "
                f"{self.encoder!r} (width {self.encoder_dim}); encode them with the bank's encoder"
            )

    def _check(self) -> None:
        count = len(self.ids)
        keys, values = self._keys, self._values
        if keys.ndim != 2 or keys.shape != values.shape or len(keys) != count:
            raise ValueError(
                "keys and values must be (rules, encoder width) and as many as ids, got keys "
                f"{tuple(keys.shape)}, values {tuple(values.shape)}, {count} ids"
            )
        if len(self.texts) != count:
            raise ValueError(f"{count} ids but {len(self.texts)} texts")
        if len(set(self.ids)) < count:
            seen: set[str] = set()
            twice = next(name for name in self.ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise ValueError(f"rule id {twice!r} comes twice; ids tell rules apart in traces")
        empty = next((i for i, text in enumerate(self.texts) if not text.strip()), None)
        if empty is not None:
            raise ValueError(f"rule {self.ids[empty]!r} has no text")
        for name, tensor in (("key", keys), ("value", values)):
            # A sum is finite only where all its terms are; in blocks, so that a mapped bank is not copied.
            sums = [part.float().sum(-1) for part in tensor.split(8_192)]
            bad = (~torch.isfinite(torch.cat(sums))).nonzero()
            if len(bad):
                raise ValueError(f"the {name} embedding of rule {self.ids[int(bad[0])]!r} is not finite")
