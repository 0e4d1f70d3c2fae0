"""Blocks of training documents from fresh worlds: a block is a function of the seed, its number and the levels.

A level says how many rules a list may have, one for each kind of document; the trainer raises it when lookups at the
present level succeed. Worlds are drawn by `ruleworld_data.fresh`, so no rule or question is the benchmark's but by the
chance that two random worlds agree.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from ruleworld_data.fresh import FreshWorld, fresh_worlds
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes

from .documents import Document, Representation, Writer, key_value_pairs, key_value_words

WORLDS = 64
"""Small worlds of one continent (see `ruleworld_data.fresh`)."""
TERSE = ((1, 4), (1, 8), (1, 16), (2, 8), (4, 8), (4, 16), (4, 32))
"""Words of a key, and pairs in a list. Lookup by one word emerges first; two pairs would invite guessing."""
LADDERS: dict[str, tuple[int, ...]] = {
    "terse": tuple(pairs for _, pairs in TERSE),
    "recital": (4, 6, 8, 11, 16, 24, 32, 48, 64),
    "questions": (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96),
}
"""Pairs or rules in a list by level; for questions, rules beside the gold ones."""


@dataclass(frozen=True)
class Mixture:
    """What a block holds: shares of its tokens, and the world it comes from."""

    terse: float = field(default=0.0, metadata={"help": "share of key-value lists"})
    recital: float = field(default=0.0, metadata={"help": "share of recited rule lists"})
    questions: float = field(default=0.0, metadata={"help": "share of questions with rules"})
    guess: float = field(default=0.0, metadata={"help": "share of questions without any rule"})
    same_type: float = field(default=0.6, metadata={"help": "share of recited lists of one rule type"})
    fol: float = field(default=0.5, metadata={"help": "share of lists in first-order logic"})
    asked: int = field(default=3, metadata={"help": "most questions on one list"})

    def __post_init__(self) -> None:
        shares = (self.terse, self.recital, self.questions, self.guess)
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"terse + recital + questions + guess must be 1, got {shares}")


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
class Stream:
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
