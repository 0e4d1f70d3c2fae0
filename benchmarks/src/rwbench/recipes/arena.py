"""All methods side by side, a first run without a model, and the rows that other tables share."""

from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import SRKI, DynaRule, KBLaM
from ..methods.plus import DynaRulePlus, RuleVectors
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..methods.solver import Solver
from ..methods.stepwise import Stepwise
from ..retrievers import Retriever
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from ..retrievers.graph import Graph
from ..retrievers.random import Random
from . import MAIN_SIZES, Cell, recipe

IN_PROMPT = 16
"""Rules of a list in which the shipped base still finds nine of ten."""
SCORE_SHARE = 0.3
"""Share of the best score from which what a search from both ends found is read; the best of ``ablation/in_prompt``."""

IN_TURN: dict[str, Any] = {"aggregation": "in_turn", "skip_conclusions": False}
SEARCHES: dict[str, dict[str, Any]] = {
    "ircot": IN_TURN | {"rounds": 8},
    "react": {"final": "agent", "rounds": 12},
}
"""How IRCoT and ReAct search in the arena: the best of ``ablation/searches``, on the same validation questions.

Four searches, the paper's budget, are fewer than the rules of most questions, and the model asks for one at a time.
"""


def retrievers(cell: Cell) -> tuple[Retriever, Retriever, Retriever]:
    """Return dense, BM25 and their fusion (RRF, k = 60)."""
    dense, bm25 = Dense.of(cell.encoder), BM25()
    return dense, bm25, RRF((bm25, dense))


def rule_memory(cell: Cell, **changes: Any) -> list[Method]:
    """Return KBLaM, SR-KI and DynaRule."""
    return cell.memory(KBLaM, SRKI, DynaRule, **changes)


def all_memory(cell: Cell) -> list[Method]:
    """Return every method of rule memory; DynaRule+ without its look-ahead, and with the paper's memory, as well."""
    return [
        *rule_memory(cell),
        *cell.memory(DynaRulePlus, lookahead=0),
        *cell.memory(RuleVectors, DynaRulePlus),
    ]


def from_both_ends(model: Backend) -> tuple[RAG, Stepwise, IRCoT, ReAct]:
    """Return the methods that search from both ends, reading what scores at least `SCORE_SHARE` of the best."""
    chosen: dict[str, Any] = {"model": model, "retriever": BothEnds()}
    chosen |= {"score_share": SCORE_SHARE, "in_prompt": IN_PROMPT}
    return (
        RAG(**chosen),
        Stepwise(**chosen),
        IRCoT(**chosen | SEARCHES["ircot"]),
        ReAct(**chosen | SEARCHES["react"] | {"in_prompt": 8}),
    )


def reworded(model: Backend) -> list[ReAct]:
    """Return ReAct from both ends with its first request reworded, for a model with a language of its own."""
    return [replace(from_both_ends(model)[-1], reworded=True)] if model.template.request else []


@recipe("smoke", MAIN_SIZES)
def smoke(cell: Cell) -> list[Method]:
    """Retrieval and symbolic rows on pools of 100, 1,000 and 10,000 rules, FOL and NL; minutes on a CPU."""
    bm25, dense = BM25(), Dense()
    ranked = (RRF((bm25, dense)), dense, bm25, BM25(tokenizer="naive"), Random())
    return [Solver(), *map(Retrieve, ranked)]  # ceiling first, floor last


@recipe("words", (1_000, 10_000))
def words(cell: Cell) -> list[Method]:
    """Every search without a model, and the solver: with --form nl --dials words=1, how far other words lead astray."""
    dense, bm25, both = retrievers(cell)
    return [Solver(), *map(Retrieve, (bm25, dense, both, Graph(), BothEnds()))]


def searching(cell: Cell, **changes: Any) -> list[RAG]:
    """Return every way to search for rules and put them into a prompt, each with as many as validation chose.

    With ``ablation/in_prompt`` on 44 validation questions in logic; from both ends see `from_both_ends`, too.
    """
    (dense, bm25, rrf), model = retrievers(cell), cell.model
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


def in_arena(cell: Cell) -> list[Method]:
    """The fair arena: every method on one base, each with its best search and prompt; 100, 1,000 and 10,000 rules."""
    rows: list[Method] = [Solver()]
    rows += [Prompting(model=cell.model, rules=which) for which in ("gold", "none")]
    rows += [Prompting(model=cell.model)] if cell.size <= 100 else []
    by_number = [replace(row, **SEARCHES.get(row.name, {})) for row in searching(cell)]
    # Stepwise from both ends reads by score alone: with a fixed 16 rules it answers far less among 10,000
    rows += [row for row in by_number if (row.name, row.retriever) != (Stepwise.name, BothEnds())]
    rows += [*from_both_ends(cell.model), *reworded(cell.model)]
    return rows + all_memory(cell)


arena = recipe("arena", MAIN_SIZES)(in_arena)


@recipe("demo", (1_000, 10_000))
def demo(cell: Cell) -> list[Method]:
    """Every method of the arena with its best search, and RAG by words and by embeddings; 1,000 and 10,000 rules."""
    return [
        row
        for row in in_arena(cell)
        if not isinstance(row, RAG)
        or (row.score_share > 0 and not getattr(row, "reworded", False))
        or (type(row) is RAG and isinstance(row.retriever, BM25 | Dense))
    ]
