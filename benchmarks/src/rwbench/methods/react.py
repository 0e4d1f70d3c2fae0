"""ReAct: thought, action, observation (Yao et al. 2023), with search and finish as actions.

A call stops at the next observation. What cannot be read as thought and action counts as a bad action: its first line
is kept as the thought, and the model is asked once more for the action alone.
"""

from __future__ import annotations

import re

from ruleworld_data.scoring import split_answers
from ruleworld_data.spec import check_name

from ..backends import Decoding
from ..run.data import Question
from ..run.pools import Pool
from . import Output, component
from .conversation import Call, Conversation, UsageCounter
from .iterative import Iterative, Search

ACTION = re.compile(r"^(search|finish)\[(.*)\]$", re.IGNORECASE | re.DOTALL)
FINALS = ("reader", "agent")


@component
class ReAct(Iterative):
    """Let the model choose between searching and finishing.

    Parameters
    ----------
    final : {"reader", "agent"}
        Who gives the final answer: a reader over the collected rules, as in the paper, or the agent's own
        ``finish[...]``. An agent that does not finish within its rounds has no answer.
    """

    name = "react"
    section = "act"

    final: str = "reader"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("final", self.final, FINALS)

    @property
    def label(self) -> str:
        """Name in reports."""
        own = "" if self.final == "reader" else ", the agent's answer"
        search = f"{self.retriever.label}, {self.aggregation}{own}"
        return f"ReAct ({search}){self.prompt_label}, {self.model.label}"

    @property
    def calls(self) -> int:
        """Most calls per question: a turn and its repair each round, and the reader."""
        return 2 * self.rounds + (self.final == "reader")

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Think, act and observe in turns."""
        search = Search(self, pool, question, top_k, usage)
        history, bad, answers, wrote = "", 0, None, None
        for turn in range(1, self.rounds + 1):
            asked = f"{history}Thought {turn}:"
            done = yield self._call(search, asked, f"\nObservation {turn}:")
            if done.finish == "context":
                break
            thought, mark, action = (
                self.model.template.clean(done.text).strip().partition(f"\nAction {turn}:")
            )
            if not mark:
                bad += 1
                thought = thought.split("\n")[0].strip()
                asked = f"{history}Thought {turn}: {thought}\nAction {turn}:"
                done = yield self._call(search, asked, "\n")
                action = self.model.template.clean(done.text)
            thought, action = thought.strip(), action.strip()
            search.wrote(f"{thought}\n{action}")
            found = ACTION.match(action)
            if found and found[1].lower() == "finish":
                answers, wrote = split_answers(found[2]), action
                break
            if found and found[2].strip():
                observation = (
                    "\n".join(search.texts(search.find(found[2].strip()).ids)) or "No rule was found."
                )
            else:
                bad += bool(mark)
                observation = "This is no action. Use search[words] or finish[answer]."
            history += (
                f"Thought {turn}: {thought}\nAction {turn}: {action}\nObservation {turn}: {observation}\n"
            )
        counts = {"bad_actions": bad, "finished": int(answers is not None)}
        if self.final == "reader":
            if not search.rounds:  # the reader needs something to read
                search.find(question.text)
            return (yield from search.read(**counts))
        return Output(
            question.id,
            retrieved=[search.collected().tolist() if search.rounds else []],
            answers=answers or [],
            text=wrote,
            usage=search.costs(**counts),
            outcome="ok" if answers is not None else "budget_exhausted",
            trace=search.trace,
        )

    def _call(self, search: Search, history: str, stop: str) -> Call:
        return Call(search.prompt(history=history), Decoding(self.step_tokens, (stop,)))
