"""The settings that the paper's recipes share: pool sizes and scopes, retrievers, rows of a table.

All sizes are nested in the largest: the smaller pools take their distractors from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..methods import Method
from ..methods.dynarule import DynaRule
from ..methods.kblam import KBLaM
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.srki import SRKI
from ..retrievers import Retriever
from ..retrievers.bm25 import BM25
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from ..spec import REPRESENTATIONS, RunSpec
from . import Options

SCOPES = {100: "question", 500: "question", 1_000: "fold", 2_000: "fold", 5_000: "batch", 10_000: "batch"}
"""Pool size -> who shares a pool; a small one holds the gold rules of one question only."""

MAIN_SIZES = (100, 1_000, 10_000)
ALL_SIZES = tuple(SCOPES)
PROMPTING_UP_TO = 2_000
"""Rules in a prompt at most ("Baselines": memory limits a 7B model to 2,000)."""
IN_SMALL_PROMPT = 16
"""Rules of a list in which the shipped base still finds nine of ten."""

MethodsOf = Callable[[str], Sequence[Method]]


def retrievers(options: Options) -> tuple[Retriever, Retriever, Retriever]:
    """Return dense, BM25 and their fusion (RRF, k = 60)."""
    dense, bm25 = Dense(options.encoder), BM25()
    return dense, bm25, RRF((bm25, dense))


def hybrid(options: Options) -> Retriever:
    """Return the fusion that the iterative methods search with."""
    return retrievers(options)[2]


def memory_methods(options: Options, representation: str, **changes: Any) -> list[Method]:
    """Return KBLaM, SR-KI and DynaRule on every model that is a folder."""
    return [
        kind.of(model, representation, **changes)
        for model in options.local_models
        for kind in (KBLaM, SRKI, DynaRule)
    ]


def rag_methods(options: Options, model: Backend) -> list[Method]:
    """Return RAG over the three retrievers."""
    return [RAG(model=model, retriever=retriever) for retriever in retrievers(options)]


def qa_methods(options: Options, representation: str, size: int) -> list[Method]:
    """Return the rows of the paper's table 2 at one pool size."""
    rows: list[Method] = []
    for model in options.asked:
        rows += [Prompting(model=model)] if size <= PROMPTING_UP_TO else []
        # A hundred rules all fit, so there is nothing to retrieve.
        rows += rag_methods(options, model) if size > 100 else []
    return rows + memory_methods(options, representation)


def runs(
    options: Options,
    sizes: Iterable[int],
    methods: Callable[[str, int], Sequence[Method]],
    representations: Sequence[str] = REPRESENTATIONS,
    subtasks: Sequence[str] | None = None,
) -> list[RunSpec]:
    """Return a run for every size, representation and method.

    Parameters
    ----------
    options : Options
    sizes : iterable of int
        Pool sizes; those above the world's number of rules become one run with all rules.
    methods : callable
        (representation, size) -> methods.
    representations : sequence of str
    subtasks : sequence of str, optional
        None: all.

    Notes
    -----
    Runs of one model follow each other, so it is loaded once; the largest pool comes first: it holds the rules of the
    others, so an encoder reads everything in one go.
    """
    everything = options.num_rules
    largest = min(max(SCOPES), everything)
    wanted = {min(size, everything): SCOPES[size] for size in sorted(sizes)}
    made = [
        options.spec(method, representation, size, scope, within=largest if size < largest else None)
        for size, scope in sorted(wanted.items(), reverse=True)
        for representation in representations
        for method in methods(representation, size)
    ]
    if subtasks is not None:
        made = [replace(spec, subtasks=tuple(subtasks)) for spec in made]
    # Two sizes may have become one; a stable sort keeps the rest of the order.
    unique = list({spec.run_id: spec for spec in made}.values())
    first = {name: place for place, name in reversed(list(enumerate(_model_of(spec) for spec in unique)))}
    return sorted(unique, key=lambda spec: first[_model_of(spec)])


def _model_of(spec: RunSpec) -> str:
    method = spec.method
    return f"{method.get('model')} {method.get('adapter', '')}"
