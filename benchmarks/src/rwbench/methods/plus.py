"""DynaRule+: a search that looks ahead, and rules that are read token by token; not the paper's."""

from dataclasses import field, replace

import numpy as np

from ..backends import Decoding
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import component, trace_step
from .conversation import Call, Conversation, ModelMethod, UsageCounter, final_answer
from .ircot import ANSWER
from .memory import Memory


@component
class DynaRulePlus(Memory):
    """Before every step a search asks for the rules of that step and of the way from there to what is asked.

    What it found stands in the place of what the last one found, read by the frozen base as it reads its prompt. A
    field that is None is as in the adapter.
    """

    name = "dynarule-plus"
    title = "DynaRule+"
    stepwise = True
    replaces = ("lookahead", "score_weight", "score_limit", "word_weight", "word_stemmer")

    lookahead: int | None = None  # backward levels; 0 goes by the state that a chain has reached alone
    # Of a rule's score, in the attention to its tokens; 0 leaves it to reading which of the rules found is meant.
    score_weight: int | float | None = None
    # Most that a score takes from that attention.
    score_limit: int | float | None = field(default=None, metadata={"later": True})
    # Of words that text and rules share, in a search; 0: what was learned alone.
    word_weight: int | float | None = field(default=None, metadata={"later": True})
    # By whose stems these words are compared, letters alone left out; empty: as they are written.
    word_stemmer: str | None = field(default=None, metadata={"later": True})


@component
class RuleVectors(DynaRulePlus):
    """The paper's memory with DynaRule+'s search: a rule is one key and one value a layer, and its text is never read.

    It shows what reading one vector a rule costs, once the right rules are found.
    """

    name = "rule-vectors"
    title = "Rule vectors, found by DynaRule+"


@component
class Planned(DynaRulePlus):
    """Before every step, search as DynaRule+ does; ask the base for the step with what was found in its prompt.

    What DynaRule+ gains over a search by words may be its trained search, or what it reads from memory. Here the same
    searches of the same adapter fill the prompt, with the rules that DynaRule+ would read.
    """

    name = "planned"
    title = "RAG by DynaRule+'s search"
    adapter_name = "dynarule-plus"

    rounds: int = 8  # steps at most
    step_tokens: int = 100  # longest line of a step

    answer = ModelMethod.answer

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Search and write in turns."""
        template, form = self.model.template, pool.representation
        retrieved: list[list[int]] = []
        trace, written = [], ""
        for _ in range(self.rounds):
            with usage.retrieving():
                ranked, read = self._search(pool, question, written)
            retrieved.append(ranked[:top_k])
            prompt = template.render("answer", form, question.asked, pool.rules.texts(read, form))
            line = yield Call(replace(prompt, begun=written), Decoding(self.step_tokens, ("\n",)))
            text = template.clean(line.text).strip()
            trace.append(trace_step(retrieved=retrieved[-1], text=text))
            if not text or line.finish == "context" or ANSWER.search(text):
                break
            written += (line.marked or line.text) + "\n"
        return (yield from final_answer(self, question, prompt, written, retrieved=retrieved, trace=trace))

    def _search(self, pool: Pool, question: Question, written: str) -> tuple[list[int], Ids]:
        """Return the rules that DynaRule+ finds for the next step, best first, and those of them that it reads."""
        import torch
        from dynarule.tokenizer import encode_marked

        from dynarule import attach

        reader = self.reader(pool.representation)
        bank = reader.bank(pool.rules, pool.ids, pool.representation)
        memory = reader.memory(bank, replace(reader.config, **self.changes))
        opening = reader.question_tokens(question.text)
        answer = [*encode_marked(reader.tokenizer, written), reader.search_id]
        ids = torch.tensor([[*opening, *answer]], device=reader.model.device)
        memory.question_mask_BT = torch.arange(ids.shape[1], device=ids.device)[None] < len(opening)
        with torch.no_grad(), attach(reader.model, memory):
            reader.model(ids, use_cache=False)
        last = memory.trace[-1]
        return [int(rule) for rule in last.ids], np.array([int(rule) for rule in last.read], dtype=np.int32)
