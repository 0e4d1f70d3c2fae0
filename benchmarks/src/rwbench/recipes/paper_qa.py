"""The paper's question answering tables."""

from __future__ import annotations

from ..methods import Method
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.solver import Solver
from ..retrievers.random import Random
from ..spec import RunSpec
from . import Options, recipe
from .settings import ALL_SIZES, IN_SMALL_PROMPT, MAIN_SIZES, memory_methods, qa_methods, retrievers, runs


@recipe("paper/table2")
def table2(options: Options) -> list[RunSpec]:
    """Main QA: every method on 100, 1,000 and 10,000 rules, FOL and NL."""
    return runs(options, MAIN_SIZES, lambda form, size: qa_methods(options, form, size))


@recipe("paper/table3")
def table3(options: Options) -> list[RunSpec]:
    """Strong models by prompting with 1,000 rules, beside DynaRule; give each with --model."""
    return _prompted(options, (1_000,))


@recipe("paper/table8")
def table8(options: Options) -> list[RunSpec]:
    """Detailed QA in FOL: every method on six pool sizes, 100 to 10,000."""
    return runs(options, ALL_SIZES, lambda form, size: qa_methods(options, form, size), ("fol",))


@recipe("paper/table9")
def table9(options: Options) -> list[RunSpec]:
    """Detailed QA in NL: every method on six pool sizes, 100 to 10,000."""
    return runs(options, ALL_SIZES, lambda form, size: qa_methods(options, form, size), ("nl",))


@recipe("paper/table11")
def table11(options: Options) -> list[RunSpec]:
    """Seed spread of QA: the runs of tables 8 and 9, whose five folds are the paper's seeds."""
    return [*table8(options), *table9(options)]


@recipe("paper/table13")
def table13(options: Options) -> list[RunSpec]:
    """Strong models by prompting with 100, 500 and 1,000 rules, beside DynaRule; give each with --model."""
    return _prompted(options, (100, 500, 1_000))


@recipe("floors")
def floors(options: Options) -> list[RunSpec]:
    """Floors and ceilings of table 2: no rules, random rules, gold rules only, and the symbolic solver."""

    def rows(form: str, size: int) -> list[Method]:
        asked: list[Method] = [Solver()]
        for model in options.asked:
            asked += [
                Prompting(model=model, rules="gold"),
                RAG(model=model, retriever=Random()),
                Prompting(model=model, rules="none"),
            ]
        return asked

    return runs(options, MAIN_SIZES, rows)


@recipe("main")
def main(options: Options) -> list[RunSpec]:
    """The main job on a laptop: all methods on 100, 1,000 and 10,000 rules, RAG with 16 of them in the prompt."""

    def rows(form: str, size: int) -> list[Method]:
        asked: list[Method] = [Solver()]
        for model in options.asked:
            asked += [Prompting(model=model, rules="gold"), Prompting(model=model, rules="none")]
            asked += [Prompting(model=model)] if size <= 100 else []
            asked += [
                RAG(model=model, retriever=each, in_prompt=IN_SMALL_PROMPT) for each in retrievers(options)
            ]
        return asked + [each for each in memory_methods(options, form) if each.missing() is None]

    return runs(options, MAIN_SIZES, rows)


def _prompted(options: Options, sizes: tuple[int, ...]) -> list[RunSpec]:
    def rows(form: str, size: int) -> list[Method]:
        prompted: list[Method] = [Prompting(model=model) for model in options.asked]
        return prompted + [method for method in memory_methods(options, form) if method.name == "dynarule"]

    return runs(options, sizes, rows)
