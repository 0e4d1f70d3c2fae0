"""Questions and answers in RuleWorld's language as tokens, with or without rules that a model asks for before a step.

Nothing here knows of rule memory or ``<search>``: the mark before each step is a plain part of the answer's format.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict
from ruleworld_data.questions import training_text
from ruleworld_data.spec import WorldSizes
from ruleworld_data.world import load_vocabulary, symbol

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
Form = Literal["nl", "fol"]
SEARCH = "[Search]"
BESIDE_REQUESTED = 6  # most rules that a request brings beside the gold one


class Document(NamedTuple):
    """Tokens, which of them are to be predicted, and the kind of the question."""

    ids: list[int]
    wanted: list[bool]
    kind: str = ""


class Part(NamedTuple):
    """A piece of a document: context, or text that the model writes."""

    text: str
    wanted: bool = False


class Writer:
    """Writes documents with a model's own tokenizer; ``mark``, one of its special tokens, opens each step."""

    def __init__(self, tokenizer: Any, mark: str) -> None:
        self.tokenizer, self.mark = tokenizer, mark
        if self.write([Part("A.\n\nB")]).ids != self.write([*_lines(["A."]), Part("B")]).ids:
            raise ValueError(
                "the tokenizer joins line breaks with what stands around them; it cannot be used"
            )

    def write(self, parts: Sequence[Part], kind: str = "") -> Document:
        """Turn the parts of a document into tokens."""
        encoded = self.tokenizer([part.text for part in parts], add_special_tokens=False)["input_ids"]
        wanted = [part.wanted for tokens, part in zip(encoded, parts, strict=True) for _ in tokens]
        return Document([id for tokens in encoded for id in tokens], wanted, kind)

    def rules(self, texts: Sequence[str]) -> Document:
        """Write rules alone."""
        return self.write(_lines(texts))

    def line(self, text: str) -> list[int]:
        """Return the tokens of a rule that is read alone."""
        return self.write(_lines([text])[:1]).ids

    def answer(self, row: Mapping[str, Any], form: Form) -> Document:
        """Write a question with its answer, which rules come before."""
        answer = training_text(row, form, None, mark=self.mark) + self.tokenizer.eos_token
        return self.write([Part(row["question"] + "\n"), Part(answer, True)], row["subtask"])

    def requests(self, draw: random.Random, row: Mapping[str, Any], form: Form, known: Any) -> Document:
        """Write a question; before each step, for each of its rules, what is asked for, and it among some others.

        ``known`` returns of a rule what is asked for, its text, and others that a search might find as well.
        """
        parts = [Part(row["question"] + "\n")]
        _, *answer = training_text(row, form, None, mark=self.mark).split(self.mark)
        for step, text in zip(row["steps"], answer, strict=True):
            for name in step["rule_ids"]:
                request, gold, others = known(name)
                brought = [gold, *draw.sample(others, min(len(others), draw.randint(0, BESIDE_REQUESTED)))]
                draw.shuffle(brought)
                parts += [Part(f"{SEARCH} {request}\n", True), *_lines(brought)]
            parts.append(Part(self.mark + text, True))
        return self.write([*parts, Part(self.tokenizer.eos_token, True)], row["subtask"])


def _lines(texts: Sequence[str]) -> list[Part]:
    return [*(Part(text + "\n") for text in texts), Part("\n")]


def request_text(rule: Mapping[str, Any], form: Form) -> str:
    """Return what is known of a needed rule before it is read: its premise, and what a creature is to have."""
    premise, attribute = str(rule[f"premise_{form}"]), rule["attribute"]
    if rule["type"] != "entity2attr":
        return premise
    return f"{premise}, {symbol(attribute) if form == 'fol' else load_vocabulary().plural_of[attribute]}"


def small_sizes(draw: random.Random) -> WorldSizes:
    """Draw the sizes of a fresh world; few terms make distractors that resemble the gold rules."""
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


def lookalikes(rules: pa.Table, gold: np.ndarray) -> np.ndarray:
    """Return which rules, none of them gold, a search for one of the gold ones might find as well."""
    alike = np.zeros_like(gold)
    for name in ("premise_fol", "attribute"):
        column = rules.column(name).combine_chunks()
        values = column.filter(pa.array(gold)).drop_null()
        alike |= pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
    return alike & ~gold
