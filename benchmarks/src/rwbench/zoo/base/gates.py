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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.spec import RULE_TYPES, SUBTASKS, WorldSizes

from .data import batches
from .documents import Document, Representation, Writer
from .model import hidden_states
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


@dataclass(frozen=True)
class GateResult:
    """One figure.

    Attributes
    ----------
    gate : str
        ``lookup``, ``gold_only`` or ``distractors``.
    kind : str
        Rule type or sub-task.
    representation : str
    rules : int
        Rules in the list (lookup), or beside the gold ones.
    n : int
        Lookups or questions.
    success : float
        Share that came out right.
    chance : float
        What blind choice would reach.
    """

    gate: str
    kind: str
    representation: str
    rules: int
    n: int
    success: float
    chance: float = field(default=math.nan)


@torch.no_grad()
def successes(
    model: LlamaForCausalLM, documents: Sequence[Document], batch_tokens: int = 16384
) -> Counter[str]:
    """Count the spans of each kind that greedy decoding would write, token by token."""
    found: Counter[str] = Counter()
    device = model.model.embed_tokens.weight.device
    for batch in batches(documents, batch_tokens, LONGEST, "gates"):
        last = hidden_states(model, batch.ids.to(device), torch.float32)[-1]
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
        by_premise: dict[str, list[dict[str, Any]]] = {}
        for rule in rules:
            if rule["type"] == kind:
                by_premise.setdefault(rule["premise_" + language], []).append(rule)
        groups = sorted(by_premise.values(), key=lambda group: group[0]["id"])
        for length in lengths:
            if length > len(groups):
                continue
            documents, chance = [], 0.0
            for i in range(lists):
                generator = random.Random(f"lookup/{kind}/{language}/{length}/{i}")
                drawn = [generator.choice(group) for group in generator.sample(groups, length)]
                conclusions = Counter(rule["conclusion_" + language] for rule in drawn)
                chance += sum(n * n for n in conclusions.values()) / length**2 / lists
                order = generator.sample(range(length), length)
                documents.append(writer.recital(drawn, order, language))
            yield kind, length, documents, chance


def asked(
    writer: Writer, distractors: int, per_subtask: int, language: Representation
) -> Iterator[tuple[str, list[Document], float]]:
    """Yield sub-task, one-question documents, and the chance that rules chosen blindly by type are the gold ones."""
    worlds_asked = min(64, per_subtask)
    each = -(-per_subtask // worlds_asked)
    for subtask in SUBTASKS:
        worlds = fresh_worlds(
            GATE_SEED, worlds_asked, {subtask: each}, n_rules=64 + distractors, sizes=SIZES, first=64
        )
        documents: list[Document] = []
        chance = 0.0
        for world in worlds:
            rules = world.rules.to_pylist()
            for row in world.questions.to_pylist():
                if len(documents) == per_subtask:
                    break
                generator = random.Random(f"asked/{subtask}/{language}/{distractors}/{len(documents)}")
                gold = [rule for rule in rules if rule["id"] in set(row["gold_rule_ids"])]
                others = [rule for rule in rules if rule["id"] not in set(row["gold_rule_ids"])]
                kept = gold + generator.sample(others, distractors)
                generator.shuffle(kept)
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
            yield GateResult(
                "lookup", kind, language, length, n, successes(model, documents)[kind] / n, chance
            )
    for beside in distractors:
        gate = "distractors" if beside else "gold_only"
        for language in languages:
            for subtask, documents, chance in asked(writer, beside, questions, language):
                n = len(documents)
                right = successes(model, documents)[subtask]
                yield GateResult(gate, subtask, language, beside, n, right / n, chance)


def gate_table(cells: Sequence[GateResult]) -> str:
    """Return the figures as Markdown: one table a gate, one row a kind and representation."""
    titles = {
        "lookup": "Lookup in a list of rules of one type, by length of the list",
        "gold_only": "Questions with their gold rules only",
        "distractors": "Questions with other rules beside the gold ones, by their number",
    }
    parts = []
    for gate, title in titles.items():
        chosen = [cell for cell in cells if cell.gate == gate]
        if not chosen:
            continue
        columns = sorted({cell.rules for cell in chosen})
        goal = f" (goal {GATES[gate]})" if gate in GATES else ""
        fewest = min(cell.n for cell in chosen)
        lines = [f"**{title}**{goal}; success of {fewest} or more, chance in brackets", ""]
        lines.append("| | | " + " | ".join(map(str, columns)) + " |")
        lines.append("| --- | --- |" + " ---: |" * len(columns))
        rows = dict.fromkeys((cell.kind, cell.representation) for cell in chosen)
        for kind, language in rows:
            found = {c.rules: c for c in chosen if (c.kind, c.representation) == (kind, language)}
            figures = (
                f"{found[n].success:.3f} ({found[n].chance:.2f})" if n in found else "" for n in columns
            )
            lines.append(f"| {kind} | {language.upper()} | " + " | ".join(figures) + " |")
        mean = (
            f"{sum(c.success for c in chosen if c.rules == n) / sum(c.rules == n for c in chosen):.3f}"
            for n in columns
        )
        lines.append("| mean | | " + " | ".join(mean) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
