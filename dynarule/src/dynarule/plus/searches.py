"""What the searches of questions know, read once: states of layers that hold no rules."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..bank.layer_encoder import frozen_layers
from ..training.data import Encoder, Row, pad_right
from ..training.pools import Rows
from .reader import SearchInput, token_kinds

READ_BATCH = 64


class KnownSearch(NamedTuple):
    """One search of a question: where it stands, the rules it needs, and those that its chain ends with."""

    question: int
    at: int
    gold: list[int]
    ends: list[int]
    later: bool


class Searches(NamedTuple):
    """The searches of some questions, with the states that the confidence layer reads of their texts."""

    states: Tensor  # fp16 (tokens, C), question after question, in a file: those of 100,000 fill a memory
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


@torch.no_grad()
def read_searches(
    model: nn.Module,
    layer: int,
    rows: Rows,
    encoder: Encoder,
    search_id: int,
    folder: Path,
    opening: bool = True,
) -> Searches:
    """Run the layers below the confidence layer over questions with their answers, once.

    In rows of family (or sub-task) ``multi_hop``, and where there is no such column, steps follow from each other and
    the first rule of each is what leads on; in others each step is asked for by itself. Where a ``<search>`` opens the
    answers, it looks for the first step's rules, or without ``opening`` the prompt does. States are kept in a file of
    ``folder`` without a name: it goes with the process.
    """
    device = next(model.parameters()).device
    decoder, embedding = frozen_layers(model, layer), model.get_input_embeddings()  # type: ignore[operator]
    encoded = [encoder(rows[number]) for number in range(len(rows))]
    *starts, total = itertools.accumulate((len(row.ids) for row in encoded), initial=0)
    with tempfile.TemporaryFile(dir=folder) as file:
        states = torch.from_numpy(np.memmap(file, np.float16, "w+", shape=(total, embedding.weight.shape[1])))
    marks = torch.zeros(2, total, dtype=torch.bool)
    items: list[KnownSearch] = []
    links: list[tuple[int, int]] = []
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].ids))
    for start in range(0, len(order), READ_BATCH):
        part = order[start : start + READ_BATCH]
        ids_BT, mask_BT = pad_right([encoded[i].ids for i in part], 0)
        embedded_BTC = embedding(ids_BT.to(device)).float()
        read = decoder(inputs_embeds=embedded_BTC, attention_mask=mask_BT.to(device), use_cache=False)
        for row, i in enumerate(part):
            ids = torch.tensor(encoded[i].ids)
            here = slice(starts[i], starts[i] + len(ids))
            states[here] = read.last_hidden_state[row, : len(ids)].half().cpu()
            answer_T = torch.arange(len(ids)) >= encoded[i].prompt
            marks[:, here] = torch.stack([~answer_T, (ids == search_id) & answer_T])
    for number, tokens in enumerate(encoded):
        row = rows[number]
        places, gold = [tokens.prompt - 1, *tokens.search], tokens.gold
        if len(gold) > len(row["steps"]):  # one of the first two is read by no step
            del places[0 if opening else 1]
            gold = gold[1:]
        chain = _family(row) in ("", "multi_hop")
        for step, (at, rules) in enumerate(zip(places, gold, strict=True)):
            items.append(KnownSearch(number, at, rules, gold[-1] if chain else rules, chain and step > 0))
        links += [(one[0], two[0]) for one, two in itertools.pairwise(gold) if chain]
    return Searches(states, marks, starts, items, links, [_family(rows[i]) for i in range(len(rows))])


def _family(row: Row) -> str:
    return str(row.get("family", row.get("subtask", ""))).rstrip("_0123456789")
