"""Training data of the base: blocks of documents from fresh worlds, padded batches, and blocks made ahead of time.

A block is a function of the seed, its number and the levels of the curriculum. Worlds are drawn by
`ruleworld_data.fresh`, so no rule or question is the benchmark's but by the chance that two random worlds agree.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from ruleworld_data.fresh import FreshWorld, fresh_worlds
from ruleworld_data.io import start_worker
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes
from torch import Tensor

from .curriculum import LADDERS, TERSE
from .documents import Document, Representation, Writer, key_value_pairs, request_text
from .plain import HELD_OUT, PlainWorld, domains, plain_world
from .recipe import Mixture

WORLDS = 64
"""Small worlds of one continent (see `ruleworld_data.fresh`)."""
FOUND = 6
"""Most rules beside the gold ones that a request finds."""
PAD_TO = 16
"""Batches are padded to a multiple of this many tokens, with id 0."""


def small_sizes(draw: random.Random) -> WorldSizes:
    """Draw the sizes of a continent; few terms make distractors that resemble the gold rules."""
    entities, attributes, actions = (draw.choice(each) for each in ((12, 24, 48), (16, 32, 64), (12, 24, 48)))
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
    """Training data named by a seed, in blocks of about ``tokens`` tokens."""

    writer: Writer
    seed: int
    tokens: int

    def block(self, number: int, mixture: Mixture, levels: Mapping[str, int]) -> list[Document]:
        """Return the documents of a block, in random order."""
        draw = random.Random(f"base/{self.seed}/{number}")
        sizes = small_sizes(draw)
        worlds: list[FreshWorld] = []
        if (
            mixture.terse < 1
        ):  # one continent a block; its small worlds are large enough to draw distractors from
            asked, first = dict.fromkeys(SUBTASKS, 3), number * WORLDS
            worlds = list(fresh_worlds(self.seed, WORLDS, asked, n_rules=300, sizes=sizes, first=first))
        rules = [world.rules.to_pylist() for world in worlds[:8]]
        makers: dict[str, Callable[[], Document]] = {
            "terse": lambda: self._terse(draw, levels["terse"]),
            "recital": lambda: self._recital(draw, mixture, levels["recital"], rules),
            "questions": lambda: self._questions(draw, mixture, levels["questions"], worlds),
            "guess": lambda: self._questions(draw, mixture, None, worlds),
            "requests": lambda: self._requests(draw, mixture, worlds[:8], rules),
            "plain": lambda: self._plain(draw, mixture, levels["plain"]),
        }
        documents = []
        for name, make in makers.items():
            wanted = getattr(mixture, name) * self.tokens
            while wanted > 0:
                documents.append(make())
                wanted -= len(documents[-1])
        draw.shuffle(documents)
        return documents

    def _terse(self, draw: random.Random, level: int) -> Document:
        words, most = TERSE[_half_at_most(draw, 0, level)]
        count = draw.randint(max(2, most // 2), most)
        pairs = key_value_pairs(draw, count, words, shared=draw.random() < 0.5)
        return self.writer.terse(pairs, draw.choices(range(len(pairs)), k=count))

    def _recital(
        self, draw: random.Random, mixture: Mixture, level: int, rules: list[list[dict[str, Any]]]
    ) -> Document:
        world = draw.choice(rules)
        kind = draw.choice(RULE_TYPES) if draw.random() < mixture.same_type else None
        # One rule a premise, or the conclusion that is asked for could be any of several.
        there = {rule["premise_fol"]: rule for rule in draw.sample(world, len(world))}
        listed = [rule for rule in there.values() if kind in (None, rule["type"])]
        if len(listed) < LADDERS["recital"][0]:
            listed = list(there.values())
        count = min(len(listed), _half_at_most(draw, LADDERS["recital"][0], LADDERS["recital"][level]))
        drawn = draw.sample(listed, count)
        return self.writer.recital(drawn, draw.sample(range(count), count), _language(draw, mixture))

    def _questions(
        self, draw: random.Random, mixture: Mixture, level: int | None, worlds: list[FreshWorld]
    ) -> Document:
        world = draw.choice(worlds)
        language = _language(draw, mixture)
        asked = draw.sample(range(len(world.questions)), draw.randint(1, mixture.asked))
        rows = world.questions.take(asked).to_pylist()
        texts: list[str] = []
        if level is not None:
            gold = np.isin(
                world.rules.column("id").to_numpy(), [rule for row in rows for rule in row["gold_rule_ids"]]
            )
            beside = _half_at_most(draw, LADDERS["questions"][0], LADDERS["questions"][level])
            near: list[int] = []
            if mixture.alike and draw.random() < mixture.alike:
                near = np.flatnonzero(_near(world.rules, gold)).tolist()
                near = draw.sample(near, min(len(near), beside))
            kept = [*np.flatnonzero(gold).tolist(), *near]
            rest = np.setdiff1d(np.arange(len(gold)), kept).tolist()
            kept += draw.sample(rest, beside - len(near))
            draw.shuffle(kept)
            texts = world.rules.column(language).take(kept).to_pylist()
        return self.writer.questions(texts, rows, language)

    def _requests(
        self,
        draw: random.Random,
        mixture: Mixture,
        worlds: list[FreshWorld],
        rules: list[list[dict[str, Any]]],
    ) -> Document:
        """Ask for the rules of each step; among what is found are up to `FOUND` that share the premise or the thing."""
        number = draw.randrange(len(worlds))
        world, language = worlds[number], _language(draw, mixture)
        (row,) = world.questions.slice(draw.randrange(len(world.questions)), 1).to_pylist()
        ids = world.rules.column("id").to_numpy()
        steps = []
        for step in row["steps"]:
            asked = []
            for each in step["rule_ids"]:
                gold = rules[number][int(np.flatnonzero(ids == each)[0])]
                near = [rules[number][i] for i in np.flatnonzero(_near(world.rules, ids == each))]
                found = [gold, *draw.sample(near, min(len(near), draw.randint(0, FOUND)))]
                draw.shuffle(found)
                asked.append((request_text(gold, language), [rule[language] for rule in found]))
            steps.append(asked)
        return self.writer.requests(row, steps, language)

    def _plain(self, draw: random.Random, mixture: Mixture, level: int) -> Document:
        """Ask in plain English, with rules of the same world beside those that the answer needs."""
        world, row = _plain_question(draw)
        texts = world.texts
        if draw.random() < mixture.requests:
            steps = []
            for step in row["steps"]:
                (gold,) = step["rule_ids"]
                near = [i for i in range(len(texts)) if i != gold and world.alike(i, gold)]
                found = [gold, *draw.sample(near, min(len(near), draw.randint(0, FOUND)))]
                draw.shuffle(found)
                steps.append([(world.premise(gold), [texts[i] for i in found])])
            return self.writer.requests(row, steps, "nl")
        others = [i for i in range(len(texts)) if i not in row["gold_rule_ids"]]
        beside = _half_at_most(draw, 0, LADDERS["plain"][level])
        kept = [*row["gold_rule_ids"], *draw.sample(others, min(beside, len(others)))]
        draw.shuffle(kept)
        return self.writer.questions([texts[i] for i in kept], [row | {"subtask": "plain"}], "nl")


def _plain_question(draw: random.Random) -> tuple[PlainWorld, dict[str, Any]]:
    known = [each for each in domains() if each.name not in HELD_OUT]
    while True:
        world = plain_world(draw, draw.choice(known), draw.randint(24, 60))
        if row := world.any_question(draw):
            return world, row


def _near(rules: pa.Table, gold: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rules, none of them gold, a search for one of the gold ones might find as well."""
    near = np.zeros_like(gold)
    for name in ("premise_fol", "attribute"):
        column = rules.column(name).combine_chunks()
        near |= pc.is_in(column, value_set=column.filter(pa.array(gold)).drop_null()).to_numpy(
            zero_copy_only=False
        )
    return near & ~gold


def _half_at_most(draw: random.Random, least: int, most: int) -> int:
    """Draw a number: half the time the largest, else any."""
    return most if draw.random() < 0.5 else draw.randint(least, most)


def _language(draw: random.Random, mixture: Mixture) -> Representation:
    return "fol" if draw.random() < mixture.fol else "nl"


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
    """

    ids: Tensor
    predicted: Tensor
    spans: list[tuple[int, int, str]]


def batches(documents: Sequence[Document], tokens: int, longest: int, key: str) -> Iterator[Batch]:
    """Group documents of similar length into batches of at most ``tokens`` tokens, in random order.

    Documents longer than ``longest`` are left out.
    """
    groups: list[list[Document]] = []
    for document in sorted((each for each in documents if len(each) <= longest), key=len):
        length = _padded(document)
        if groups and (len(groups[-1]) + 1) * length <= max(tokens, length):
            groups[-1].append(document)
        else:
            groups.append([document])
    random.Random(f"batches/{key}").shuffle(groups)
    for number, group in enumerate(groups):
        yield collate(group, f"{key}/{number}")


def _padded(document: Document) -> int:
    return -(-len(document) // PAD_TO) * PAD_TO


def collate(documents: Sequence[Document], key: str) -> Batch:
    """Pad documents to one length, a multiple of `PAD_TO`; the key names the draw of tokens to predict."""
    draw = random.Random(f"predicted/{key}").random
    ids = torch.zeros(len(documents), max(map(_padded, documents)), dtype=torch.long)
    predicted: list[tuple[int, int]] = []
    spans = []
    for row, document in enumerate(documents):
        ids[row, : len(document)] = torch.tensor(document.ids)
        place = {}
        for position, weight in enumerate(document.weights):
            if position and (weight >= 1 or draw() < weight):
                place[position] = len(predicted)
                predicted.append((row, position))
        spans += [(place[start], place[stop - 1] + 1, kind) for start, stop, kind in document.spans]
    return Batch(ids, torch.tensor(predicted).T.contiguous(), spans)


class Blocks:
    """Blocks of documents in the order in which they were ordered, made in other processes if there are any."""

    def __init__(self, stream: DocumentStream, processes: int) -> None:
        self.stream = stream
        self.pool: ProcessPoolExecutor | None = None
        self.pending: deque[tuple[int, dict[str, int], Callable[[], list[Document]]]] = deque()
        if processes:  # spawned: a forked one would inherit the locks of torch's threads
            self.pool = ProcessPoolExecutor(processes, get_context("spawn"), start_worker, (1,))

    def order(self, number: int, mixture: Mixture, levels: Mapping[str, int]) -> None:
        """Have a block made."""
        what = number, mixture, dict(levels)
        make = self.pool.submit(self.stream.block, *what).result if self.pool else None
        self.pending.append((number, dict(levels), make or partial(self.stream.block, *what)))

    def take(self) -> tuple[int, list[Document]]:
        """Return number and documents of the block that was ordered first."""
        number, _, make = self.pending.popleft()
        return number, make()

    def close(self) -> None:
        """Stop the processes."""
        if self.pool:
            self.pool.shutdown(wait=False, cancel_futures=True)
