"""IRCoT: the last sentence of the reasoning is the next query (Trivedi et al. 2023).

The course is the published one: search with the question; then in turns write one sentence over the rules found so far,
and search with it, until a sentence gives the answer, nothing is written, or the rounds are used up. A reader then
answers afresh from the collected rules.

A model that has a language of its own for answers and requests (`Template.request`) reasons in it: its sentences are
the lines of the answer that it goes on with.
"""

import re
from dataclasses import replace

from ..backends import Decoding
from ..run.data import Question
from ..run.pools import Pool
from . import component
from .conversation import Call, Conversation, UsageCounter
from .iterative import Iterative, Search

ANSWER = re.compile(r"answer is:?|\\boxed|^\[Answer\]", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
CONCLUSION = re.compile(r"^(?:thus|so|therefore|hence|that is)\b|\d+\s*[+\-]\s*\d+\s*=\s*\d+", re.IGNORECASE)
"""A sentence that only concludes from what was found, and so finds nothing as a query."""


@component
class IRCoT(Iterative):
    """Interleave retrieval with chain-of-thought sentences."""

    name = "ircot"
    title = "IRCoT"
    section = "reason"

    # As in the published code, a sentence that begins with "thus", "so", ... or holds a sum is no query; the one before
    # it is used again. In RuleWorld those sentences are the state updates, so both settings are worth a row.
    skip_conclusions: bool = True

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Search and write in turns, then read."""
        search = Search(self, pool, question, top_k, usage)
        query, thoughts, written, finished = question.text, "", "", 0
        for turn in range(self.rounds):
            hits = search.find(query)
            if turn == self.rounds - 1 or not len(hits.ids):
                break
            rules = self.texts(pool, search.merged())
            if self.template.request:
                prompt = replace(search.prompt(rules, "answer"), begun=written)
                done = yield Call(prompt, Decoding(self.step_tokens, ("\n",)))
                written += (done.marked or done.text) + "\n"
            else:
                prompt = search.prompt(rules, thoughts=thoughts)
                done = yield Call(prompt, Decoding(self.step_tokens))
            sentence = first_sentence(self.model.template.clean(done.text))
            search.log(sentence)
            if not sentence or done.finish == "context" or ANSWER.search(sentence):
                finished = int(bool(sentence))
                break
            thoughts = f"{thoughts} {sentence}".strip()
            if not (self.skip_conclusions and CONCLUSION.search(sentence)):
                query = sentence
        return (yield from search.read(finished=finished))


def first_sentence(text: str) -> str:
    """Return the first sentence of what was written, without the marks of a step."""
    text = re.sub(r"^\s*(?:\[Step \d+\]\s*)?", "", text)
    return SENTENCE_END.split(text.strip(), maxsplit=1)[0].strip()
