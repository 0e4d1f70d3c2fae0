"""ReAct: thought, action, observation (Yao et al. 2023), with search and finish as actions.

A call stops at the next observation. What cannot be read as thought and action counts as a bad action: its first line
is kept as the thought, and the model is asked once more for the action alone.

A model that was trained to ask for rules in a line of its own (`Template.request`) acts in that language instead: it
writes its answer line by line, and under a line that asks come the rules that were found. No worked example tells it in
which form they are, so that a first request in English may go to rules in logic: see `ReAct.reworded`.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import field, replace
from typing import Literal

from ruleworld_data.scoring import parse_boxed, read_answers

from ..backends import Completion, Decoding
from ..retrievers.both_ends import content
from ..run.data import Question
from ..run.pools import Pool
from . import Output, component
from .conversation import Call, Conversation, UsageCounter
from .iterative import Iterative, Search

ACTION = re.compile(r"^(search|finish)\[(.*)\]$", re.IGNORECASE | re.DOTALL)

Course = Generator[Call, Completion, tuple[list[str] | None, str | None, int]]
"""Searches and returns the agent's answers, if it finished, the text that they stand in, and its bad actions."""


@component
class ReAct(Iterative):
    """Let the model choose between searching and finishing."""

    name = "react"
    title = "ReAct"
    section = "act"

    # Who gives the final answer: a reader over the collected rules, as in the paper, or the agent's own finish[...], in
    # a box. An agent that does not finish within its rounds has no answer.
    final: Literal["reader", "agent"] = "reader"
    # Show a model that asks in a language of its own its first request in the words of the rules: as the premise of
    # what was found that shares most words with it. What it writes after that is in their form; texts and traces keep
    # what it wrote.
    reworded: bool = field(default=False, metadata={"later": True})

    @property
    def search_label(self) -> str:
        """What searches, who answers, and whether the first request is reworded."""
        own = "" if self.final == "reader" else ", the agent's answer"
        first = ", first request reworded" if self.reworded else ""
        return f"{super().search_label}{own}{first}"

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Think, act and observe in turns; then a reader answers from what was found, or the agent's answer stands."""
        search = Search(self, pool, question, top_k, usage)
        course = self._write_lines if self.template.request else self._take_turns
        answers, text, bad_actions = yield from course(search)
        counts = {"bad_actions": bad_actions, "finished": int(answers is not None)}
        if self.final == "reader":
            if not search.rounds:  # the reader needs something to read
                search.find(question.text)
            return (yield from search.read(**counts))
        return Output(
            question.id,
            retrieved=[search.merged().tolist() if search.rounds else []],
            answers=answers or [],
            text=text,
            usage=search.costs(**counts),
            outcome="ok" if answers is not None else "budget_exhausted",
            trace=search.trace,
        )

    def _take_turns(self, search: Search) -> Course:
        """Think, act and observe, as the template's example shows it."""
        clean = self.model.template.clean
        history, bad_actions = "", 0

        def call(begun: str, stop: str) -> Call:
            return Call(search.prompt(history=history + begun), Decoding(self.step_tokens, (stop,)))

        for turn in range(1, self.rounds + 1):
            done = yield call(f"Thought {turn}:", f"\nObservation {turn}:")
            if done.finish == "context":
                break
            thought, mark, action = clean(done.text).strip().partition(f"\nAction {turn}:")
            if not mark:
                bad_actions += 1
                thought = thought.split("\n")[0].strip()
                done = yield call(f"Thought {turn}: {thought}\nAction {turn}:", "\n")
                action = clean(done.text)
            thought, action = thought.strip(), action.strip()
            search.log(f"{thought}\n{action}")
            kind, words = match.groups() if (match := ACTION.match(action)) else ("", "")
            if kind.lower() == "finish":
                text = f"\\boxed{{{words}}}"  # as all other answers stand, for whoever reads them again
                return read_answers(text) or [], text, bad_actions
            if words.strip():
                seen = (
                    "\n".join(self.texts(search.pool, search.find(words.strip()).ids)) or "No rule was found."
                )
            else:
                bad_actions += bool(mark)
                seen = "This is no action. Use search[words] or finish[answer]."
            history += f"Thought {turn}: {thought}\nAction {turn}: {action}\nObservation {turn}: {seen}\n"
        return None, None, bad_actions

    def _write_lines(self, search: Search) -> Course:
        """Write the answer line by line in the model's own language, and give the rules that a line asks for."""
        clean, request = self.template.clean, self.template.request
        prompt = search.prompt(section="answer_without_rules")
        written, text = "", ""
        # Steps and the answer are lines as well: no more of them than of searches, and one.
        for _ in range(2 * self.rounds + 1):
            decoding = Decoding(self.step_tokens, ("\n",), requests=True)
            done = yield Call(replace(prompt, begun=written), decoding)
            line = clean(done.text).strip()
            if done.finish == "context" or not line:
                break
            search.log(line)
            text += line + "\n"
            shown = [done.marked or done.text]
            if line.startswith(request):
                if len(search.rounds) == self.rounds:
                    break
                words = line.removeprefix(request).strip()
                rules = self.texts(search.pool, search.find(words).ids)
                if self.reworded and len(search.rounds) == 1:
                    shown = [request + self.model.as_text(_in_words_of(rules, words))]
                shown += [*map(self.model.as_text, rules), ""]
            elif parse_boxed(line) is not None:
                break
            written += "\n".join([*shown, ""])
        return read_answers(text), text.strip() or None, 0


def _in_words_of(rules: Sequence[str], request: str) -> str:
    """Return the premise that shares most terms with a request, without its *If*; the request, where none does."""
    from dynarule.bank import split_rule

    premises = [split_rule(rule).premise.removeprefix("If ") for rule in rules]
    shared = [len({*content(request)} & {*content(premise)}) for premise in premises]
    return premises[shared.index(max(shared))] if any(shared) else request
