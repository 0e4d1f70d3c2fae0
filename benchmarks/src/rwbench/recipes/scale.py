"""All 4.94 million rules in memory: the same questions in pools of 100,000, a million, and every rule of the world."""

from dataclasses import replace

from ..methods import Method
from ..methods.memory import KBLaM
from ..methods.plus import DynaRulePlus, Planned
from ..methods.rag import RAG
from ..methods.solver import Solver
from ..methods.stepwise import Stepwise
from ..retrievers.bm25 import BM25
from ..retrievers.dense import Dense
from ..spec import RunSpec
from . import Cell, Options, recipe, runs
from .arena import IN_PROMPT, all_memory, from_both_ends

SIZES = (100_000, 1_000_000)
"""Below the whole world, whose size is the last; each pool holds the rules of the smaller ones, and twice as many."""


@recipe("scale")
def scale(options: Options) -> list[RunSpec]:
    """All rules in memory, with --scale full up to 4.94 M: solver, rule memories, BM25, both ends, dense, by step."""
    everything = options.num_rules
    sizes = [everything, *(size for size in reversed(SIZES) if 2 * size <= everything)]
    withins = [None, *sizes[:-1]]
    return runs(options, [(size, "batch", w) for size, w in zip(sizes, withins, strict=True)], _rows)


def _rows(cell: Cell) -> list[Method]:
    """Return the rows; a rule memory without an adapter for the model does not run, which the command says."""
    rows: list[Method] = [Solver()]  # whether more rules leave the answers what they are
    searches = (BM25(), Dense.of(cell.encoder))
    rows += [RAG(model=cell.model, retriever=search, in_prompt=IN_PROMPT) for search in searches]
    both = from_both_ends(cell.model)[:3]  # without ReAct
    # the usual share was chosen among 10,000 rules; what suits more of them may be another
    rows += [*both, *(replace(row, score_share=share) for row in both for share in (0.5, 0.7, 0.9))]
    rows += [Stepwise(model=cell.model, retriever=BM25(), in_prompt=IN_PROMPT)]
    plus = cell.memory(DynaRulePlus, score_weight=0) + cell.memory(Planned)
    rows += [row for row in plus if row.missing() is None]
    # KBLaM reads every rule at every token, which is not to be had here
    return rows + [row for row in all_memory(cell) if row.name != KBLaM.name]
