"""Recipes beyond the paper: a first run without a model, all methods side by side, floors, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..backends.local import Local
from ..methods import Method
from ..methods.dynarule import DynaRule
from ..methods.ircot import IRCoT
from ..methods.kblam import KBLaM
from ..methods.memory import Memory
from ..methods.plus import DynaRulePlus, Planned, Searched
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..methods.solver import Solver
from ..methods.srki import SRKI
from ..methods.stepwise import Stepwise
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from ..retrievers.graph import Graph
from ..retrievers.random import Random
from . import Options
from .grid import grid
from .rows import IN_TURN, SEARCHES, all_memory, near, retrievers, reworded, rule_memory


@grid("memory", held_out=True)
def memory(options: Options, form: str, size: int) -> list[Method]:
    """KBLaM, SR-KI, DynaRule and DynaRule+ on their own rules and on held-out ones; 100, 1,000 and 10,000 rules."""
    return all_memory(options, form, size)


@grid("smoke")
def smoke(options: Options, form: str, size: int) -> list[Method]:
    """Retrieval and symbolic rows on pools of 100, 1,000 and 10,000 rules, FOL and NL; minutes on a CPU."""
    bm25, dense = BM25(), Dense()
    found = (RRF((bm25, dense)), dense, bm25, BM25(tokenizer="naive"), Random())
    return [Solver(), *map(Retrieve, found)]  # ceiling first, floor last


def searching(options: Options, model: Backend, **changes: Any) -> list[RAG]:
    """Return every way to search for rules and put them into a prompt, each with as many as validation chose.

    With ``ablation/in_prompt`` on 44 validation questions in logic; from both ends see `near`, too.
    """
    dense, bm25, rrf = retrievers(options)
    rows: list[RAG] = [
        RAG(model=model, retriever=dense, in_prompt=8),
        RAG(model=model, retriever=bm25, in_prompt=16),
        RAG(model=model, retriever=rrf, in_prompt=16),
        RAG(model=model, retriever=Graph(), in_prompt=16),
        RAG(model=model, retriever=BothEnds(), in_prompt=8),
        Stepwise(model=model, retriever=bm25, in_prompt=16),
        Stepwise(model=model, retriever=Graph(), in_prompt=8),
        Stepwise(model=model, retriever=BothEnds(), in_prompt=16),
        IRCoT(model=model, retriever=bm25, in_prompt=16),
        ReAct(model=model, retriever=bm25, in_prompt=4),
    ]
    return [replace(row, **changes) for row in rows]


def in_arena(options: Options, form: str, size: int) -> list[Method]:
    """The fair arena: every method on one base, each with its best search and prompt; 100, 1,000 and 10,000 rules."""
    rows: list[Method] = [Solver()]
    for model in options.asked:
        rows += [Prompting(model=model, rules="gold"), Prompting(model=model, rules="none")]
        rows += [Prompting(model=model)] if size <= 100 else []
        by_number = [replace(row, **SEARCHES.get(row.name, {})) for row in searching(options, model)]
        # Stepwise from both ends reads by score alone: with a fixed 16 rules it answers far less among 10,000.
        rows += [row for row in by_number if (row.name, row.retriever) != (Stepwise.name, BothEnds())]
        rows += [*near(model), *reworded(model)]
    return rows + [each for each in all_memory(options, form, size) if each.missing() is None]


arena = grid("arena")(in_arena)


@grid("demo", (1_000, 10_000))
def demo(options: Options, form: str, size: int) -> list[Method]:
    """Every method of the arena with its best search, and RAG by words and by embeddings; 1,000 and 10,000 rules."""
    return [
        row
        for row in in_arena(options, form, size)
        if not isinstance(row, RAG)
        or (row.score_share > 0 and not getattr(row, "reworded", False))
        or (type(row) is RAG and isinstance(row.retriever, BM25 | Dense))
    ]


@grid("ablation/in_prompt", (10_000,))
def in_prompt(options: Options, form: str, size: int) -> list[Method]:
    """Every method that searches, with 2, 4, 8 and 16 rules in the prompt; `--split validation` chose the arena's."""
    return [
        row
        for model in options.asked
        for rules in (2, 4, 8, 16)
        for row in searching(options, model, in_prompt=rules)
    ]


@grid("ablation/score_share", (10_000,))
def score_share(options: Options, form: str, size: int) -> list[Method]:
    """Every search that is made once, with up to 16 rules that score a share of the best one's; 10,000 rules."""
    return [
        row
        for model in options.asked
        for share in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
        for row in searching(options, model, in_prompt=16, score_share=share)
        if row.name == "rag"
    ]


def by_words(model: Local, form: str, score_weight: float = 1) -> Searched:
    """Return DynaRule+ with the strongest search by words in the place of its own; see ``ablation/plus_settings``."""
    return Searched.of(model, form, retriever=BothEnds(), score_weight=score_weight)


@grid("ablation/plus", (10_000,))
def plus(options: Options, form: str, size: int) -> list[Method]:
    """DynaRule+ without each of what it adds, its search in a prompt, another search in its place; 10,000 rules."""
    left_out: list[dict[str, Any]] = [
        {},
        {"score_weight": 0},
        {"lookahead": 0},
        {"lookahead": 0, "score_weight": 0},
        *({"variant": name} for name in ("no-offsets", "no-link-ends", "paper-query")),
    ]
    rows: list[DynaRulePlus] = [Planned.of(model, form) for model in options.local_models]
    rows += [DynaRulePlus.of(model, form, **each) for model in options.local_models for each in left_out]
    rows += [by_words(model, form) for model in options.local_models]
    return [row for row in rows if row.missing() is None]


@grid("ablation/plus_settings", (10_000,))
def plus_settings(options: Options, form: str, size: int) -> list[Method]:
    """DynaRule+ by how many rules a search keeps, and by what a rule's score counts and takes away; 10,000 rules."""
    tried: list[dict[str, Any]] = [{}, *({"kept": rules} for rules in (4, 8, 32))]
    tried += [{"score_weight": weight} for weight in (0, 3, 12)]
    tried += [{"score_limit": limit} for limit in (2, 8)]
    rows = [DynaRulePlus.of(model, form, **each) for model in options.local_models for each in tried]
    return rows + [
        by_words(model, form, weight) for model in options.local_models for weight in (0, 0.5, 1, 2, 3)
    ]


@grid("ablation/words_and_scores", (10_000,))
def words_and_scores(options: Options, form: str, size: int) -> list[Method]:
    """DynaRule+ by what shared words count in its search, by which stems, and scores in its reading; 10,000 rules."""
    words = ((0, ""), (0.2, ""), (0.2, "english"))
    tried: list[dict[str, Any]] = [{}, {"score_weight": 0}, {"score_weight": 3, "score_limit": 4}]
    tried += [{"word_weight": weight, "word_stemmer": stems} for weight, stems in words]
    return [DynaRulePlus.of(model, form, **each) for model in options.local_models for each in tried]


@grid("ablation/kept", (100, 10_000))
def kept(options: Options, form: str, size: int) -> list[Method]:
    """SR-KI and DynaRule by how many rules a layer keeps when they answer; 100 and 10,000 rules."""
    return [
        kind.of(model, form, kept=rules)
        for model in options.local_models
        for kind in (SRKI, DynaRule)
        for rules in (None, 4, 8, 16, 32)
    ]


@grid("ablation/seeds")
def seeds(options: Options, form: str, size: int) -> Sequence[Method]:
    """Each method of rule memory by its adapters of several training seeds; 100, 1,000 and 10,000 rules."""
    return _variants(options, form, (DynaRulePlus, DynaRule, SRKI, KBLaM), ("", "seed-1", "seed-2"))


@grid("ablation/encoders")
def encoders(options: Options, form: str, size: int) -> Sequence[Method]:
    """KBLaM, SR-KI and DynaRule on rules that the base's first layers encode, or MiniLM; 100 to 10,000 rules."""
    rows = _variants(options, form, (DynaRule, SRKI, KBLaM), ("", "minilm"))
    both = {row.name for row in rows if row.variant}
    return [row for row in rows if row.name in both]


def _variants(
    options: Options, form: str, kinds: Sequence[type[Memory]], variants: Sequence[str]
) -> list[Memory]:
    rows = [
        kind.of(model, form, variant=variant)
        for model in options.local_models
        for kind in kinds
        for variant in variants
    ]
    return [row for row in rows if row.missing() is None]


@grid("floors")
def floors(options: Options, form: str, size: int) -> list[Method]:
    """Floors and ceilings of table 2: no rules, random rules, gold rules only, and the symbolic solver."""
    rows: list[Method] = [Solver()]
    for model in options.asked:
        rows += [Prompting(model=model, rules="gold"), RAG(model=model, retriever=Random())]
        rows += [Prompting(model=model, rules="none")]
    return rows


@grid("ablation/searches", (10_000,))
def searches(options: Options, form: str, size: int) -> list[Method]:
    """IRCoT by how searches become one list, their number and share, ReAct by number, answer, request, Stepwise RAG."""
    bm25 = retrievers(options)[1]
    thinking: list[dict[str, Any]] = [{}, IN_TURN, IN_TURN | {"rounds": 8}]
    acting: list[dict[str, Any]] = [{"in_prompt": 4}]
    acts = SEARCHES["react"]
    acting += [{"in_prompt": rules} | acts for rules in (2, 4, 8)]
    rows: list[Method] = []
    for model in options.asked:
        rows += [IRCoT(model=model, retriever=bm25, in_prompt=16, **each) for each in thinking]
        rows += [ReAct(model=model, retriever=bm25, **each) for each in acting]
        rows += [
            Stepwise(model=model, retriever=each, aggregation="in_turn", in_prompt=rules)
            for each in (bm25, Graph(), BothEnds())
            for rules in (8, 16)
        ]
        _, stepwise, ircot, react = near(model)
        rows += [replace(ircot, rounds=rounds) for rounds in (4, 8)]
        asking = reworded(model)
        rows += [replace(react, in_prompt=rules) for rules in (4, 8)] + asking
        rows += [replace(stepwise, aggregation=way) for way in ("rrf_rounds", "in_turn")]
        rows += [
            replace(row, score_share=share) for row in (stepwise, ircot, *asking) for share in (0.2, 0.5, 0.7)
        ]
    return rows


@grid("ablation/reading", (100,))
def reading(options: Options, form: str, size: int) -> list[Method]:
    """KBLaM, SR-KI and DynaRule with the gold rules alone in memory: what is read when nothing has to be found."""
    return rule_memory(options, form, size, rules="gold")


@grid("ablation/kblam")
def kblam(options: Options, form: str, size: int) -> list[Method]:
    """KBLaM, with its paper's length shift (C = 100), and in its paper's layers on whole rules; 100 to 10,000."""
    shifted = [
        KBLaM.of(model, form, length_shift=shift) for model in options.local_models for shift in (None, 100)
    ]
    return [*shifted, *_variants(options, form, (KBLaM,), ("every-third",))]
