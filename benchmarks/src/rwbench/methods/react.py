"""ReAct: thought, action, observation (Yao et al. 2023), with search and finish as actions.

A call stops at the next observation. What cannot be read as thought and action counts as a bad action: its first line
is kept as the thought, and the model is asked once more for the action alone.

A model that was trained to ask for rules in a line of its own (`Template.request`) acts in that language instead: it
writes its answer line by line, and under a line that asks come the rules that were found. No worked example tells it in
which form they are, so that a first request in English may go to rules in logic: see `ReAct.reworded`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace

from ruleworld_data.scoring import parse_boxed, split_answers
from ruleworld_data.spec import check_name

from ..backends import Decoding
from ..retrievers.both_ends import content
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
    reworded : bool
        Show a model that asks in a language of its own its first request in the words of the rules: as the premise of
        what was found that shares most words with it. What it writes after that is in their form; texts and traces
        keep what it wrote.
    """

    name = "react"
    title = "ReAct"
    section = "act"

    final: str = "reader"
    reworded: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("final", self.final, FINALS)

    @property
    def search_label(self) -> str:
        """What searches, who answers, and whether the first request is reworded."""
        own = "" if self.final == "reader" else ", the agent's answer"
        first = ", first request reworded" if self.reworded else ""
        return f"{super().search_label}{own}{first}"

    @property
    def calls(self) -> int:
        """Most calls per question: a turn and its repair each round, and the reader."""
        return 2 * self.rounds + (self.final == "reader")

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Think, act and observe in turns."""
        search = Search(self, pool, question, top_k, usage)
        if self.template.request:
            return (yield from self._in_its_own_language(search))
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
            search.log(f"{thought}\n{action}")
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
        return (yield from self._end(search, answers, wrote, bad))

    def _in_its_own_language(self, search: Search) -> Conversation:
        """Write line by line; answer what a line asks for."""
        template, request = self.template, self.template.request
        prompt = template.render("answer_without_rules", search.pool.representation, search.question.text)
        written, text = "", ""
        # Steps and the answer are lines as well: no more of them than of searches, and one.
        for _ in range(2 * self.rounds + 1):
            done = yield Call(
                replace(prompt, begun=written), Decoding(self.step_tokens, ("\n",), requests=True)
            )
            line = template.clean(done.text).strip()
            if done.finish == "context" or not line:
                break
            search.log(line)
            shown = [done.marked or done.text]
            text += line + "\n"
            if line.startswith(request):
                if len(search.rounds) == self.rounds:
                    break
                asked = line.removeprefix(request).strip()
                found = search.texts(search.find(asked).ids)
                if self.reworded and len(search.rounds) == 1:
                    shown = [request + _in_words_of(found, asked)]
                shown += [*found, ""]
            elif parse_boxed(line) is not None:
                break
            written += "\n".join([*shown, ""])
        box = parse_boxed(text)
        answers = None if box is None else split_answers(box)
        return (yield from self._end(search, answers, text.strip() or None))

    def _end(
        self, search: Search, answers: list[str] | None, text: str | None, bad_actions: int = 0
    ) -> Conversation:
        """Let the reader answer from what was found, or take the agent's own answer."""
        counts = {"bad_actions": bad_actions, "finished": int(answers is not None)}
        if self.final == "reader":
            if not search.rounds:  # the reader needs something to read
                search.find(search.question.text)
            return (yield from search.read(**counts))
        return Output(
            search.question.id,
            retrieved=[search.merged().tolist() if search.rounds else []],
            answers=answers or [],
            text=text,
            usage=search.costs(**counts),
            outcome="ok" if answers is not None else "budget_exhausted",
            trace=search.trace,
        )

    def _call(self, search: Search, history: str, stop: str) -> Call:
        return Call(search.prompt(history=history), Decoding(self.step_tokens, (stop,)))


def _in_words_of(rules: Sequence[str], request: str) -> str:
    """Return the premise that shares most terms with a request, without its *If*; the request, where none does."""
    from dynarule.bank import premise_of

    premises = [premise_of(rule).removeprefix("If ") for rule in rules]
    shared = [len({*content(request)} & {*content(premise)}) for premise in premises]
    return premises[shared.index(max(shared))] if any(shared) else request
