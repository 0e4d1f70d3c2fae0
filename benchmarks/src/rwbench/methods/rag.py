"""RAG: the rules that a retriever finds stand in the prompt; retrieved once, before the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends import Decoding
from ..retrievers import Index, Retriever
from ..retrievers.random import Random
from ..run.data import Question
from ..run.pools import Pool
from . import Preview, component
from .conversation import Asking, Call, Conversation, Tally, read_answer


@component
class RAG(Asking):
    """Search the pool with the question, then ask with what was found, best first.

    Parameters
    ----------
    retriever : Retriever
        What ranks the rules. `Random` makes a floor of it: rules, but not the right ones.
    in_prompt : int or None
        Rules in the prompt, the best ones; None: all that are kept. A small model reads few rules better than many.
    """

    name = "rag"

    retriever: Any = None
    in_prompt: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in_prompt(self.in_prompt)
        object.__setattr__(self, "retriever", built_retriever(self.retriever))

    @property
    def key(self) -> str:
        """Name of the style; see `Component.key`."""
        return f"rag-{self.retriever.key}"

    @property
    def label(self) -> str:
        """Name in reports."""
        return f"RAG {self.retriever.label}{few_words(self.in_prompt)}, {self.model.label}"

    def missing(self) -> str | None:
        """What to install, if anything."""
        return super().missing() or self.retriever.missing()

    def preview(self, pool: Pool, question: Question, top_k: int) -> Preview:
        """Return the first prompt; rules drawn at random stand for those that a search would find."""
        return super(RAG, replace(self, retriever=Random())).preview(pool, question, top_k)

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Load the model and hand the retriever all texts at once."""
        super().prepare(pools)
        prepare_retriever(self.retriever, pools)

    def converse(self, pool: Pool, question: Question, top_k: int, tally: Tally) -> Conversation:
        """Search, then ask."""
        with tally.retrieving():
            found = index_of(self.retriever, pool).search([question.text], top_k)[0].ids
        template = self.model.template
        texts = pool.rules.texts(found[: self.in_prompt], pool.representation)
        done = yield Call(
            template.render("answer", pool.representation, question.text, texts),
            Decoding(self.max_new_tokens),
        )
        return read_answer(template, question, done, retrieved=[found.tolist()])


def check_in_prompt(in_prompt: int | None) -> None:
    """Raise a ValueError for a number of rules in a prompt below one."""
    if in_prompt is not None and in_prompt < 1:
        raise ValueError(f"in_prompt must be 1 or more, got {in_prompt}")


def few_words(in_prompt: int | None) -> str:
    """Return how many rules a prompt holds, as part of a label."""
    return "" if in_prompt is None else f", {in_prompt} in prompt"


def built_retriever(value: Any) -> Retriever:
    """Return a retriever, built from a spec's dict if need be; a ValueError for anything else."""
    made = Retriever.from_dict(value) if isinstance(value, dict) else value
    if not isinstance(made, Retriever):
        raise ValueError(f"retriever must be a Retriever such as BM25(), got {value!r}")
    return made


def prepare_retriever(retriever: Retriever, pools: Sequence[Pool]) -> None:
    """Hand a retriever all texts of a run at once."""
    rules = dict.fromkeys(text for pool in pools for text in pool.texts)
    queries = dict.fromkeys(question.text for pool in pools for question in pool.questions)
    retriever.prepare(list(rules), list(queries))


_LAST: list[tuple[Retriever, Pool, Index]] = []
_KEPT = 64


def index_of(retriever: Retriever, pool: Pool) -> Index:
    """Return the pool's index, made once for the questions that share it."""
    for known, owner, index in _LAST:
        if owner is pool and known == retriever:
            return index
    made = retriever.index(pool.ids, pool.texts)
    _LAST.append((retriever, pool, made))
    del _LAST[:-_KEPT]
    return made
