"""Recipes on rule books of the real world, which no model here was taught."""

from __future__ import annotations

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
from ..run.books import BOOK_SPLIT, BookSource, OwnBook
from ..spec import VALIDATION_BOOKS, RunSpec
from . import Options, recipe
from .arena import IN_PROMPT, SCORE_SHARE, retrievers

LONGEST = 128
"""Tokens of an answer at most: SmolLM2 reads the longest of the books' own answers in steps as 101."""


@recipe("rulebooks", source=BookSource)
def rulebooks(options: Options) -> list[RunSpec]:
    """Rule books in plain English (a clinic, a library, a parcel depot), 40 rules and 30 questions each, NL."""
    return _on(BookSource(), options, _methods(options))


@recipe("ablation/rulebooks", source=partial(BookSource, books=VALIDATION_BOOKS))
def validation_rulebooks(options: Options) -> list[RunSpec]:
    """The same on two more books (a swimming pool, a theatre), by which settings may be chosen; RAG in six ways."""
    tried = [
        RAG(model=model, retriever=search, in_prompt=count, score_share=share, max_new_tokens=LONGEST)
        for model in options.all_models
        for search in (BM25(), BothEnds())
        for count, share in ((4, 0.0), (8, 0.0), (16, 0.0), (16, 0.3), (16, 0.5), (16, 0.7))
    ]
    return _on(BookSource(books=VALIDATION_BOOKS), options, [*_methods(options), *tried])


@recipe("book", source=OwnBook.open)
def own_book(options: Options) -> list[RunSpec]:
    """A rule book of your own, a folder with rules and questions.jsonl: rwbench run book FOLDER; NL."""
    source = options.source
    assert isinstance(source, OwnBook)
    searches = *retrievers(options), BothEnds()
    rows: list[Method] = [Retrieve(search) for search in searches] if source.names_rules else []
    common: dict[str, Any] = {"max_new_tokens": LONGEST, "in_prompt": IN_PROMPT}
    for model in options.all_models:
        rows += [RAG(model=model, retriever=search, **common) for search in searches[:-1]]
    kept = _methods(options)
    if not source.names_rules:
        kept = [
            method
            for method in kept
            if not isinstance(method, Retrieve) and getattr(method, "rules", "") != "gold"
        ]
    return _on(source, options, [*rows, *kept])


def _on(source: BookSource, options: Options, methods: list[Method]) -> list[RunSpec]:
    options = replace(options, source=source, split=BOOK_SPLIT)
    specs = [options.spec(method, "nl", source.pool_size, "world") for method in methods]
    return list({spec.run_id: spec for spec in specs}.values())


def _methods(options: Options) -> list[Method]:
    """Return searches alone, ceiling, floor and every way to find rules; settings are the other books' choice."""
    bm25, both = BM25(), BothEnds()
    rows: list[Method] = [Retrieve(bm25), Retrieve(both)]
    for model in options.all_models:
        common: dict[str, Any] = {"model": model, "max_new_tokens": LONGEST}
        rows += [Prompting(rules=which, **common) for which in ("gold", "none", "pool")]
        common["in_prompt"] = IN_PROMPT
        rows += [RAG(retriever=bm25, score_share=0.7, **common)]
        rows += [kind(retriever=both, score_share=SCORE_SHARE, **common) for kind in (RAG, Stepwise)]
    left_out: list[dict[str, Any]] = [{}, {"lookahead": 0}, {"word_weight": 0}]
    for local in options.local_models:
        rows += [DynaRulePlus.of(local, "nl", max_new_tokens=LONGEST, **change) for change in left_out]
        rows += [Planned.of(local, "nl", max_new_tokens=LONGEST)]
    return rows
