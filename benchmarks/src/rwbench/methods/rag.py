"""RAG: the rules that a retriever finds stand in the prompt; retrieved once, before the answer."""

from dataclasses import field
from typing import Any

from ..registry import Positive, Share
from ..retrievers import Hits, Retriever
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import component
from .conversation import Conversation, ModelMethod, UsageCounter, final_answer


@component
class RAG(ModelMethod):
    """Search the pool with the question, then ask with what was found, best first."""

    name = "rag"
    title = "RAG"

    retriever: Retriever = field(kw_only=True)  # `Random` makes a floor of it: rules, but not the right ones
    # Rules in the prompt, the best ones; None: all that are kept. A small model reads few rules better than many.
    in_prompt: Positive | None = None
    # Of these only rules that score at least this share of the best one's score, from 0 (all) to 1: how many a question
    # needs, its search may know better than a number that is the same for all.
    score_share: Share = field(default=0.0, metadata={"later": True})

    @property
    def key(self) -> str:
        """See `Component.key`."""
        return f"rag-{self.retriever.key}"

    @property
    def search_label(self) -> str:
        """What searches."""
        return self.retriever.label

    @property
    def label(self) -> str:
        """Name in reports."""
        up_to, share = "", ""
        if self.score_share:
            up_to, share = "up to ", f", from {self.score_share:g} of the best score"
        in_prompt = "" if self.in_prompt is None else f", {up_to}{self.in_prompt} in prompt"
        return f"{self.title} {self.search_label}{in_prompt}{share}, {self.model.label}"

    def above_share(self, hits: Hits) -> Hits:
        """Return the rules that score at least `score_share` of the best; the best one always."""
        if not self.score_share:
            return hits
        count = max(1, int((hits.scores >= self.score_share * hits.scores[:1]).sum()))
        return Hits(hits.ids[:count], hits.scores[:count])

    def texts(self, pool: Pool, ids: Ids) -> list[str]:
        """Return rules as the model reads them, at most ``in_prompt``."""
        return pool.rules.texts(ids[: self.in_prompt], pool.representation)

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Search, then ask."""
        with usage.retrieving():
            hits = self.retriever.search(pool, question.text, top_k)
        retrieved = [hits.ids.tolist()]
        return (yield from self.read(pool, question, self.above_share(hits).ids, retrieved=retrieved))

    def read(self, pool: Pool, question: Question, ids: Ids, **rest: Any) -> Conversation:
        """Answer from rules alone; the output's other fields follow."""
        texts = self.texts(pool, ids)
        prompt = self.model.template.render("answer", pool.representation, question.asked, texts)
        return (yield from final_answer(self, question, prompt, **rest))
