"""Stepwise RAG: search again at every step, with what the step is about to use.

The model answers in steps, one line each. Before a line is kept, its first clause is drafted: what holds by then ("The
horse is jealous, so ..."). The clause is the query, the line is written again with what was found beside what the
question itself had found, and so on until the answer. Active retrieval (Jiang et al. 2023) with every step a trigger.
"""

from __future__ import annotations

from dataclasses import replace

from ..backends import Decoding
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import component
from .conversation import Call, Conversation, UsageCounter, read_answer
from .ircot import ANSWER, first_sentence
from .iterative import AGGREGATIONS, Iterative, Search

CLAUSE_ENDS = (", so ", " => ")
"""What ends the part of a step that is known before its rule is found, in English and in logic."""


@component
class Stepwise(Iterative):
    """Search with the question, then at each step with the step's own words.

    The model continues its own answer, so it must be able to: a local model, or a server that continues the
    assistant's turn. ``rounds`` bounds the steps, ``step_tokens`` a step's line.
    """

    name = "stepwise"
    section = "answer"
    stepwise = True

    rounds: int = 8

    @property
    def label(self) -> str:
        """Name in reports."""
        return f"Stepwise RAG {self.search_label}{self.prompt_label}, {self.model.label}"

    @property
    def calls(self) -> int:
        """Most calls per question: a draft and a line each step, and the answer."""
        return 2 * self.rounds + 1

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Draft, search and write in turns."""
        search = Search(self, pool, question, top_k, usage)
        asked = search.find(question.text)
        merge, kept = AGGREGATIONS[self.aggregation], asked.ids
        found = [kept.tolist()]
        written = ""
        clean = self.model.template.clean
        for _ in range(self.rounds):
            draft = yield self._line(search, kept, written, CLAUSE_ENDS)
            clause = first_sentence(clean(draft.text))
            if not clause or draft.finish == "context" or ANSWER.search(clean(draft.text).lstrip()):
                break
            kept = merge([asked, search.find(clause)], top_k)
            found.append(kept.tolist())
            line = yield self._line(search, kept, written)
            search.wrote(clean(line.text).strip())
            if not line.text.strip() or line.finish == "context":
                break
            written += (line.marked or line.text) + "\n"
        prompt = replace(search.prompt(search.texts(kept)), begun=written)
        done = yield Call(prompt, Decoding(self.max_new_tokens))
        done = replace(done, text=written + done.text)
        # The first search is the question's; each step has one of its own, unless there was no step.
        steps = found[1:] or found
        costs = search.costs()
        return read_answer(
            self.model.template, question, done, retrieved=steps, trace=search.trace, usage=costs
        )

    def _line(self, search: Search, kept: Ids, written: str, ends: tuple[str, ...] = ()) -> Call:
        """Ask for one line of the answer, or its beginning."""
        prompt = replace(search.prompt(search.texts(kept)), begun=written)
        return Call(prompt, Decoding(self.step_tokens, (*ends, "\n")))
