"""A model that says what a function tells it to: for hand-worked traces in tests, and for trying a method out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ruleworld_data.prompts import Prompt

from . import Backend, Completion, Decoding, component, cut

Say = Callable[[str], str]
_SCRIPTS: dict[str, Say] = {"boxed": lambda prompt: "[Step 1] ...\n[Answer] \\boxed{0}"}


def script(name: str, say: Say) -> Script:
    """Return a backend that answers each prompt with ``say(prompt)``."""
    _SCRIPTS[name] = say
    return Script(name)


@component
class Script(Backend):
    """Answers by a function of the prompt; a token is a word.

    Parameters
    ----------
    model : str
        Name given to `script`.
    context : int or None
        Most words of prompt and answer together.
    """

    name = "script"
    whole_batches = False

    model: str = "boxed"
    context: Any = None

    @property
    def batch(self) -> int:
        """Prompts at once."""
        return 4

    @property
    def context_length(self) -> int | None:
        """Most words."""
        return self.context

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of words."""
        return len(prompt.text.split())

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield what the function says."""
        for prompt in prompts:
            length = self.count_tokens(prompt)
            if self.context is not None and length + decoding.max_new_tokens > self.context:
                yield Completion(finish="context", prompt_tokens=length)
                continue
            text = cut(_SCRIPTS[self.model](prompt.text), decoding.stop)
            words = text.split(" ")
            short = " ".join(words[: decoding.max_new_tokens])
            yield Completion(short, "stop" if short == text else "length", length, len(short.split()))
