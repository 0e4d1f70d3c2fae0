"""The first benchmark: retrieval without a language model, floor and ceiling rows included."""

from __future__ import annotations

from ..methods import Method
from ..methods.retrieve import Retrieve
from ..methods.solver import Solver
from ..retrievers.bm25 import BM25
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from ..retrievers.random import Random
from ..spec import REPRESENTATIONS, RunSpec
from . import Options, recipe

POOLS = ((100, "question"), (1_000, "fold"), (10_000, "batch"))
"""Pool sizes and who shares a pool: a hundred rules hold the gold rules of one question, not of a fold."""


def methods() -> list[Method]:
    """Return the methods, ceiling first, floor last."""
    return [
        Solver(),
        Retrieve(RRF(parts=(BM25(), Dense()))),
        Retrieve(Dense()),
        Retrieve(BM25()),
        Retrieve(BM25(tokenizer="naive")),
        Retrieve(Random()),
    ]


@recipe("smoke")
def smoke(options: Options) -> list[RunSpec]:
    """Retrieval and symbolic rows on pools of 100, 1,000 and 10,000 rules, FOL and NL; minutes on a CPU."""
    sizes = {min(size, options.num_rules): scope for size, scope in POOLS}
    largest = max(sizes)
    return [
        options.spec(method, representation, size, scope, within=largest if size < largest else None)
        for method in methods()
        for representation in REPRESENTATIONS
        # The largest first: it holds the rules of the others, so an encoder reads everything in one go.
        for size, scope in sorted(sizes.items(), reverse=True)
    ]
