"""Approximate search for banks beyond exact search on a CPU: faiss finds candidates, exact scores rank them.

One index over the plain embeddings serves all layers and survives training. The LayerNorm factor s makes the score
(e . d + o) s no inner product, so faiss is asked for the largest e . d and its candidates are ranked by exact scores:
only a missed candidate can differ from exact search. On questions through a trained projection s varied by 5 %, and the
200 largest e . d held 98 % of the best 100 of 69,000 rules, the largest 500 all. That is not a law: a large offset o
makes s weigh more.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._lazy import need
from ..projection import encoder_scores
from .index import ExactIndex, SearchIndex

if TYPE_CHECKING:
    from .bank import RuleBank

EXACT_UP_TO = 100_000
"""Rules up to which `use_index` stays exact on a CPU: for exactness, faiss overtakes earlier. At 100,000 rules of width
384, one thread, exact search took 15 ms per query, faiss with 8 bits and 512 clusters 6 ms with Recall@100 0.998, 7 s
to build and 392 bytes more per rule."""
BLOCK = 65_536
LEAST_TRAINING = 1_024  # smaller banks repeat their rules, the quantizer needs some


class FaissIndex:
    """Candidates from faiss, 8 bits per dimension, ranked by exact scores.

    faiss holds the rules of one moment, entry i is row i. A bank that has changed since is searched exactly; make
    another index of it where that takes too long.

    Parameters
    ----------
    bank : RuleBank
        Its rules are indexed now: about a minute for a million rules on one core.
    nprobe : int
        Clusters read, of 4 sqrt(M).
    candidates : int
        Rules ranked exactly, at least 2 K.

    Raises
    ------
    ImportError
        If faiss is not installed.
    ValueError
        If a setting is out of range, or the bank is empty.
    """

    def __init__(self, bank: RuleBank, nprobe: int = 512, candidates: int = 1_000) -> None:
        for name, value in (("nprobe", nprobe), ("candidates", candidates)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value!r}")
        count = len(bank)
        if not count:
            raise ValueError("an empty bank needs no faiss index; add rules first, or use exact search")
        faiss = need("faiss", "faiss-cpu")
        self.candidates, self._version = candidates, bank.version
        self.nlist = min(round(4 * math.sqrt(count)), max(1, count // 40))
        index = faiss.index_factory(bank.encoder_dim, f"IVF{self.nlist},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = 8, 64, 1
        index.nprobe = min(nprobe, self.nlist)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        train = order[torch.arange(max(min(64 * self.nlist, count), LEAST_TRAINING)) % count]
        index.train(_numpy(bank.keys_at(train)))
        for part in torch.arange(count).split(BLOCK):
            index.add(_numpy(bank.keys_at(part)))
        self._index: Any = index

    @property
    def bytes_per_rule(self) -> int:
        """Bytes that the index adds to a rule's embeddings: its code and faiss's id."""
        return int(self._index.code_size) + 8

    def search(
        self, bank: RuleBank, direction_BP: Tensor, offset_B: Tensor, inverse_scale_M: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return scores and rows of the bank, (B, K) each; exact search answers where candidates are too few."""
        k, wanted = min(k, len(bank)), max(self.candidates, 2 * k)
        rows_BC = torch.empty(0, 0, dtype=torch.long)
        if bank.version == self._version and wanted < len(bank) and len(direction_BP):
            rows_BC = torch.from_numpy(self._index.search(_numpy(direction_BP), wanted)[1]).to(bank.device)
        if not len(rows_BC) or int((rows_BC >= 0).sum(-1).min()) < k:  # -1: faiss has none
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


def use_index(bank: RuleBank) -> SearchIndex:
    """Set how a bank is searched from now on, by its size, and return it.

    Exact up to 100,000 different keys, on a GPU, and where faiss is not installed; else faiss. To choose yourself:
    ``bank.index = FaissIndex(bank)`` or ``ExactIndex()``.
    """
    bank.index = ExactIndex() if is_small(bank) or not faiss_installed() else FaissIndex(bank)
    return bank.index


def is_small(bank: RuleBank) -> bool:
    """Return whether every rule of a bank is best scored at every search."""
    return len(bank.keys.different) <= EXACT_UP_TO or bank.device.type == "cuda"


def faiss_installed() -> bool:
    """Return whether faiss can be imported, without importing it."""
    return find_spec("faiss") is not None


def _numpy(rows: Tensor) -> Any:
    return rows.detach().float().cpu().contiguous().numpy()
