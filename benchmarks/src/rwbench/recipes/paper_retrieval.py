"""The paper's retrieval tables and figures."""

from __future__ import annotations

from ..methods import Method
from ..methods.dynarule import DynaRule
from ..methods.retrieve import Retrieve
from ..spec import REPRESENTATIONS, RunSpec
from . import Options, recipe
from .settings import ALL_SIZES, MAIN_SIZES, memory_methods, retrievers, runs


@recipe("paper/table4")
def table4(options: Options) -> list[RunSpec]:
    """Retrieval: Recall@100, @10 and @1 of every method on 100, 1,000 and 10,000 rules."""
    return runs(options, MAIN_SIZES, lambda form, size: _rows(options, form))


@recipe("paper/table10")
def table10(options: Options) -> list[RunSpec]:
    """Retrieval on six pool sizes, 100 to 10,000."""
    return runs(options, ALL_SIZES, lambda form, size: _rows(options, form))


@recipe("paper/table12")
def table12(options: Options) -> list[RunSpec]:
    """Seed spread of retrieval: the runs of table 10, whose five folds are the paper's seeds."""
    return table10(options)


@recipe("paper/figure4")
def figure4(options: Options) -> list[RunSpec]:
    """DynaRule's recall by step, and in parallel and multi-hop questions, in FOL."""
    return runs(options, ALL_SIZES, lambda form, size: _dynarule(options, form), ("fol",))


@recipe("paper/figure9")
def figure9(options: Options) -> list[RunSpec]:
    """DynaRule's Recall@100, @10 and @1 by step and pool size, FOL and NL."""
    return runs(options, ALL_SIZES, lambda form, size: _dynarule(options, form), REPRESENTATIONS)


@recipe("paper/figure11")
def figure11(options: Options) -> list[RunSpec]:
    """Retrieval by question type: the runs of table 10."""
    return table10(options)


def _rows(options: Options, form: str) -> list[Method]:
    alone: list[Method] = [Retrieve(retriever) for retriever in retrievers(options)]
    return alone + memory_methods(options, form)


def _dynarule(options: Options, form: str) -> list[Method]:
    return [DynaRule.of(model, form) for model in options.local_models]
