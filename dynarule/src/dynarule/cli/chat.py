"""``dynarule chat``: a conversation with a rule book, which may change while it is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer

from .loading import Served, closed_stdin, rule_encoder, warn_of_unknown
from .shared import MaxNewTokensOption, TopOption, grouped, message_of, note, one_line, say

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..memory.serving import Retrieval

HELP = """a question         is answered, with the rules read at each step
+ RULE             adds a rule
- ID               removes a rule
rules [WORDS]      lists the rules with these words
help, quit"""


class RuleChat:
    """A model, its rules, and what one line of a conversation does with them."""

    max_new_tokens, top = 256, 2

    def __init__(self, model: Any, tokenizer: Any, bank: RuleBank, encoder: str | None = None) -> None:
        from ..search_token import SEARCH_TOKEN

        self.model, self.tokenizer, self.bank = model, tokenizer, bank
        self.encoder_name = encoder
        self.config = model.active_peft_config
        self.token = self.config.search_token or SEARCH_TOKEN

    def reply(self, line: str) -> Iterator[str]:
        """Yield the reply to a line, as far as it is written each time: of an answer, its steps so far."""
        if self.is_question(line):
            yield from self._answer(line)
        elif line.startswith("+"):
            yield f"added [{self._add(line[1:].strip())}], {len(self.bank):,} rules"
        elif line.startswith("-"):
            self.bank.remove([line[1:].strip()])
            yield f"{len(self.bank):,} rules"
        elif line == "help":
            yield HELP
        else:
            words = line.lower().split()[1:]
            rules = zip(self.bank.ids, self.bank.texts, strict=True)
            matches = [(name, text) for name, text in rules if all(word in text.lower() for word in words)]
            yield "\n".join(one_line(f"[{name}] {text}") for name, text in matches)

    @staticmethod
    def is_question(line: str) -> bool:
        """Say whether a line is asked of the model."""
        return not (line.startswith(("+", "-", "rules ")) or line in ("help", "rules"))

    def _answer(self, question: str) -> Iterator[str]:
        from transformers import TextIteratorStreamer

        from ..generation import generate, question_prompts, rule_memory

        memory = rule_memory(self.model, self.tokenizer, self.bank)
        prompts = question_prompts(self.tokenizer, [question], self.config.question_opening)
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, clean_up_tokenization_spaces=False)
        hidden = [special for special in self.tokenizer.all_special_tokens if special != self.token]
        settings: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "streamer": streamer}
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(generate, self.model, self.tokenizer, memory, prompts, **settings)
            done.add_done_callback(lambda _: streamer.end())  # where it failed, too
            text = ""
            for piece in streamer:
                text += piece
                for special in hidden:
                    text = text.replace(special, "")
                layer = self.config.confidence_layer
                yield self._shown(text, [search for search in memory.trace if search.layer == layer])
            (answer,) = done.result()
            if answer.refused:
                yield self._shown(answer.text, answer.trace)

    def _shown(self, text: str, trace: Sequence[Retrieval]) -> str:
        """Return an answer's text below a line for each step: the rules that it read and those it looked ahead to."""
        lines = []
        for number, search in enumerate(searches_of(text, trace, self.token), 1):
            if search is not None:
                rules = list(zip(search.ids, search.texts, strict=True))[: self.top]
                read = "; ".join(one_line(f"[{name}] {rule}") for name, rule in rules)
                lines.append(
                    f"  step {number}: {read}{''.join(f' -> [{one_line(n)}]' for n in getattr(search, 'way', ()))}"
                )
        return "\n".join([*lines, text.replace(self.token, "").strip()])

    def _add(self, text: str) -> str:
        """Add a rule; return its id, the first whole number after all ids that are one."""
        if not text:
            raise ValueError("no rule after +; type for example: + If A is in the attic, A will be dizzy.")
        name = str(1 + max((int(name) for name in self.bank.ids if name.isdecimal()), default=0))
        made_with = self.bank.encoder and self._encoder.fingerprint  # a bank may not know its encoder
        added = type(self.bank).from_texts([text], None, self._encoder, [name], made_with)
        self.bank.add(added.to(self.bank.device, self.bank.dtype))
        return name

    @cached_property
    def _encoder(self) -> Any:
        """The encoder of rules that are added: opened when the first one is."""
        parts = {"like": self.bank.encoder, "model": self.model, "tokenizer": self.tokenizer}
        return rule_encoder(self.encoder_name, **parts)


def searches_of(text: str, trace: Sequence[Retrieval], token: str) -> list[Retrieval | None]:
    """Return what each step of an answer read; None where nothing was found.

    What the prompt found belongs to the first step where the answer does not open with ``<search>``.
    """
    parts, searches = text.split(token), list(trace)
    if len(parts) > 1 and not parts[0].strip():
        parts, searches = parts[1:], [search for search in searches if search.step]
    return [search for _, search in zip_longest(parts, searches[: len(parts)])]


@grouped
def chat(served: Served, max_new_tokens: MaxNewTokensOption = 256, top: TopOption = 2) -> None:
    """Ask, add rules, remove rules, ask again; one line each, from the keyboard or a pipe.

    Example: dynarule chat --model MODEL --adapter adapter --rules rules.txt
    """
    with closed_stdin():  # what is typed is for us, not for a library that would ask something
        chat = RuleChat(*served.load(), served.encoder)
    chat.max_new_tokens, chat.top = max_new_tokens, top
    note(f"{len(chat.bank):,} rules; a question, + RULE, - ID, rules, help or quit")
    for line in _typed_lines():
        if line in ("quit", "exit"):
            break
        try:
            with closed_stdin():
                warn_of_unknown(chat.tokenizer, [line] if chat.is_question(line) else [])
                *_, whole = chat.reply(line)
                say(whole)
        except (ValueError, KeyError, ImportError) as error:  # a slip of the keyboard ends no conversation
            note(message_of(error))


def _typed_lines() -> Iterator[str]:
    """Yield the lines of the keyboard or a pipe that are not blank."""
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
