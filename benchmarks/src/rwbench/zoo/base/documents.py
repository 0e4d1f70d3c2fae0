"""Training documents: lists of rules with lookups, and lists of rules with questions and their answers.

A document is one sequence of tokens in which every token has a weight in the loss:

- *recital*: N rules, then the same rules in another order; the conclusions of the second pass are N lookups by content.
- *questions*: rules that hold the gold rules of some questions and others, then each question and its answer in steps.
- *requests*: a question, and before each step of its answer a line that asks for the rules of that step, then rules
  among which they are. It is how a search can be asked for in this language, by whatever method searches.

Nothing here knows of rule memory, adapters or ``<search>``; `STEP` stands before every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from ruleworld_data.questions import training_text
from ruleworld_data.world import load_vocabulary, symbol

from .tokenizer import END, SEARCH, STEP, TokenVocabulary, pieces

Representation = Literal["nl", "fol"]
RECITED = {"nl": ("If {},", " {}."), "fol": ("{} =>", " {}")}
"""A rule's premise, and its conclusion."""


@dataclass
class Document:
    """Tokens, their weights, and what is measured on them.

    Attributes
    ----------
    ids : list of int
    weights : list of float
        Weight in the loss of predicting each token; the first is never predicted.
    spans : list of (int, int, str)
        First and last + 1 token of what must be right, and its kind: a rule type or a sub-task.
    """

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    spans: list[tuple[int, int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Sequence[int], weight: float, kind: str | None = None) -> None:
        """Append tokens; with a kind they are measured."""
        if kind is not None:
            self.spans.append((len(self.ids), len(self.ids) + len(ids), kind))
        self.ids.extend(ids)
        self.weights.extend([weight] * len(ids))


class Writer:
    """Turns rules and questions into documents; ``context_weight`` is that of tokens that no lookup decides."""

    def __init__(self, vocabulary: TokenVocabulary, context_weight: float) -> None:
        self.ids = {token: i for i, token in enumerate(vocabulary.tokens)}
        self.context_weight = context_weight
        self.line, self.end, self.step = self.ids["\n"], self.ids[END], self.ids[STEP]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text of the vocabulary's words; a KeyError names another word."""
        return [self.ids[piece] for piece in pieces(text)]

    def terse(self, pairs: Sequence[tuple[str, str]], order: Sequence[int]) -> Document:
        """Write key-value pairs and ask for some of them again: the value stands next to the key."""
        document, colon = self._rules([f" {key}: {value}" for key, value in pairs]), self.ids[":"]
        for i in order:
            key, value = pairs[i]
            document.add([*self.encode(" " + key), colon], self.context_weight)
            document.add(self.encode(" " + value), 1.0, "terse")
            document.add([self.line], self.context_weight)
        return document

    def recital(
        self, rules: Sequence[dict[str, Any]], order: Sequence[int], representation: Representation
    ) -> Document:
        """Write rules and recite them in another order, but those whose premise has several conclusions here."""
        document = self._rules([rule[representation] for rule in rules])
        rules_of = Counter(rule["premise_" + representation] for rule in rules)
        for i in order:
            rule = rules[i]
            premise, conclusion = rule["premise_" + representation], rule["conclusion_" + representation]
            if rules_of[premise] > 1:
                continue
            before, after = RECITED[representation]
            document.add(self.encode(before.format(premise)), self.context_weight)
            document.add(self.encode(after.format(conclusion)), 1.0, rule["type"])
            document.add([self.line], self.context_weight)
        return document

    def questions(
        self, rules: Sequence[str], rows: Sequence[dict[str, Any]], representation: Representation
    ) -> Document:
        """Write rules (none: the answers can only be guessed), then each question with its answer."""
        document = self._rules(rules)
        for row in rows:
            document.add([*self.encode(row["question"]), self.line], self.context_weight)
            _, *steps = training_text(row, representation, STEP, opening=True).split(STEP)
            answer = [token for step in steps for token in (self.step, *self.encode(step))]
            # No base can know an answer without rules, so it is trained on (the form of answers) and not measured.
            document.add([*answer, self.end], 1.0, row["subtask"] if rules else None)
        return document

    def requests(
        self,
        row: Mapping[str, Any],
        steps: Sequence[Sequence[tuple[str, Sequence[str]]]],
        representation: Representation,
    ) -> Document:
        """Write a question; before each step, rule by rule, what is asked for and the texts of what was found."""
        document = Document()
        document.add([*self.encode(row["question"]), self.line], self.context_weight)
        _, *written = training_text(row, representation, STEP, opening=True).split(STEP)
        for asked, text in zip(steps, written, strict=True):
            for request, found in asked:
                document.add(self.encode(f"{SEARCH} {request}\n"), 1.0)
                lines = [token for rule in found for token in self.encode(rule + "\n")]
                document.add([*lines, self.line], self.context_weight)
            document.add([self.step, *self.encode(text)], 1.0)
        document.add([self.end], 1.0)
        return document

    def _rules(self, texts: Sequence[str]) -> Document:
        document = Document()
        if texts:
            lines = [token for text in texts for token in (*self.encode(text), self.line)]
            document.add([*lines, self.line], self.context_weight)
        return document


def request_text(rule: Mapping[str, Any], representation: Representation) -> str:
    """Return what is known of a rule that is needed before it is found: its premise, and what a creature is to have.

    Examples
    --------
    >>> request_text({"type": "state2attr", "premise_nl": "A is needlessly jealous"}, "nl")
    'A is needlessly jealous'
    >>> giver = {"type": "entity2attr", "premise_fol": "Tiny_cat(A)", "attribute": "solar thumb"}
    >>> request_text(giver, "fol")
    'Tiny_cat(A), Solar_thumb'
    """
    premise = str(rule["premise_" + representation])
    if rule["type"] != "entity2attr":
        return premise
    attribute = rule["attribute"]
    plural = load_vocabulary().plural_of
    return f"{premise}, {symbol(attribute) if representation == 'fol' else plural[attribute]}"


@lru_cache(maxsize=1)
def key_value_words() -> dict[str, list[str]]:
    """Return the words of `key_value_pairs`, from the terms of the vocabulary: four sorts for keys, one for values."""
    terms = load_vocabulary()
    words = {
        "entity_adjective": {entity.split()[0] for entity in terms.entities},
        "entity_noun": {entity.split()[1] for entity in terms.entities},
        "attribute_adjective": {attribute.split()[0] for attribute in terms.attributes},
        "attribute_noun": {attribute.split()[1] for attribute in terms.attributes},
        "value": {state.split()[1] for state in terms.states},
    }
    return {name: sorted(each) for name, each in words.items()}


def key_value_pairs(draw: random.Random, count: int, length: int, shared: bool) -> list[tuple[str, str]]:
    """Draw different keys of one, two or four words, and a value of one word for each.

    Keys of four words are made of three words a slot if ``shared``, so that only all four together tell them apart.
    """
    *slots, values = key_value_words().values()
    chosen = slots if length == 4 else draw.sample(slots, length)
    if length == 1:
        chosen = [sorted({word for words in slots for word in words})]
    elif shared and length == 4:
        chosen = [draw.sample(words, 3) for words in slots]
    keys: dict[str, None] = {}
    for _ in range(20 * count):
        keys[" ".join(draw.choice(words) for words in chosen)] = None
        if len(keys) == count:
            break
    return [(key, draw.choice(values)) for key in keys]
