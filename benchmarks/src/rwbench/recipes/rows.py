"""Rows that several tables share: the methods that are compared, for one representation and pool size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import SRKI, DynaRule, KBLaM
from ..methods.plus import DynaRulePlus
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.stepwise import Stepwise
from ..retrievers import Retriever
from ..retrievers.bm25 import BM25
from ..retrievers.both_ends import BothEnds
from ..retrievers.dense import Dense
from ..retrievers.fuse import RRF
from . import Options

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


def retrievers(options: Options) -> tuple[Retriever, Retriever, Retriever]:
    """Return dense, BM25 and their fusion (RRF, k = 60)."""
    dense, bm25 = Dense(options.encoder), BM25()
    return dense, bm25, RRF((bm25, dense))


def rule_memory(options: Options, form: str, size: int, **changes: Any) -> list[Method]:
    """Return KBLaM, SR-KI and DynaRule on every model that is a folder."""
    kinds = (KBLaM, SRKI, DynaRule)
    return [kind.of(model, form, **changes) for model in options.local_models for kind in kinds]


def all_memory(options: Options, form: str, size: int) -> list[Method]:
    """Return every method of rule memory; DynaRule+ without its look-ahead as well."""
    return rule_memory(options, form, size) + [
        DynaRulePlus.of(model, form, lookahead=levels)
        for model in options.local_models
        for levels in (0, None)
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
