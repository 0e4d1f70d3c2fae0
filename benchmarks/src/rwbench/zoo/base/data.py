"""Training data of the base: blocks of documents from fresh worlds, padded batches, and blocks made ahead of time.

A block is a function of the seed, its number and the levels of the curriculum. Worlds are drawn by
`ruleworld_data.fresh`, so no rule or question is the benchmark's but by the chance that two random worlds agree.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from ruleworld_data.fresh import FreshWorld, fresh_worlds
from ruleworld_data.io import start_worker
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes
from torch import Tensor

from .curriculum import LADDERS, TERSE, Mixture
from .documents import Document, Representation, Writer, key_value_pairs, key_value_words

WORLDS = 64
"""Small worlds of one continent (see `ruleworld_data.fresh`)."""


def small_sizes(generator: random.Random) -> WorldSizes:
    """Draw the sizes of a continent; few terms make distractors that resemble the gold rules."""
    entities, attributes = generator.choice((12, 24, 48)), generator.choice((16, 32, 64))
    actions = generator.choice((12, 24, 48))
    states = 3 * actions + 4
    return WorldSizes(
        entities=entities,
        attributes=attributes,
        states=states,
        actions=actions,
        environments=actions,
        entity2attr=min(800, entities * attributes * 3 // 4),
        attrchange2attr=attributes * 3 // 4,
        state2attr=min(900, states * attributes // 8),
    )


@dataclass(frozen=True)
class DocumentStream:
    """Training data named by a seed.

    Attributes
    ----------
    writer : Writer
    seed : int
    tokens : int
        Tokens of a block, about.
    """

    writer: Writer
    seed: int
    tokens: int

    def block(self, number: int, mixture: Mixture, levels: Mapping[str, int]) -> list[Document]:
        """Return the documents of a block, in random order."""
        generator = random.Random(f"base/{self.seed}/{number}")
        sizes = small_sizes(generator)
        worlds = list(self._worlds(number, sizes)) if mixture.terse < 1 else []
        rules = [world.rules.to_pylist() for world in worlds[:8]]
        makers = {
            "terse": self._terse,
            "recital": self._recital,
            "questions": self._questions,
            "guess": self._questions,
        }
        documents = []
        for name, make in makers.items():
            wanted = getattr(mixture, name) * self.tokens
            level = levels.get(name)
            while wanted > 0:
                document = make(generator, mixture, level, worlds, rules)
                wanted -= len(document)
                documents.append(document)
        generator.shuffle(documents)
        return documents

    def _worlds(self, number: int, sizes: WorldSizes) -> Iterator[FreshWorld]:
        # One continent a block; its small worlds are large enough to draw distractors from.
        return fresh_worlds(
            self.seed, WORLDS, dict.fromkeys(SUBTASKS, 3), n_rules=300, sizes=sizes, first=number * WORLDS
        )

    def _terse(self, generator: random.Random, mixture: Mixture, level: int | None, *_: Any) -> Document:
        words, most = TERSE[_at_or_below(generator, level or 0)]
        count = generator.randint(max(2, most // 2), most)
        pairs = key_value_pairs(generator, _words(), count, words, shared=generator.random() < 0.5)
        return self.writer.terse(pairs, generator.choices(range(len(pairs)), k=count))

    def _recital(
        self,
        generator: random.Random,
        mixture: Mixture,
        level: int | None,
        worlds: list[FreshWorld],
        rules: list[list[dict[str, Any]]],
    ) -> Document:
        world = generator.choice(rules)
        kind = generator.choice(RULE_TYPES) if generator.random() < mixture.same_type else None
        # One rule a premise, or the conclusion that is asked for could be any of several.
        there = {rule["premise_fol"]: rule for rule in generator.sample(world, len(world))}
        listed = [rule for rule in there.values() if kind in (None, rule["type"])]
        if len(listed) < LADDERS["recital"][0]:
            listed = list(there.values())
        count = min(len(listed), _size(generator, "recital", level or 0))
        drawn = generator.sample(listed, count)
        return self.writer.recital(
            drawn, generator.sample(range(count), count), _language(generator, mixture)
        )

    def _questions(
        self,
        generator: random.Random,
        mixture: Mixture,
        level: int | None,
        worlds: list[FreshWorld],
        _: Any,
    ) -> Document:
        world = generator.choice(worlds)
        language = _language(generator, mixture)
        asked = generator.sample(range(len(world.questions)), generator.randint(1, mixture.asked))
        rows = world.questions.take(asked).to_pylist()
        texts: list[str] = []
        if level is not None:
            ids = world.rules.column("id").to_numpy()
            gold = np.isin(ids, [rule for row in rows for rule in row["gold_rule_ids"]])
            others = np.flatnonzero(~gold).tolist()
            extra = generator.sample(others, _size(generator, "questions", level))
            kept = [*np.flatnonzero(gold).tolist(), *extra]
            generator.shuffle(kept)
            texts = world.rules.column(language).take(kept).to_pylist()
        return self.writer.questions(texts, rows, language)


@lru_cache(maxsize=1)
def _words() -> dict[str, list[str]]:
    return key_value_words()


def _at_or_below(generator: random.Random, level: int) -> int:
    """Draw a level: half the time the present one, else any up to it."""
    return level if generator.random() < 0.5 else generator.randint(0, level)


def _size(generator: random.Random, name: str, level: int) -> int:
    """Draw a list's length: half at the level, half anywhere between the first level's and it."""
    least, most = LADDERS[name][0], LADDERS[name][level]
    return most if generator.random() < 0.5 else generator.randint(least, most)


def _language(generator: random.Random, mixture: Mixture) -> Representation:
    return "fol" if generator.random() < mixture.fol else "nl"


PAD_TO = 16
"""Batches are padded to a multiple of this many tokens."""


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

    def __init__(self, stream: DocumentStream, lag: int, processes: int) -> None:
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
