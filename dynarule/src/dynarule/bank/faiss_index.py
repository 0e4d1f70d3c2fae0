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
from typing import TYPE_CHECKING, Any

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
to build and 392 bytes more per rule; `measure_recall` says what it finds for other queries."""
BLOCK = 65_536
LEAST_TRAINING = 1_024  # smaller banks repeat their rules, the quantizer needs some
PENDING = 4_096  # changed rules that are scored exactly, whatever the size of the bank


class FaissIndex:
    """Candidates from faiss, 8 bits per dimension, ranked by exact scores; follows every change of its bank.

    faiss holds the rules of one moment, entry i is row i. Rows that have changed since are scored exactly; when they
    are more than a tenth of the bank, or half of the entries have gone, the index is built again.

    Parameters
    ----------
    bank : RuleBank
        Its rules are indexed now: about a minute for a million rules on one core.
    nprobe : int
        Clusters read, of 4 sqrt(M).
    candidates : int
        Rules ranked exactly, at least 2 K.
    folder : path or None
        Where the index is read from, or written to if it is not there; of a bank as it was loaded.

    Raises
    ------
    ImportError
        If faiss is not installed.
    ValueError
        If a setting is out of range, the bank is empty, or the file is damaged.
    """

    def __init__(
        self, bank: RuleBank, nprobe: int = 512, candidates: int = 1_000, folder: Path | None = None
    ) -> None:
        for name, value in (("nprobe", nprobe), ("candidates", candidates)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value!r}")
        if not len(bank):
            raise ValueError("an empty bank needs no faiss index; add rules first, or use exact search")
        if folder is not None and not bank.digest:
            raise ValueError("an index on disk is of a bank as it was loaded; save the bank and load it")
        self.nprobe, self.candidates = nprobe, candidates
        self._faiss = need("faiss", "faiss-cpu")
        self._build(bank, folder)

    @property
    def bytes_per_rule(self) -> int:
        """Bytes that the index adds to a rule's embeddings: its code and faiss's id."""
        return int(self._index.code_size) + 8

    def search(
        self, bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows of the bank, (B, K) each; exact search answers where candidates are too few."""
        changed = self._follow(bank)
        k = min(k, len(bank))
        wanted = max(self.candidates, 2 * k)
        if wanted >= len(bank) - len(changed) or not len(direction_BP):
            return ExactIndex().search(bank, direction_BP, offset_B, inverse_scale_M, k)
        rows_BC = self._candidates(bank, direction_BP, wanted)
        rows_BC = torch.cat([rows_BC, changed.expand(len(rows_BC), -1)], -1)
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
        """Return rows of the bank, (B, C), -1 where faiss has none or the rule is another by now."""
        self._index.nprobe = min(self.nprobe, self.nlist)
        _, entries = self._index.search(direction_BP.detach().float().cpu().contiguous().numpy(), wanted)
        rows_BC = torch.from_numpy(entries).to(bank.device)
        valid_BC = (rows_BC >= 0) & (rows_BC < len(bank))
        valid_BC &= ~self._is_changed[rows_BC.clamp(0, len(bank) - 1)]
        return torch.where(valid_BC, rows_BC, -1)

    def _follow(self, bank: RuleBank) -> Tensor:
        """Take note of what changed in the bank; return the rows that the index does not hold."""
        if bank.version != self._version:
            changed, count = bank.changed_since(self._built), len(bank)
            if count and (self._index.ntotal > 2 * count or len(changed) > max(PENDING, count // 10)):
                self._build(bank)
            else:
                self._note(bank, changed)
        return self._changed

    def _note(self, bank: RuleBank, changed: Tensor) -> None:
        self._changed, self._version = changed, bank.version
        self._is_changed = torch.zeros(len(bank), dtype=torch.bool, device=bank.device)
        self._is_changed[changed] = True

    def _build(self, bank: RuleBank, folder: Path | None = None) -> None:
        self.nlist = min(round(4 * math.sqrt(len(bank))), max(1, len(bank) // 40))
        if folder is None:
            self._index = self._filled(bank)
        else:
            if not is_current(bank, folder):
                with changing(folder):  # who comes second waits, and reads what the first has made
                    if not is_current(bank, folder):
                        write_index(self._faiss, self._filled(bank), bank, folder)
            self._index = read_index(self._faiss, bank, folder, self.nlist)
        self._built = bank.version
        self._note(bank, torch.zeros(0, dtype=torch.long, device=bank.device))

    def _filled(self, bank: RuleBank) -> Any:
        """Return a faiss index of all rules, trained on some of them."""
        count = len(bank)
        index = empty_index(self._faiss, bank.encoder_dim, self.nlist)
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = 8, 64, 1
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        train = order[torch.arange(max(min(64 * self.nlist, count), LEAST_TRAINING)) % count]
        index.train(_rows(bank, train))
        for part in torch.arange(count).split(BLOCK):
            index.add(_rows(bank, part))
        return index


def use_index(bank: RuleBank) -> SearchIndex:
    """Set how a bank is searched from now on, by its size, and return it.

    Exact up to 100,000 different keys, on a GPU, and where faiss is not installed; else faiss, with what
    ``dynarule bank index`` left beside the bank. To choose yourself: ``bank.index = FaissIndex(bank)`` or
    ``ExactIndex()``.
    """
    beside = None if bank.folder is None else bank.folder / INDEX_FOLDER
    if is_small(bank) or not faiss_installed():
        bank.index = ExactIndex()
    elif beside is not None and is_current(bank, beside):
        bank.index = FaissIndex(bank, folder=beside)
    else:
        bank.index = FaissIndex(bank)
    return bank.index


def is_small(bank: RuleBank) -> bool:
    """Return whether every rule of a bank is best scored at every search."""
    return len(bank.keys.different) <= EXACT_UP_TO or bank.device.type == "cuda"


def faiss_installed() -> bool:
    """Return whether faiss can be imported, without importing it."""
    return find_spec("faiss") is not None


def _rows(bank: RuleBank, rows: Tensor) -> Any:
    return bank.keys_at(rows).float().cpu().contiguous().numpy()
