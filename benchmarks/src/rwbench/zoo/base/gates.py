"""Gates: what a base must be able to do, in the order in which one thing rests on another.

1. *lookup*: recite a rule's conclusion out of a list of rules of its type;
2. *gold only*: answer questions with only the rules that they need in the context;
3. *distractors*: the same with more rules beside them.

An answer counts if every token of it is the most likely one, which is what greedy decoding would write. Beside each
figure stands what blind choice would reach: of a rule in the list (lookup), of a rule of the right type for each gold
rule (questions).
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes

from ...markdown import markdown_table
from .data import batches
from .documents import Document, Representation, Writer
from .model import last_states
from .recipe import GATE_SEED

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

SIZES = WorldSizes(
    entities=96,
    attributes=64,
    states=400,
    actions=96,
    environments=96,
    entity2attr=1200,
    attrchange2attr=64,
    state2attr=1200,
)
LENGTHS = (2, 4, 8, 16, 32, 64)
DISTRACTORS = (0, 4, 8, 16, 32, 64)
LONGEST = 4096
GATES = {"lookup": 0.95, "gold_only": 0.98}
TITLES = {
    "lookup": "Lookup in a list of rules of one type, by length of the list",
    "gold_only": "Questions with their gold rules only",
    "distractors": "Questions with other rules beside the gold ones, by their number",
}


@dataclass(frozen=True)
class GateResult:
    """One figure."""

    gate: str  # lookup, gold_only or distractors
    kind: str  # rule type or sub-task
    representation: str
    rules: int  # in the list (lookup), or beside the gold ones
    n: int  # lookups or questions
    success: float  # share that came out right
    chance: float  # what blind choice would reach

    def __str__(self) -> str:
        return (
            f"{self.gate:<12} {self.kind:<16} {self.representation:<3} {self.rules:>3} rules: "
            f"{self.success:.3f} of {self.n} (chance {self.chance:.3f})"
        )


@torch.no_grad()
def successes(
    model: LlamaForCausalLM, documents: Sequence[Document], batch_tokens: int = 16384
) -> Counter[str]:
    """Count the spans of each kind that greedy decoding would write, token by token."""
    found: Counter[str] = Counter()
    device = model.model.embed_tokens.weight.device
    for batch in batches(documents, batch_tokens, LONGEST, "gates"):
        last = last_states(model, batch.ids.to(device), torch.float32)
        rows, positions = batch.predicted.to(device)
        logits = F.linear(last[rows, positions - 1], model.model.embed_tokens.weight.float())
        right = (logits.argmax(-1) == batch.ids.to(device)[rows, positions]).cpu()
        for start, stop, kind in batch.spans:
            found[kind] += bool(right[start:stop].all())
    return found


def lookups(
    writer: Writer, lengths: Sequence[int], lists: int, language: Representation
) -> Iterator[tuple[str, int, list[Document], float]]:
    """Yield type, length, documents and chance of same-type lists in which no two rules share a premise."""
    (world,) = fresh_worlds(GATE_SEED, 1, {}, n_rules=sum(SIZES.rule_counts().values()), sizes=SIZES)
    rules = world.rules.to_pylist()
    for kind in RULE_TYPES:
        by_premise = defaultdict(list)
        for rule in rules:
            if rule["type"] == kind:
                by_premise[rule["premise_" + language]].append(rule)
        groups = sorted(by_premise.values(), key=lambda group: group[0]["id"])
        for length in lengths:
            if length > len(groups):
                continue
            documents, chance = [], 0.0
            for i in range(lists):
                draw = random.Random(f"lookup/{kind}/{language}/{length}/{i}")
                drawn = [draw.choice(group) for group in draw.sample(groups, length)]
                conclusions = Counter(rule["conclusion_" + language] for rule in drawn)
                chance += sum(n * n for n in conclusions.values()) / length**2 / lists
                documents.append(writer.recital(drawn, draw.sample(range(length), length), language))
            yield kind, length, documents, chance


def asked(
    writer: Writer, distractors: int, per_subtask: int, language: Representation
) -> Iterator[tuple[str, list[Document], float]]:
    """Yield sub-task, one-question documents, and the chance that rules chosen blindly by type are the gold ones."""
    number = min(64, per_subtask)
    each, enough = -(-per_subtask // number), 64 + distractors
    for subtask in SUBTASKS:
        worlds = fresh_worlds(GATE_SEED, number, {subtask: each}, n_rules=enough, sizes=SIZES, first=64)
        questions = (
            (world.rules.to_pylist(), row) for world in worlds for row in world.questions.to_pylist()
        )
        documents, chance = [], 0.0
        for i, (rules, row) in enumerate(islice(questions, per_subtask)):
            draw = random.Random(f"asked/{subtask}/{language}/{distractors}/{i}")
            gold = [rule for rule in rules if rule["id"] in row["gold_rule_ids"]]
            others = [rule for rule in rules if rule["id"] not in row["gold_rule_ids"]]
            kept = gold + draw.sample(others, distractors)
            draw.shuffle(kept)
            of_type = Counter(rule["type"] for rule in kept)
            chance += math.prod(1 / of_type[rule["type"]] for rule in gold) / per_subtask
            documents.append(writer.questions([rule[language] for rule in kept], [row], language))
        yield subtask, documents, chance


def run_gates(
    model: LlamaForCausalLM,
    writer: Writer,
    lists: int = 16,
    questions: int = 100,
    lengths: Sequence[int] = LENGTHS,
    distractors: Sequence[int] = DISTRACTORS,
) -> Iterator[GateResult]:
    """Measure all gates, one figure at a time."""
    languages: tuple[Representation, ...] = ("fol", "nl")
    for language in languages:
        for kind, length, documents, chance in lookups(writer, lengths, lists, language):
            n = sum(len(each.spans) for each in documents)
            share = successes(model, documents)[kind] / n
            yield GateResult("lookup", kind, language, length, n, share, chance)
    for beside in distractors:
        for language in languages:
            for subtask, documents, chance in asked(writer, beside, questions, language):
                n = len(documents)
                share = successes(model, documents)[subtask] / n
                gate = "distractors" if beside else "gold_only"
                yield GateResult(gate, subtask, language, beside, n, share, chance)


def gate_table(cells: Sequence[GateResult]) -> str:
    """Return the figures as Markdown: one table a gate, one row a kind and representation."""
    parts = []
    for gate, title in TITLES.items():
        chosen = [cell for cell in cells if cell.gate == gate]
        if not chosen:
            continue
        columns = sorted({cell.rules for cell in chosen})
        found = {(c.kind, c.representation, c.rules): f"{c.success:.3f} ({c.chance:.2f})" for c in chosen}
        rows = [
            [kind, language.upper(), *(found.get((kind, language, n), "") for n in columns)]
            for kind, language in dict.fromkeys((cell.kind, cell.representation) for cell in chosen)
        ]
        means = [mean(cell.success for cell in chosen if cell.rules == n) for n in columns]
        rows.append(["mean", "", *(f"{each:.3f}" for each in means)])
        goal = f" (goal {GATES[gate]})" if gate in GATES else ""
        fewest = min(cell.n for cell in chosen)
        table = markdown_table(["", "", *map(str, columns)], rows, "ll" + "r" * len(columns))
        parts.append(f"**{title}**{goal}; success of {fewest} or more, chance in brackets\n\n{table}")
    return "\n\n".join(parts)
