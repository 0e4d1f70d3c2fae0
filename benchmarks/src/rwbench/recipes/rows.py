"""Rows that several tables share: the methods that are compared, for one representation and pool size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..methods import Method
from ..methods.dynarule import DynaRule
from ..methods.ircot import IRCoT
from ..methods.kblam import KBLaM
from ..methods.plus import DynaRulePlus
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..methods.srki import SRKI
from ..methods.stepwise import Stepwise
from ..retrievers import Retriever
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from . import Options

PROMPTING_UP_TO = 2_000
"""Rules in a prompt at most ("Baselines": memory limits a 7B model to 2,000)."""
IN_SMALL_PROMPT = 16
"""Rules of a list in which the shipped base still finds nine of ten."""
NEAR = 0.3
"""Share of the best score from which what a search from both ends found is read; best of ``ablation/score_share``."""

IN_TURN: dict[str, Any] = {"aggregation": "in_turn", "skip_conclusions": False}
SEARCHES: dict[str, dict[str, Any]] = {
    "ircot": IN_TURN | {"rounds": 8},
    "react": {"final": "agent", "rounds": 12},
}
"""How IRCoT and ReAct search in the arena: the best of ``ablation/searches``, on the same validation questions.

Four searches, the paper's budget, are fewer than the rules of most questions, and the model asks for one at a time.
"""


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


def near(model: Backend) -> tuple[RAG, Stepwise, IRCoT, ReAct]:
    """Return the methods that search from both ends, reading what scores at least `NEAR` of the best."""
    chosen: dict[str, Any] = {"model": model, "retriever": BothEnds()}
    chosen |= {"score_share": NEAR, "in_prompt": IN_SMALL_PROMPT}
    return (
        RAG(**chosen),
        Stepwise(**chosen),
        IRCoT(**chosen | SEARCHES["ircot"]),
        ReAct(**chosen | SEARCHES["react"] | {"in_prompt": 8}),
    )


def reworded(model: Backend) -> list[ReAct]:
    """Return ReAct of `near` with its first request reworded, for a model that asks in a language of its own."""
    return [replace(near(model)[-1], reworded=True)] if model.template.request else []
