"""Documents as padded batches, and the blocks of a stream made ahead of time in other processes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
from ruleworld_data.io import start_worker
from torch import Tensor

from .documents import Document
from .stream import Mixture, Stream

PAD_TO = 16


@dataclass(frozen=True)
class Batch:
    """Documents as tensors.

    Attributes
    ----------
    ids : Tensor (B, T) of int64
        Padded on the right.
    predicted : Tensor (2, N) of int64
        Rows and positions of the tokens to predict from those before them: all of weight 1, and a sample of the others.
    spans : list of (int, int, str)
        First and last + 1 place in ``predicted``, and the kind, of what must be right.
    plan : Tensor (2, S) of int64
        Rows and positions of the end-of-step tokens; ``wanted`` (S, W) holds their tokens, padded with -1.
    """

    ids: Tensor
    predicted: Tensor
    spans: list[tuple[int, int, str]]
    plan: Tensor
    wanted: Tensor

    @property
    def tokens(self) -> int:
        """Tokens, padding included."""
        return self.ids.numel()


def batches(
    documents: Sequence[Document], tokens: int, longest: int, key: str, pad: int = 0
) -> Iterator[Batch]:
    """Group documents of similar length into batches of at most ``tokens`` tokens, in random order.

    Documents longer than ``longest`` are left out.
    """
    ordered = sorted((each for each in documents if len(each) <= longest), key=len)
    groups: list[list[Document]] = []
    for document in ordered:
        length = -(-len(document) // PAD_TO) * PAD_TO
        if groups and (len(groups[-1]) + 1) * length <= max(tokens, length):
            groups[-1].append(document)
        else:
            groups.append([document])
    random.Random(f"batches/{key}").shuffle(groups)
    for number, group in enumerate(groups):
        yield collate(group, f"{key}/{number}", pad)


def collate(documents: Sequence[Document], key: str, pad: int = 0) -> Batch:
    """Pad documents to one length, a multiple of `PAD_TO`; the key names the draw of tokens to predict."""
    draw = random.Random(f"predicted/{key}").random
    length = -(-max(map(len, documents)) // PAD_TO) * PAD_TO
    ids = torch.full((len(documents), length), pad)
    predicted: list[tuple[int, int]] = []
    spans, places, wanted = [], [], []
    for row, document in enumerate(documents):
        ids[row, : len(document)] = torch.tensor(document.ids)
        place = {}
        for position, weight in enumerate(document.weights):
            if position and (weight >= 1 or draw() < weight):
                place[position] = len(predicted)
                predicted.append((row, position))
        spans += [(place[start], place[stop - 1] + 1, kind) for start, stop, kind in document.spans]
        places += [(row, position) for position, _ in document.plan]
        wanted += [words for _, words in document.plan]
    most = max(map(len, wanted), default=1)
    words = torch.full((len(wanted), most), -1)
    for i, each in enumerate(wanted):
        words[i, : len(each)] = torch.tensor(each)
    plan = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
    return Batch(ids, torch.tensor(predicted).T.contiguous(), spans, plan, words)


class Blocks:
    """Blocks of documents in order, each made with the levels of ``lag`` blocks before.

    The lag lets other processes work ahead, and it is the same without them, so that the number of processes does not
    change the data.
    """

    def __init__(self, stream: Stream, lag: int, processes: int) -> None:
        self.stream, self.lag = stream, lag
        self.pending: deque[tuple[int, Mixture, dict[str, int], Future[list[Document]] | None]] = deque()
        self.pool: Executor | None = None
        if processes:  # spawned: a forked one would inherit the locks of torch's threads
            self.pool = ProcessPoolExecutor(
                processes, mp_context=get_context("spawn"), initializer=start_worker, initargs=(1,)
            )

    def ask(self, number: int, mixture: Mixture, levels: Mapping[str, int]) -> None:
        """Order a block."""
        made = self.pool.submit(self.stream.block, number, mixture, dict(levels)) if self.pool else None
        self.pending.append((number, mixture, dict(levels), made))

    def take(self) -> tuple[int, list[Document]]:
        """Return the block that was ordered first."""
        number, mixture, levels, made = self.pending.popleft()
        return number, made.result() if made else self.stream.block(number, mixture, levels)

    def orders(self) -> list[tuple[int, dict[str, int]]]:
        """Return number and levels of the blocks ordered and not taken: a resumed training orders them again."""
        return [(number, levels) for number, _, levels, _ in self.pending]

    def clear(self) -> None:
        """Forget what was ordered."""
        self.pending.clear()

    def close(self) -> None:
        """Stop the processes."""
        if self.pool:
            self.pool.shutdown(wait=False, cancel_futures=True)
