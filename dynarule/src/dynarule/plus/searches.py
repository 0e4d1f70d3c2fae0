"""What the searches of questions know, read once: the states that the confidence layer reads."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..base_model import first_layers, padded
from ..memory.hooks import attach
from ..memory.training import RuleBatch, TrainingMemory
from ..training.data import Encoder, Row
from ..training.pools import Rows, RulePools
from .reader import SearchInput, token_kinds

READ_BATCH, READ_RULES = 64, 1000


class KnownSearch(NamedTuple):
    """One search of a question: where it stands, the rules it needs, and those that its chain ends with."""

    question: int
    at: int
    gold: list[int]
    ends: list[int]
    later: bool


class Searches(NamedTuple):
    """The searches of some questions, with the states that the confidence layer reads of their texts."""

    states: Tensor  # fp16 (tokens, C), question after question, in a file; of `as_paper` (searches, C)
    marks: Tensor  # bool (2, tokens): which tokens are the question's, and which are <search>
    starts: list[int]  # where the tokens of each question begin
    items: list[KnownSearch]  # in the order of questions and steps
    links: list[tuple[int, int]]  # rules that follow each other in a chain
    families: list[str]  # by question; empty texts where the questions name none

    def inputs(self, numbers: Sequence[int], device: torch.device) -> SearchInput:
        """Return what some searches know."""
        chosen = [self.items[number] for number in numbers]
        longest = max(item.at for item in chosen) + 1
        states_BTC = torch.zeros(len(chosen), longest, self.states.shape[1])
        marks_BST = torch.zeros(len(chosen), 3, longest, dtype=torch.bool)
        for row, item in enumerate(chosen):
            length, start = item.at + 1, self.starts[item.question]
            states_BTC[row, :length] = self.states[start : start + length].float()
            marks_BST[row, :2, :length] = self.marks[:, start : start + length]
            marks_BST[row, 2, :length] = True
        at_B = torch.tensor([item.at for item in chosen])
        question_BT, search_BT, real_BT = marks_BST.unbind(1)
        kind_BT = token_kinds(question_BT, search_BT, real_BT, at_B)
        token_BC = states_BTC[torch.arange(len(chosen)), at_B]
        return SearchInput(states_BTC.to(device), kind_BT.to(device), token_BC.to(device))

    def as_paper(self) -> "Searches":
        """Return what the paper's queries know of these: one state a search, which a training has at hand."""
        places = [self.starts[item.question] + item.at for item in self.items]
        states_NC = self.states[places]
        for row in self.marks[0, places].nonzero()[:, 0].tolist():  # at the prompt, by the question's mean
            states_NC[row] = self.states[places[row] - self.items[row].at : places[row] + 1].float().mean(0)
        marks = torch.tensor([[True], [False]]).expand(2, len(places))
        items = [item._replace(question=number, at=0) for number, item in enumerate(self.items)]
        families = [self.families[item.question] for item in self.items]
        return Searches(states_NC, marks, [*range(len(places))], items, self.links, families)


@torch.no_grad()
def read_searches(
    adapter: RuleAdapter,
    rows: Rows,
    bank: RuleBank,
    encoder: Encoder,
    search_id: int,
    folder: Path,
    seed: int = 0,
) -> Searches:
    """Run the layers below the confidence layer over questions with their answers, once.

    Those that hold rules keep theirs of pools of `READ_RULES` (or as many as are gold), one for each batch.

    In rows of family (or sub-task) ``multi_hop`` or ``unknown``, and where there is no such column, steps follow from
    each other and the first rule of each is what leads on; in others each step is asked for by itself. Where a
    ``<search>`` opens the answers, it looks for the first step's rules. States are kept in a file of ``folder`` without
    a name: it goes with the process.
    """
    model, config = adapter.model, adapter.config
    device, layer = model.device, config.confidence_layer
    assert layer is not None  # who trains says so
    pools, memory = RulePools(len(bank), seed=seed), TrainingMemory(adapter)
    memory.measure = True  # layers below keep what the prompt finds in a pool
    encoded = [encoder(rows[number]) for number in range(len(rows))]
    *starts, total = itertools.accumulate((len(row.ids) for row in encoded), initial=0)
    with tempfile.TemporaryFile(dir=folder) as file:
        states = torch.from_numpy(np.memmap(file, np.float16, "w+", shape=(total, model.config.hidden_size)))
    marks = torch.zeros(2, total, dtype=torch.bool)
    items: list[KnownSearch] = []
    links: list[tuple[int, int]] = []
    # The longest first: what they took in memory serves all others, where growing batches leave holes.
    order = sorted(range(len(encoded)), key=lambda i: -len(encoded[i].ids))
    with attach(model, memory):
        layers = first_layers(model.get_decoder(), layer)
        for start in range(0, len(order), READ_BATCH):
            part = order[start : start + READ_BATCH]
            ids_BT, mask_BT = padded([encoded[i].ids for i in part])
            question_BT = torch.arange(ids_BT.shape[1]) < torch.tensor([[encoded[i].prompt] for i in part])
            held = None
            if config.first_layer != layer:
                needed = {rule for i in part for step in encoded[i].gold for rule in step}
                drawn = pools.draw(needed, max(READ_RULES, len(needed)), start)
                pool_M = torch.from_numpy(drawn).to(bank.device)
                sides = bank.keys[pool_M].to(device), bank.values[pool_M].to(device)
                none_BS, unforced_BSG = ids_BT.new_empty(len(part), 0), ids_BT.new_full((len(part), 1, 1), -1)
                held = RuleBatch(*sides, question_BT.to(device), none_BS, unforced_BSG)
            memory.load(held)
            ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
            memory.begin(ids_BT, mask_BT, 0)
            states_BTC = layers(ids_BT, attention_mask=mask_BT, use_cache=False).last_hidden_state
            for row, i in enumerate(part):
                ids = torch.tensor(encoded[i].ids)
                here = slice(starts[i], starts[i] + len(ids))
                states[here] = states_BTC[row, : len(ids)].half().cpu()
                question_T = question_BT[row, : len(ids)]
                marks[:, here] = torch.stack([question_T, (ids == search_id) & ~question_T])
    for number, tokens in enumerate(encoded):
        row = rows[number]
        places, gold = [tokens.prompt - 1, *tokens.search], tokens.gold
        if len(gold) > len(row["steps"]):  # what the prompt finds is read by no step
            places, gold = places[1:], gold[1:]
        chain = _family(row) in ("", "multi_hop", "unknown")
        for step, (place, wanted) in enumerate(zip(places, gold, strict=True)):
            last = gold[-1] if chain else wanted
            items.append(KnownSearch(number, place, wanted, last, chain and step > 0))
        links += [(one[0], two[0]) for one, two in itertools.pairwise(gold) if chain]
    return Searches(states, marks, starts, items, links, [_family(rows[i]) for i in range(len(rows))])


def _family(row: Row) -> str:
    return str(row.get("family", row.get("subtask", ""))).rstrip("_0123456789")
