"""Rows that several tables share: the methods that are compared, for one representation and pool size."""

from __future__ import annotations

from typing import Any

from ..methods import Method
from ..methods.dynarule import DynaRule
from ..methods.kblam import KBLaM
from ..methods.plus import DynaRulePlus
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.retrieve import Retrieve
from ..methods.srki import SRKI
from ..retrievers import Retriever
from ..retrievers.bm25 import BM25
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from . import Options

PROMPTING_UP_TO = 2_000
"""Rules in a prompt at most ("Baselines": memory limits a 7B model to 2,000)."""
IN_SMALL_PROMPT = 16
"""Rules of a list in which the shipped base still finds nine of ten."""
NEAR = 0.3
"""Share of the best score from which what a search from both ends found is read; best of ``ablation/score_share``."""


def retrievers(options: Options) -> tuple[Retriever, Retriever, Retriever]:
    """Return dense, BM25 and their fusion (RRF, k = 60)."""
    dense, bm25 = Dense(options.encoder), BM25()
    return dense, bm25, RRF((bm25, dense))


def rule_memory(options: Options, form: str, size: int, **changes: Any) -> list[Method]:
    """KBLaM, SR-KI and DynaRule on every model that is a folder."""
    kinds = (KBLaM, SRKI, DynaRule)
    return [kind.of(model, form, **changes) for model in options.local_models for kind in kinds]


def all_memory(options: Options, form: str, size: int) -> list[Method]:
    """Every method of rule memory; DynaRule+ with searches that know the state alone, and that look ahead."""
    return rule_memory(options, form, size) + [
        DynaRulePlus.of(model, form, lookahead=levels)
        for model in options.local_models
        for levels in (0, None)
    ]


def dynarule(options: Options, form: str, size: int, **changes: Any) -> list[Method]:
    """DynaRule alone."""
    return [DynaRule.of(model, form, **changes) for model in options.local_models]


def question_answering(options: Options, form: str, size: int) -> list[Method]:
    """Rows of the paper's table 2."""
    rows: list[Method] = []
    for model in options.asked:
        rows += [Prompting(model=model)] if size <= PROMPTING_UP_TO else []
        # A hundred rules all fit, so there is nothing to retrieve.
        rows += [RAG(model=model, retriever=each) for each in retrievers(options)] if size > 100 else []
    return rows + rule_memory(options, form, size)


def retrieval(options: Options, form: str, size: int) -> list[Method]:
    """Rows of the paper's table 4."""
    return [*map(Retrieve, retrievers(options)), *rule_memory(options, form, size)]


def strong_models(options: Options, form: str, size: int) -> list[Method]:
    """Prompting of every model, beside DynaRule."""
    return [*(Prompting(model=model) for model in options.asked), *dynarule(options, form, size)]
