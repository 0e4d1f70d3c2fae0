"""All methods side by side, and a first run without a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..methods.solver import Solver
from ..methods.stepwise import Stepwise
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from ..retrievers.graph import Graph
from ..retrievers.random import Random
from . import Options
from .grid import grid
from .rows import SEARCHES, all_memory, from_both_ends, retrievers, reworded


@grid("smoke")
def smoke(options: Options, form: str, size: int) -> list[Method]:
    """Retrieval and symbolic rows on pools of 100, 1,000 and 10,000 rules, FOL and NL; minutes on a CPU."""
    bm25, dense = BM25(), Dense()
    ranked = (RRF((bm25, dense)), dense, bm25, BM25(tokenizer="naive"), Random())
    return [Solver(), *map(Retrieve, ranked)]  # ceiling first, floor last


@grid("floors")
def floors(options: Options, form: str, size: int) -> list[Method]:
    """Floors and ceilings of table 2: no rules, random rules, gold rules only, and the symbolic solver."""
    rows: list[Method] = [Solver()]
    for model in options.all_models:
        rows += [Prompting(model=model, rules="gold"), RAG(model=model, retriever=Random())]
        rows += [Prompting(model=model, rules="none")]
    return rows


def searching(options: Options, model: Backend, **changes: Any) -> list[RAG]:
    """Return every way to search for rules and put them into a prompt, each with as many as validation chose.

    With ``ablation/in_prompt`` on 44 validation questions in logic; from both ends see `from_both_ends`, too.
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
    for model in options.all_models:
        rows += [Prompting(model=model, rules="gold"), Prompting(model=model, rules="none")]
        rows += [Prompting(model=model)] if size <= 100 else []
        by_number = [replace(row, **SEARCHES.get(row.name, {})) for row in searching(options, model)]
        # Stepwise from both ends reads by score alone: with a fixed 16 rules it answers far less among 10,000
        rows += [row for row in by_number if (row.name, row.retriever) != (Stepwise.name, BothEnds())]
        rows += [*from_both_ends(model), *reworded(model)]
    return rows + [row for row in all_memory(options, form, size) if row.missing() is None]


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
