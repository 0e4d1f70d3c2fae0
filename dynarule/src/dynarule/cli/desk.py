"""A rule book, the model that reads it and the same model without it: what a page asks for, as text and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lazy import need
from .answer import add_rule
from .shared import printable

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..memory.serving import Retrieval

SHOWN = 200
"""Rules of the book on the page at most; what was found comes first where there are more."""
BESIDE = 8
"""Rules that BM25 puts into the prompt."""


class ShownStep(NamedTuple):
    """What a step read, best first; by which rules its search saw the way to what is asked; and what was written."""

    read: list[str]
    ahead: list[str]
    text: str


def steps_of(text: str, trace: Sequence[Retrieval], token: str, top: int) -> list[ShownStep]:
    """Return an answer's steps: what stands after each ``<search>``, with what that search found.

    What the prompt found is a step's where the answer does not open with a search.
    """
    parts, found = text.split(token), list(trace)
    if len(parts) > 1 and not parts[0].strip():
        parts, found = parts[1:], [each for each in found if each.step]
    steps = []
    for part, search in zip_longest(parts, found[: len(parts)]):
        read = [] if search is None else search.ids[:top]
        ahead = [] if search is None else [name for name in search.way if name not in read]
        steps.append(ShownStep(read, ahead, part.strip()))
    return steps


class Desk:
    """A rule book, the model that reads it, and the same model without it; everything the page asks for.

    Parameters
    ----------
    model, tokenizer, bank
        As for `dynarule.generate`.
    encoder : callable
        Returns the encoder of rules that are added.
    max_new_tokens : int
        Length of an answer.
    top : int
        Rules marked per step.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        bank: RuleBank,
        encoder: Callable[[], Any],
        max_new_tokens: int = 256,
        top: int = 2,
    ) -> None:
        self.model, self.tokenizer, self.bank, self.encoder = model, tokenizer, bank, encoder
        self.max_new_tokens, self.top = max_new_tokens, top

    def answer(self, question: str) -> Iterator[list[ShownStep]]:
        """Yield the steps of an answer as they are written."""
        from transformers import TextIteratorStreamer

        from ..generation import generate, question_prompts, rule_memory
        from ..search_token import SEARCH_TOKEN

        config = self.model.active_peft_config
        token = config.search_token or SEARCH_TOKEN
        prompts = question_prompts(self.tokenizer, [question], config.reading)
        memory = rule_memory(self.model, self.tokenizer, self.bank)
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True)
        hidden = [each for each in self.tokenizer.all_special_tokens if each != token]
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(
                generate,
                self.model,
                self.tokenizer,
                memory,
                prompts,
                max_new_tokens=self.max_new_tokens,
                streamer=streamer,
            )
            done.add_done_callback(lambda _: streamer.end())  # where it failed, too
            text = ""
            for piece in streamer:
                text += piece
                for mark in hidden:
                    text = text.replace(mark, "")
                found = [each for each in memory.trace if each.layer == config.confidence_layer]
                yield steps_of(text, found, token, self.top)
            done.result()

    def beside(self, question: str, rules: Sequence[str] = ()) -> str:
        """Return what the model itself answers, with some rules in its prompt or none."""
        import torch

        from ..generation import StopLoops, encode_prompt, pad_id, question_prompts

        (prompt,) = question_prompts(
            self.tokenizer, ["\n".join([*rules, "", question]) if rules else question]
        )
        ids = encode_prompt(self.tokenizer, prompt)
        with torch.no_grad(), self.model.disable_adapter():
            out = self.model.generate(
                torch.tensor([ids], device=self.model.device),
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                stopping_criteria=[StopLoops(len(ids))],
                pad_token_id=pad_id(self.model, self.tokenizer),
            )
        return str(self.tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True)).strip()

    def add(self, text: str) -> None:
        """Add a rule."""
        add_rule(self.bank, text, self.encoder)

    def remove(self, name: str) -> None:
        """Remove a rule."""
        self.bank.remove([name])

    def bm25(self, question: str) -> list[str]:
        """Return the rules that share most words with a question, best first."""
        bm25s = need("bm25s", "ui")
        split = {"stopwords": None, "show_progress": False}
        index = bm25s.BM25()
        index.index(bm25s.tokenize(self.bank.texts, **split), show_progress=False)
        most = min(BESIDE, len(self.bank))
        found = index.retrieve(bm25s.tokenize([question], **split), k=most, show_progress=False)
        return [self.bank.texts[row] for row in found.documents[0]]

    def book(self, steps: Sequence[ShownStep] = ()) -> str:
        """Return the rule book as HTML: what each step read and looked ahead to is marked with the step's number."""
        marks: dict[str, tuple[str, list[int]]] = {}
        for kind in ("read", "ahead"):  # a rule that was read in the end is marked as that
            for number, step in enumerate(steps, 1):
                for name in getattr(step, kind):
                    of, numbers = marks.setdefault(name, (kind, []))
                    numbers += [number] if of == kind else []
        names = self.bank.ids
        if len(names) > SHOWN:
            names = list(dict.fromkeys([*marks, *names[:SHOWN]]))[:SHOWN]
        rows = [self._rule(name, *marks.get(name, ("", []))) for name in names]
        more = f"<p>and {len(self.bank) - len(names):,} more</p>" if len(names) < len(self.bank) else ""
        return f'<div class="rules">{"".join(rows)}{more}</div>'

    def written(self, steps: Sequence[ShownStep]) -> str:
        """Return the steps of an answer as HTML."""
        parts = []
        for number, step in enumerate(steps, 1):
            parts += [self._rule(name, "read", [number]) for name in step.read]
            parts += [self._rule(name, "ahead", [number]) for name in step.ahead]
            parts.append(f"<p>{safe(step.text)}</p>")
        return f'<div class="steps">{"".join(parts)}</div>'

    def _rule(self, name: str, kind: str, numbers: Sequence[int]) -> str:
        said = {"read": "read at step ", "ahead": "looked ahead to at step "}.get(kind, "")
        numbered = ", ".join(map(str, numbers))
        badge = f'<b title="{said}{numbered}">{"→" if kind == "ahead" else ""}{numbered}</b> ' if kind else ""
        text = self.bank.texts[self.bank.row(name)]
        return f'<div class="{kind}">{badge}[{safe(name)}] {safe(text)}</div>'


def safe(text: str) -> str:
    """Return a text as HTML shows it."""
    return escape(printable(text))
