"""Recipes on rule books of the real world, which no model here was taught."""

from dataclasses import replace
from functools import partial
from typing import Any

from ..methods import Method
from ..methods.plus import DynaRulePlus, Planned
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.retrieve import Retrieve
from ..methods.stepwise import Stepwise
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..run.books import BOOK_SPLIT, BookSource
from ..spec import VALIDATION_BOOKS, RunSpec
from . import Cell, Options, Rows, recipe, runs
from .arena import IN_PROMPT, SCORE_SHARE, retrievers

LONGEST = 128
"""Tokens of an answer at most: SmolLM2 reads the longest of the books' own answers in steps as 101."""


@recipe("rulebooks", source=BookSource)
def rulebooks(options: Options) -> list[RunSpec]:
    """Rule books in plain English (a clinic, a library, a parcel depot), 40 rules and 30 questions each, NL."""
    return _on(options, _rows)


@recipe("ablation/rulebooks", source=partial(BookSource, books=VALIDATION_BOOKS))
def validation_rulebooks(options: Options) -> list[RunSpec]:
    """The same on two more books (a swimming pool, a theatre), by which settings may be chosen."""
    return _on(options, _rows)


@recipe("book", source=BookSource.open)
def own_book(options: Options) -> list[RunSpec]:
    """A rule book of your own, a folder with rules and questions.jsonl: rwbench run book FOLDER; NL."""
    names_rules = isinstance(options.source, BookSource) and options.source.names_rules

    def rows(cell: Cell) -> list[Method]:
        searches = retrievers(cell)
        common: dict[str, Any] = {"max_new_tokens": LONGEST, "in_prompt": IN_PROMPT}
        found: list[Method] = [*map(Retrieve, (*searches, BothEnds())), *_rows(cell)]
        found += [RAG(model=cell.model, retriever=search, **common) for search in searches]
        if names_rules:
            return found
        return [row for row in found if row.name != Retrieve.name and getattr(row, "rules", "") != "gold"]

    return _on(options, rows)


def _on(options: Options, rows: Rows) -> list[RunSpec]:
    assert isinstance(options.source, BookSource)  # the recipe's own
    pools = [(options.source.pool_size, "world", None)]
    return runs(replace(options, split=BOOK_SPLIT, forms=("nl",)), pools, rows)


def _rows(cell: Cell) -> list[Method]:
    """Return searches alone, ceiling, floor and every way to find rules; settings are the other books' choice."""
    bm25, both = BM25(), BothEnds()
    common: dict[str, Any] = {"model": cell.model, "max_new_tokens": LONGEST}
    rows: list[Method] = [Retrieve(bm25), Retrieve(both)]
    rows += [Prompting(rules=which, **common) for which in ("gold", "none", "pool")]
    common["in_prompt"] = IN_PROMPT
    rows += [RAG(retriever=bm25, score_share=0.7, **common)]
    rows += [kind(retriever=both, score_share=SCORE_SHARE, **common) for kind in (RAG, Stepwise)]
    left_out: list[dict[str, Any]] = [{}, {"lookahead": 0}, {"word_weight": 0}]
    for change in left_out:
        rows += cell.memory(DynaRulePlus, max_new_tokens=LONGEST, **change)
    return rows + cell.memory(Planned, max_new_tokens=LONGEST)
