"""Ablations: one thing changed at a time. Settings are chosen with ``--split validation``."""

from dataclasses import replace
from typing import Any

from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import SRKI, DynaRule, KBLaM
from ..methods.plus import DynaRulePlus, Planned
from ..methods.react import ReAct
from ..methods.stepwise import Stepwise
from ..retrievers.both_ends import BothEnds
from ..retrievers.graph import Graph
from . import MAIN_SIZES, Cell, recipe
from .arena import IN_TURN, SEARCHES, from_both_ends, retrievers, reworded, rule_memory, searching

Changes = list[dict[str, Any]]
VARIANTS = ("", "seed-1", "seed-2", "minilm", "every-third", "premise")
"""Adapters of one method that were trained in different ways; see `Memory.variant`."""


@recipe("ablation/in_prompt", (10_000,))
def in_prompt(cell: Cell) -> list[Method]:
    """Every search with 2, 4, 8 and 16 rules in the prompt; RAG also with up to 16 by their share of the best score."""
    rows = [row for rules in (2, 4, 8, 16) for row in searching(cell, in_prompt=rules)]
    for share in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        rows += [row for row in searching(cell, in_prompt=16, score_share=share) if row.name == "rag"]
    return [*rows]


@recipe("ablation/searches", (10_000,))
def searches(cell: Cell) -> list[Method]:
    """IRCoT by how searches become one list, their number and share, ReAct by number, answer, request, Stepwise RAG."""
    bm25 = retrievers(cell)[1]
    thinking: Changes = [{}, IN_TURN, IN_TURN | {"rounds": 8}]
    acting: Changes = [{"in_prompt": 4}, *({"in_prompt": rules} | SEARCHES["react"] for rules in (2, 4, 8))]
    rows: list[Method] = [IRCoT(model=cell.model, retriever=bm25, in_prompt=16, **how) for how in thinking]
    rows += [ReAct(model=cell.model, retriever=bm25, **how) for how in acting]
    rows += [
        Stepwise(model=cell.model, retriever=search, aggregation="in_turn", in_prompt=rules)
        for search in (bm25, Graph(), BothEnds())
        for rules in (8, 16)
    ]
    _, stepwise, ircot, react = from_both_ends(cell.model)
    rows += [replace(ircot, rounds=rounds) for rounds in (4, 8)]
    requests = reworded(cell.model)
    rows += [replace(react, in_prompt=rules) for rules in (4, 8)] + requests
    rows += [replace(stepwise, aggregation=way) for way in ("rrf_rounds", "in_turn")]
    shared = (stepwise, ircot, *requests)
    return rows + [replace(row, score_share=share) for row in shared for share in (0.2, 0.5, 0.7)]


@recipe("ablation/plus", (10_000,))
def plus(cell: Cell) -> list[Method]:
    """DynaRule+ without each of what it adds, with other settings, or its search in a prompt."""
    changes: Changes = [{}, {"lookahead": 0}, {"score_weight": 0}, {"lookahead": 0, "score_weight": 0}]
    changes += [{"kept": rules} for rules in (4, 8, 32)]
    changes += [{"score_weight": weight} for weight in (3, 12)]
    changes += [{"score_limit": limit} for limit in (2, 8)] + [{"score_weight": 3, "score_limit": 4}]
    words = ((0, ""), (0.2, ""), (0.2, "english"))
    changes += [{"word_weight": weight, "word_stemmer": stems} for weight, stems in words]
    rows = [row for change in changes for row in cell.memory(DynaRulePlus, **change)]
    return [row for row in rows + cell.memory(Planned) if row.missing() is None]


@recipe("ablation/memory", MAIN_SIZES)
def memory(cell: Cell) -> list[Method]:
    """SR-KI and DynaRule by rules kept, KBLaM with its paper's length shift (C = 100), all with gold rules alone."""
    rows = rule_memory(cell, rules="gold") if cell.size == 100 else []
    rows += [row for shift in (None, 100) for row in cell.memory(KBLaM, length_shift=shift)]
    return rows + [row for rules in (None, 4, 8, 16, 32) for row in cell.memory(SRKI, DynaRule, kept=rules)]


@recipe("ablation/variants", MAIN_SIZES)
def variants(cell: Cell) -> list[Method]:
    """Each method of rule memory by the adapters that the model's folder has: other seeds, encoders, layers."""
    kinds = (DynaRulePlus, DynaRule, SRKI, KBLaM)
    rows = [row for variant in VARIANTS for row in cell.memory(*kinds, variant=variant)]
    rows += cell.memory(DynaRule, variant="premise", score_weight=0)
    return [row for row in rows if row.missing() is None]
