"""Approximate search for banks beyond exact search on a CPU: faiss finds candidates, exact scores rank them.

One index over the plain embeddings serves all layers and survives training. The LayerNorm factor s makes the score
(e . d + o) s no inner product, so faiss is asked for the largest e . d and its candidates are ranked by exact scores:
only a missed candidate can differ from exact search. On questions through a trained projection s varied by 5 %, and the
200 largest e . d held 98 % of the best 100 of 69,000 rules, the largest 500 all. That is not a law (a large offset o
makes s weigh more), so measure with `dynarule.bank.measure_recall`.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .._files import changing
from .._lazy import need
from ..projection import encoder_scores
from .faiss_file import empty_index, is_current, read_index, write_index
from .index import ExactIndex, SearchIndex
from .storage import INDEX_FOLDER

if TYPE_CHECKING:
    from .bank import RuleBank

EXACT_UP_TO = 100_000
"""Rules up to which `use_index` stays exact on a CPU: for exactness, faiss overtakes earlier. At 100,000 rules of width
384, one thread, exact search took 15 ms per query, faiss with 8 bits and 512 clusters 6 ms with Recall@100 0.998, 7 s
to build and 408 bytes more per rule; `measure_recall` says what it finds for other queries."""
BLOCK = 65_536
LEAST_TRAINING = 1_024  # smaller banks repeat their rules, codes need some


class FaissIndex:
    """Candidates from faiss, ranked by exact scores; follows every change of its bank.

    faiss entries are only ever appended. A removed or replaced rule's old entry is recognised by its stamp and skipped;
    changed rules are scored exactly until ``pending`` of them are appended together. When half of the entries are stale
    or the bank has doubled, the index is built again.

    Parameters
    ----------
    bank : RuleBank
        Its rules are indexed now: about a minute for a million rules on one core.
    kind : {"ivf_sq8", "fastscan"}
        8 bits per dimension, or 4-bit codes of 4 dimensions (fast scan).
    nlist, nprobe : int, optional
        Clusters, None: 4 sqrt(M); clusters read, None: 512, fast scan 1,024.
    candidates : int, optional
        Rules ranked exactly, at least 2 K; None: 1,000, fast scan 10,000.
    pending : int
        Changed rules searched exactly before the index takes them.
    folder : path or None
        Where the index is read from, or written to if it is not there: fast scan, of a bank as it was loaded.

    Raises
    ------
    ImportError
        If faiss is not installed.
    ValueError
        If a setting is out of range, the bank is empty, fast scan does not fit its width, or the file is damaged.
    """

    def __init__(
        self,
        bank: RuleBank,
        kind: Literal["ivf_sq8", "fastscan"] = "ivf_sq8",
        nlist: int | None = None,
        nprobe: int | None = None,
        candidates: int | None = None,
        pending: int = 4_096,
        folder: Path | None = None,
    ) -> None:
        if kind not in ("ivf_sq8", "fastscan"):
            raise ValueError(f"kind must be ivf_sq8 or fastscan, got {kind!r}")
        for name, value in (("nlist", nlist), ("nprobe", nprobe), ("candidates", candidates)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive or None, got {value!r}")
        if pending < 0:
            raise ValueError(f"pending must not be negative, got {pending!r}")
        if not len(bank):
            raise ValueError("an empty bank needs no faiss index; add rules first, or use exact search")
        if kind == "fastscan" and bank.encoder_dim % 4:
            raise ValueError(
                f"fast scan needs an encoder width divisible by 4, got {bank.encoder_dim}; use kind ivf_sq8"
            )
        if folder is not None and (kind != "fastscan" or not bank.digest):
            raise ValueError("an index on disk is of kind fastscan, and of a bank as it was loaded")
        self.kind, self.pending, self._wanted_nlist = kind, pending, nlist
        self.nprobe = nprobe or (512 if kind == "ivf_sq8" else 1_024)
        self.candidates = candidates or (1_000 if kind == "ivf_sq8" else 10_000)
        self._faiss = need("faiss", "faiss-cpu")
        self._version = -1
        self._dirty = torch.zeros(0, dtype=torch.long)
        self._build(bank, folder)

    @property
    def bytes_per_rule(self) -> int:
        """Bytes that the index adds to a rule's embeddings: its code, faiss's id, and our row and stamp."""
        return int(self._code_size) + 24

    def search(
        self, bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows of the bank, (B, K) each; exact search answers where candidates are too few."""
        dirty = self._follow(bank)
        k = min(k, len(bank))
        wanted = max(self.candidates, 2 * k)
        if wanted >= self._live or not len(direction_BP):
            return ExactIndex().search(bank, direction_BP, offset_B, inverse_scale_M, k)
        near_BC = self._candidates(bank, direction_BP, wanted)
        rows_BC = torch.cat([near_BC, dirty.expand(len(near_BC), -1)], -1)
        if int((rows_BC >= 0).sum(-1).min()) < k:
            return ExactIndex().search(bank, direction_BP, offset_B, inverse_scale_M, k)
        scores_BC = torch.full(rows_BC.shape, -math.inf, device=direction_BP.device)
        for row, rows_C in enumerate(rows_BC):  # the candidates of a batch may not fit
            valid = rows_C >= 0
            rows = rows_C[valid]
            one = slice(row, row + 1)
            scores_BC[one, valid] = encoder_scores(
                direction_BP[one], offset_B[one], bank.keys_at(rows), inverse_scale_M[rows]
            )
        scores_BK, at_BK = scores_BC.topk(k, dim=-1)
        return scores_BK, rows_BC.gather(-1, at_BK)

    def _candidates(self, bank: RuleBank, direction_BP: Tensor, wanted: int) -> Tensor:
        """Return rows of the bank, (B, C), -1 where faiss has none or a stale entry."""
        self._index.nprobe = min(self.nprobe, self.nlist)
        _, entries = self._index.search(direction_BP.detach().float().cpu().contiguous().numpy(), wanted)
        entries_BC = torch.from_numpy(entries)
        rows_BC = self._row_of_entry[entries_BC.clamp_min(0)]
        stamps_BC = bank._stamps[rows_BC.clamp_max(len(bank) - 1)]
        current = stamps_BC <= self._stamp_of_entry[entries_BC.clamp_min(0)]
        valid = (entries_BC >= 0) & (rows_BC < len(bank)) & current
        return torch.where(valid, rows_BC, -1).to(bank.device)

    def _follow(self, bank: RuleBank) -> Tensor:
        """Take note of what changed in the bank; return the rows that the index does not hold."""
        if bank.version == self._version:
            return self._dirty
        dirty = bank.changed_since(self._held)
        entries = len(self._row_of_entry)
        if len(bank) and (entries > 2 * len(bank) or entries + len(dirty) > 2 * self._built + self.pending):
            self._build(bank)
            dirty = dirty[:0]
        elif len(dirty) > self.pending:
            self._append(bank, dirty)
            dirty = dirty[:0]
        self._dirty, self._version = dirty, bank.version
        self._live = len(bank) - len(dirty)
        return dirty

    def _build(self, bank: RuleBank, folder: Path | None = None) -> None:
        count = len(bank)
        self.nlist = clusters(count, self._wanted_nlist)
        self._row_of_entry = torch.zeros(0, dtype=torch.long)
        self._stamp_of_entry = torch.zeros(0, dtype=torch.long)
        if folder is None:
            index = self._filled(bank)
        else:
            if not is_current(bank, folder, self.nlist):
                with changing(folder):  # who comes second waits, and reads what the first has made
                    if not is_current(bank, folder, self.nlist):
                        write_index(self._faiss, self._filled(bank), bank, folder)
            index = read_index(self._faiss, bank, folder, self.nlist)
        self._code_size = index.code_size
        self._index = self._faiss.IndexIVFPQFastScan(index) if self.kind == "fastscan" else index
        self._enter(torch.arange(count), bank.version)
        self._built, self._version, self._live = count, bank.version, count
        self._dirty = torch.zeros(0, dtype=torch.long, device=bank.device)

    def _filled(self, bank: RuleBank) -> Any:
        """Return a faiss index of all rules, trained on some of them."""
        faiss, count = self._faiss, len(bank)
        if self.kind == "fastscan":
            index = empty_index(faiss, bank.encoder_dim, self.nlist)
        else:
            index = faiss.index_factory(bank.encoder_dim, f"IVF{self.nlist},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = 8, 64, 1
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        train = order[torch.arange(max(min(64 * self.nlist, count), LEAST_TRAINING)) % count]
        index.train(_rows(bank, train).numpy())
        for part in torch.arange(count).split(BLOCK):
            index.add(_rows(bank, part).numpy())
        return index

    def _append(self, bank: RuleBank, rows: Tensor) -> None:
        rows = rows.cpu()
        for part in rows.split(BLOCK):
            self._index.add(_rows(bank, part).numpy())
        self._enter(rows, bank.version)

    def _enter(self, rows: Tensor, version: int) -> None:
        """Note which rows of the bank the newest entries of faiss are."""
        self._row_of_entry = torch.cat([self._row_of_entry, rows])
        self._stamp_of_entry = torch.cat([self._stamp_of_entry, torch.full_like(rows, version)])
        self._held = version


def use_index(bank: RuleBank) -> SearchIndex:
    """Set how a bank is searched from now on, by its size, and return it.

    Exact up to 100,000 different keys, on a GPU, and where faiss is not installed; else faiss, with what
    ``dynarule bank index`` left beside the bank, or with 8 bits. To choose yourself: ``bank.index = FaissIndex(bank)``
    or ``ExactIndex()``.
    """
    if len(bank.keys.different) <= EXACT_UP_TO or bank.device.type == "cuda" or not faiss_installed():
        bank.index = ExactIndex()
    elif bank.folder is not None and is_current(bank, bank.folder / INDEX_FOLDER, clusters(len(bank))):
        bank.index = FaissIndex(bank, "fastscan", folder=bank.folder / INDEX_FOLDER)
    else:
        bank.index = FaissIndex(bank)
    return bank.index


def clusters(rules: int, wanted: int | None = None) -> int:
    """Return how many clusters an index of so many rules has: 4 sqrt(M) unless it is said, none of under 40 rules."""
    return min(wanted or round(4 * math.sqrt(rules)), max(1, rules // 40))


def faiss_installed() -> bool:
    """Return whether faiss can be imported, without importing it."""
    return find_spec("faiss") is not None


def _rows(bank: RuleBank, rows: Tensor) -> Tensor:
    return bank.keys_at(rows).float().cpu().contiguous()
