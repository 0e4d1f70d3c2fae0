"""Ablations: one thing changed at a time. Settings are chosen with ``--split validation``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import SRKI, DynaRule, KBLaM
from ..methods.plus import DynaRulePlus, Planned, Searched
from ..methods.react import ReAct
from ..methods.stepwise import Stepwise
from ..retrievers.both_ends import BothEnds
from ..retrievers.graph import Graph
from . import MAIN_SIZES, Options, recipe
from .arena import IN_TURN, SEARCHES, from_both_ends, retrievers, reworded, rule_memory, searching

Changes = list[dict[str, Any]]
VARIANTS = ("", "seed-1", "seed-2", "minilm", "every-third")
"""Adapters of one method that were trained in different ways; see `Memory.variant`."""


@recipe("ablation/in_prompt", (10_000,))
def in_prompt(options: Options, form: str, size: int) -> list[Method]:
    """Every search with 2, 4, 8 and 16 rules in the prompt; RAG also with up to 16 by their share of the best score."""
    rows: list[Method] = []
    for model in options.all_models:
        rows += [row for rules in (2, 4, 8, 16) for row in searching(options, model, in_prompt=rules)]
        rows += [
            row
            for share in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
            for row in searching(options, model, in_prompt=16, score_share=share)
            if row.name == "rag"
        ]
    return rows


@recipe("ablation/searches", (10_000,))
def searches(options: Options, form: str, size: int) -> list[Method]:
    """IRCoT by how searches become one list, their number and share, ReAct by number, answer, request, Stepwise RAG."""
    bm25 = retrievers(options)[1]
    thinking: Changes = [{}, IN_TURN, IN_TURN | {"rounds": 8}]
    acting: Changes = [{"in_prompt": 4}, *({"in_prompt": rules} | SEARCHES["react"] for rules in (2, 4, 8))]
    rows: list[Method] = []
    for model in options.all_models:
        rows += [IRCoT(model=model, retriever=bm25, in_prompt=16, **change) for change in thinking]
        rows += [ReAct(model=model, retriever=bm25, **change) for change in acting]
        rows += [
            Stepwise(model=model, retriever=search, aggregation="in_turn", in_prompt=rules)
            for search in (bm25, Graph(), BothEnds())
            for rules in (8, 16)
        ]
        _, stepwise, ircot, react = from_both_ends(model)
        rows += [replace(ircot, rounds=rounds) for rounds in (4, 8)]
        requests = reworded(model)
        rows += [replace(react, in_prompt=rules) for rules in (4, 8)] + requests
        rows += [replace(stepwise, aggregation=way) for way in ("rrf_rounds", "in_turn")]
        shared = (stepwise, ircot, *requests)
        rows += [replace(row, score_share=share) for row in shared for share in (0.2, 0.5, 0.7)]
    return rows


@recipe("ablation/plus", (10_000,))
def plus(options: Options, form: str, size: int) -> list[Method]:
    """DynaRule+ without each of what it adds, with other settings, another search, or its search in a prompt."""
    left_out: Changes = [{}, {"lookahead": 0}, {"score_weight": 0}, {"lookahead": 0, "score_weight": 0}]
    settings: Changes = [{"kept": rules} for rules in (4, 8, 32)]
    settings += [{"score_weight": weight} for weight in (3, 12)]
    settings += [{"score_limit": limit} for limit in (2, 8)] + [{"score_weight": 3, "score_limit": 4}]
    words = ((0, ""), (0.2, ""), (0.2, "english"))
    settings += [{"word_weight": weight, "word_stemmer": stems} for weight, stems in words]
    rows: list[DynaRulePlus] = []
    for model in options.local_models:
        rows += [DynaRulePlus.of(model, form, **change) for change in (*left_out, *settings)]
        by_words = {"retriever": BothEnds()}
        rows += [Searched.of(model, form, score_weight=weight, **by_words) for weight in (0, 0.5, 1, 2, 3)]
        rows += [Planned.of(model, form)]
    return [row for row in rows if row.missing() is None]


@recipe("ablation/memory", MAIN_SIZES)
def memory(options: Options, form: str, size: int) -> list[Method]:
    """SR-KI and DynaRule by rules kept, KBLaM with its paper's length shift (C = 100), all with gold rules alone."""
    rows: list[Method] = rule_memory(options, form, size, rules="gold") if size == 100 else []
    for model in options.local_models:
        rows += [KBLaM.of(model, form, length_shift=shift) for shift in (None, 100)]
        rows += [
            kind.of(model, form, kept=rules) for kind in (SRKI, DynaRule) for rules in (None, 4, 8, 16, 32)
        ]
    return rows


@recipe("ablation/variants", MAIN_SIZES)
def variants(options: Options, form: str, size: int) -> list[Method]:
    """Each method of rule memory by the adapters that the model's folder has: other seeds, encoders, layers."""
    rows: list[DynaRulePlus | DynaRule | SRKI | KBLaM] = [
        kind.of(model, form, variant=variant)
        for model in options.local_models
        for kind in (DynaRulePlus, DynaRule, SRKI, KBLaM)
        for variant in VARIANTS
    ]
    return [row for row in rows if row.missing() is None]
