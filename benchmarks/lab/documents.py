"""Documents in RuleWorld's language that a base learns from, blocks of them, and batches.

Sorts of documents, each a sequence of tokens with weights in the loss:

- *terse*: key-value pairs, then some of the keys again with their values: lookup at its simplest;
- *recital*: rules, then the same rules in another order: the conclusions of the second pass are lookups by content;
- *questions*: rules, among them the gold rules of some questions, then each question and its answer in steps;
- *requests*: a question, and before each step a line that asks for its rules, then rules among which they are.

Nothing here knows of rule memory or ``<search>``: the mark before each step is a plain part of the answer's format.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from ruleworld_data.fresh import FreshWorld, fresh_worlds
from ruleworld_data.questions import training_text
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes
from ruleworld_data.world import load_vocabulary, symbol
from torch import Tensor

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
Form = Literal["nl", "fol"]
SEARCH = "[Search]"
RECITED = {"nl": ("If {},", " {}."), "fol": ("{} =>", " {}")}  # a rule's premise, and its conclusion
WORLDS = 64  # small worlds of one continent, see `ruleworld_data.fresh`
FEWEST = 4  # rules that are recited
BESIDE_REQUESTED = 6  # most rules that a request brings beside the gold one
PAD_TO = 16


@dataclass(frozen=True, config=STRICT)
class Mixture:
    """What a block holds: shares of its tokens by sort of document, and how difficult these are."""

    terse: float = 0.0
    recital: float = 0.0
    questions: float = 0.0
    requests: float = 0.0
    key_words: int = 1  # of a key in key-value lists, 1 to 4
    pairs: int = 8  # most pairs of such a list
    recited: int = 8  # most rules of a recited list
    same_type: float = 0.6  # share of recited lists of one rule type
    asked: int = 3  # most questions on one list
    beside: int = 0  # most rules beside the gold ones
    alike: float = 0.0  # share of lists whose other rules are like gold ones, see `lookalikes`
    fol: float = 0.5  # share of documents in first-order logic


class Document(NamedTuple):
    """Tokens, the weight in the loss of predicting each, and spans (first, last + 1, kind) that must be all right."""

    ids: list[int]
    weights: list[float]
    spans: list[tuple[int, int, str]]


class Part(NamedTuple):
    """A piece of a document; without a weight it is context, with a kind it is measured."""

    text: str
    weight: float | None = None
    kind: str | None = None


class Writer:
    """Writes documents with a model's own tokenizer; ``mark``, one of its special tokens, opens each step."""

    def __init__(self, tokenizer: Any, mark: str, context_weight: float) -> None:
        self.tokenizer, self.mark, self.context_weight = tokenizer, mark, context_weight
        if self.write([Part("A.\n\nB")]).ids != self.write([*_lines(["A."]), Part("B")]).ids:
            raise ValueError(
                "the tokenizer joins line breaks with what stands around them; it cannot be used"
            )

    def write(self, parts: Sequence[Part]) -> Document:
        """Turn the parts of a document into tokens."""
        ids: list[int] = []
        weights: list[float] = []
        spans = []
        encoded = self.tokenizer([part.text for part in parts], add_special_tokens=False)["input_ids"]
        for tokens, part in zip(encoded, parts, strict=True):
            if part.kind:
                spans.append((len(ids), len(ids) + len(tokens), part.kind))
            ids += tokens
            weights += [self.context_weight if part.weight is None else part.weight] * len(tokens)
        return Document(ids, weights, spans)

    def questions(self, rules: Sequence[str], rows: Sequence[Mapping[str, Any]], form: Form) -> Document:
        """Write rules, then each question with its answer."""
        return self.write([*_lines(rules), *(part for row in rows for part in self._answered(row, form))])

    def rules(self, texts: Sequence[str]) -> Document:
        """Write rules alone."""
        return self.write(_lines(texts))

    def line(self, text: str) -> list[int]:
        """Return the tokens of a rule that is read alone."""
        return self.write(_lines([text])[:1]).ids

    def answer(self, row: Mapping[str, Any], form: Form) -> Document:
        """Write a question with its answer, which rules come before."""
        return self.write(self._answered(row, form))

    def _answered(self, row: Mapping[str, Any], form: Form) -> list[Part]:
        answer = training_text(row, form, None, mark=self.mark) + self.tokenizer.eos_token
        return [Part(row["question"] + "\n"), Part(answer, 1.0, row["subtask"])]

    def requests(self, row: Mapping[str, Any], brought: list[tuple[str, list[str]]], form: Form) -> Document:
        """Write a question; before each step, for each of its rules, what is asked for and the rules brought."""
        parts, pairs = [Part(row["question"] + "\n")], iter(brought)
        _, *answer = training_text(row, form, None, mark=self.mark).split(self.mark)
        for step, text in zip(row["steps"], answer, strict=True):
            for request, texts in islice(pairs, len(step["rule_ids"])):
                parts += [Part(f"{SEARCH} {request}\n", 1.0), *_lines(texts)]
            parts.append(Part(self.mark + text, 1.0))
        return self.write([*parts, Part(self.tokenizer.eos_token, 1.0)])


def _lines(texts: Sequence[str]) -> list[Part]:
    return [*(Part(text + "\n") for text in texts), Part("\n")]


def request_text(rule: Mapping[str, Any], form: Form) -> str:
    """Return what is known of a needed rule before it is read: its premise, and what a creature is to have."""
    premise, attribute = str(rule[f"premise_{form}"]), rule["attribute"]
    if rule["type"] != "entity2attr":
        return premise
    return f"{premise}, {symbol(attribute) if form == 'fol' else load_vocabulary().plural_of[attribute]}"


def draw_block(writer: Writer, seed: int, number: int, mixture: Mixture, tokens: int) -> list[Document]:
    """Return about so many tokens of documents in random order, a function of seed, number and mixture.

    Worlds are fresh, so no rule or question is the benchmark's but by the chance that two random worlds agree.
    """
    draw = random.Random(f"base/{seed}/{number}")
    sizes, worlds = small_sizes(draw), []
    if mixture.terse < 1:
        wanted = dict.fromkeys(SUBTASKS, 3)
        worlds = list(fresh_worlds(seed, WORLDS, wanted, n_rules=300, sizes=sizes, first=number * WORLDS))
    block, documents = _Block(writer, draw, mixture, worlds), []
    for name in ("terse", "recital", "questions", "requests"):
        left = getattr(mixture, name) * tokens
        while left > 0:
            documents.append(getattr(block, name)())
            left -= len(documents[-1].ids)
    draw.shuffle(documents)
    return documents


def small_sizes(draw: random.Random) -> WorldSizes:
    """Draw the sizes of a continent; few terms make distractors that resemble the gold rules."""
    entities, attributes, actions = (draw.choice(few) for few in ((12, 24, 48), (16, 32, 64), (12, 24, 48)))
    states = 3 * actions + 4
    rules = (
        min(800, entities * attributes * 3 // 4),
        attributes * 3 // 4,
        min(900, states * attributes // 8),
    )
    counts = dict(zip(("entity2attr", "attrchange2attr", "state2attr"), rules, strict=True))
    counts |= {"entities": entities, "attributes": attributes, "states": states, "actions": actions}
    return WorldSizes(**counts, environments=actions)


class _Block(NamedTuple):
    """Draws documents of each sort."""

    writer: Writer
    draw: random.Random
    mixture: Mixture
    worlds: Sequence[FreshWorld]

    def terse(self) -> Document:
        draw, slots = self.draw, self.draw.sample(_words()[:-1], self.mixture.key_words)
        if draw.random() < 0.5:  # so few words that only all together tell keys apart
            slots = [draw.sample(words, 3) if len(slots) > 1 else words for words in slots]
        count = self._size(2, self.mixture.pairs)
        keys = dict.fromkeys(" ".join(map(draw.choice, slots)) for _ in range(count))
        pairs = [(key, draw.choice(_words()[-1])) for key in keys]
        parts = _lines([f" {key}: {value}" for key, value in pairs])
        for key, value in draw.choices(pairs, k=count):
            parts += [Part(f" {key}:"), Part(f" {value}", 1.0, "terse"), Part("\n")]
        return self.writer.write(parts)

    def recital(self) -> Document:
        draw, world = self.draw, self.draw.choice(self.worlds[:8]).rules.to_pylist()
        kind = draw.choice(RULE_TYPES) if draw.random() < self.mixture.same_type else None
        # one rule a premise, or the conclusion that is asked for could be any of several
        by_premise = {rule["premise_fol"]: rule for rule in draw.sample(world, len(world))}
        rules = [rule for rule in by_premise.values() if kind in (None, rule["type"])]
        rules = rules if len(rules) >= FEWEST else list(by_premise.values())
        rules = draw.sample(rules, min(len(rules), self._size(FEWEST, self.mixture.recited)))
        again, form = draw.sample(rules, len(rules)), self._form()
        parts, (before, after) = _lines([rule[form] for rule in rules]), RECITED[form]
        for rule in again:
            parts.append(Part(before.format(rule[f"premise_{form}"])))
            parts.append(Part(after.format(rule[f"conclusion_{form}"]), 1.0, rule["type"]))
            parts.append(Part("\n"))
        return self.writer.write(parts)

    def questions(self) -> Document:
        draw, mixture = self.draw, self.mixture
        world, form = draw.choice(self.worlds), self._form()
        chosen = draw.sample(range(len(world.questions)), draw.randint(1, mixture.asked))
        rows = world.questions.take(chosen).to_pylist()
        gold = np.isin(world.rules.column("id").to_numpy(), [i for row in rows for i in row["gold_rule_ids"]])
        beside = self._size(0, mixture.beside)
        alike: list[int] = []
        if mixture.alike and draw.random() < mixture.alike:
            alike = np.flatnonzero(lookalikes(world.rules, gold)).tolist()
            alike = draw.sample(alike, min(len(alike), beside))
        kept = [*np.flatnonzero(gold).tolist(), *alike]
        rest = np.setdiff1d(np.arange(len(gold)), kept).tolist()
        kept += draw.sample(rest, beside - len(alike))
        draw.shuffle(kept)
        return self.writer.questions(world.rules.column(form).take(kept).to_pylist(), rows, form)

    def requests(self) -> Document:
        world, form = self.worlds[self.draw.randrange(8)], self._form()
        (row,) = world.questions.slice(self.draw.randrange(len(world.questions)), 1).to_pylist()
        return asking(self.writer, self.draw, world, row, form)

    def _size(self, least: int, most: int) -> int:
        """Draw a number: half the time the largest, else any."""
        return most if self.draw.random() < 0.5 else self.draw.randint(least, most)

    def _form(self) -> Form:
        return "fol" if self.draw.random() < self.mixture.fol else "nl"


def asking(writer: Writer, draw: random.Random, world: FreshWorld, row: Any, form: Form) -> Document:
    """Return a question that asks for its rules before each step, and gets each among some others."""
    rules, ids, brought = world.rules.to_pylist(), world.rules.column("id").to_numpy(), []
    for name in (name for step in row["steps"] for name in step["rule_ids"]):
        gold = rules[int(np.flatnonzero(ids == name)[0])]
        others = [rules[i][form] for i in np.flatnonzero(lookalikes(world.rules, ids == name))]
        brought.append((request_text(gold, form), among(draw, gold[form], others)))
    return writer.requests(row, brought, form)


def among(draw: random.Random, gold: str, others: list[str]) -> list[str]:
    """Return the gold rule among some of the others."""
    rules = [gold, *draw.sample(others, min(len(others), draw.randint(0, BESIDE_REQUESTED)))]
    draw.shuffle(rules)
    return rules


def lookalikes(rules: pa.Table, gold: np.ndarray) -> np.ndarray:
    """Return which rules, none of them gold, a search for one of the gold ones might find as well."""
    alike = np.zeros_like(gold)
    for name in ("premise_fol", "attribute"):
        column = rules.column(name).combine_chunks()
        values = column.filter(pa.array(gold)).drop_null()
        alike |= pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
    return alike & ~gold


@lru_cache(maxsize=1)
def _words() -> list[list[str]]:
    """Return four sorts of words for keys, and one for values."""
    terms = load_vocabulary()
    columns = [(names, place) for names in (terms.entities, terms.attributes) for place in (0, 1)]
    return [sorted({term.split()[place] for term in names}) for names, place in [*columns, (terms.states, 1)]]


class Batch(NamedTuple):
    """Documents as tensors, and which tokens are predicted: all of weight 1, and a sample of the others."""

    ids_BT: Tensor
    predicted_BT: Tensor
    spans: list[tuple[int, int, int, str]]  # row, first, last + 1, and the kind of what must be right


def batches(documents: Sequence[Document], tokens: int, longest: int, key: str) -> Iterator[Batch]:
    """Group documents of similar length into batches of at most ``tokens``; longer ones are left out."""
    groups: list[list[Document]] = []
    for document in sorted((d for d in documents if len(d.ids) <= longest), key=lambda d: len(d.ids)):
        length = -(-len(document.ids) // PAD_TO) * PAD_TO
        if groups and (len(groups[-1]) + 1) * length <= max(tokens, length):
            groups[-1].append(document)
        else:
            groups.append([document])
    random.Random(f"batches/{key}").shuffle(groups)
    for number, group in enumerate(groups):
        draw = random.Random(f"predicted/{key}/{number}").random
        shape = len(group), -(-len(group[-1].ids) // PAD_TO) * PAD_TO
        batch = Batch(torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool), [])
        for row, (ids, weights, spans) in enumerate(group):
            batch.ids_BT[row, : len(ids)] = torch.tensor(ids)
            batch.predicted_BT[row, 1 : len(ids)] = torch.tensor([w >= 1 or draw() < w for w in weights[1:]])
            batch.spans.extend((row, *span) for span in spans)
        yield batch
