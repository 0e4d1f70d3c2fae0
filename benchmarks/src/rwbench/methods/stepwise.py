"""Stepwise RAG: search again at every step, with what the step is about to use.

The model answers in steps, one line each. Before a line is kept, its first clause is drafted: what holds by then ("The
horse is jealous, so ..."). The clause is the query, the line is written again with what was found beside what the
question itself had found, and so on until the answer. Active retrieval (Jiang et al. 2023) with every step a trigger.
"""

from dataclasses import replace

from ..backends import Decoding
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import component
from .conversation import Call, Conversation, UsageCounter, final_answer
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
    title = "Stepwise RAG"
    section = "answer"
    stepwise = True

    rounds: int = 8

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Draft, search and write in turns."""
        search = Search(self, pool, question, top_k, usage)
        clean = self.model.template.clean
        first_hits = search.find(question.text)
        rules, written = first_hits.ids, ""
        retrieved = [rules.tolist()]

        def line(rules: Ids, *ends: str) -> Call:
            prompt = replace(search.prompt(self.texts(pool, rules)), begun=written)
            return Call(prompt, Decoding(self.step_tokens, (*ends, "\n")))

        for _ in range(self.rounds):
            draft = yield line(rules, *CLAUSE_ENDS)
            clause = first_sentence(clean(draft.text))
            if not clause or draft.finish == "context" or ANSWER.search(clean(draft.text).lstrip()):
                break
            rules = AGGREGATIONS[self.aggregation]([first_hits, search.find(clause)], top_k)
            retrieved.append(rules.tolist())
            done = yield line(rules)
            search.log(clean(done.text).strip())
            if not done.text.strip() or done.finish == "context":
                break
            written += (done.marked or done.text) + "\n"
        prompt = search.prompt(self.texts(pool, rules))
        # the first search is the question's; each step has one of its own, unless there was no step
        steps = retrieved[1:] or retrieved
        rest = {"retrieved": steps, "trace": search.trace, "usage": search.costs()}
        return (yield from final_answer(self, question, prompt, written, **rest))
