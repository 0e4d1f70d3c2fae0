"""RAG: the rules that a retriever finds stand in the prompt; retrieved once, before the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends import Decoding
from ..retrievers import pool_index
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import StepTrace, component
from .conversation import Call, Conversation, ModelMethod, UsageCounter, read_answer


@component
class RAG(ModelMethod):
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
        if self.in_prompt is not None and self.in_prompt < 1:
            raise ValueError(f"in_prompt must be 1 or more, got {self.in_prompt}")

    @property
    def key(self) -> str:
        """Name of the style; see `Component.key`."""
        return f"rag-{self.retriever.key}"

    @property
    def label(self) -> str:
        """Name in reports."""
        return f"RAG {self.retriever.label}{self.prompt_label}, {self.model.label}"

    @property
    def prompt_label(self) -> str:
        """How many rules a prompt holds, as part of a label."""
        return "" if self.in_prompt is None else f", {self.in_prompt} in prompt"

    def texts(self, pool: Pool, ids: Ids) -> list[str]:
        """Return rules as the model reads them, at most ``in_prompt``."""
        return pool.rules.texts(ids[: self.in_prompt], pool.representation)

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Search, then ask."""
        with usage.retrieving():
            found = pool_index(self.retriever, pool).search([question.text], top_k)[0].ids
        return (yield from self.read(pool, question, found))

    def read(
        self, pool: Pool, question: Question, found: Ids, trace: Sequence[StepTrace] = (), **usage: Any
    ) -> Conversation:
        """Answer from the rules that were found; nothing else is shown."""
        template = self.model.template
        prompt = template.render("answer", pool.representation, question.text, self.texts(pool, found))
        done = yield Call(prompt, Decoding(self.max_new_tokens))
        return read_answer(template, question, done, retrieved=[found.tolist()], trace=trace, usage=usage)
