"""A model that says what a function tells it to, for hand-worked traces."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ruleworld_data.prompts import Prompt
from rwbench.backends import Backend, Completion, Decoding, component, cut

Say = Callable[[str], str]
RULES = [
    "If A chases B, B will enter the bridge.",
    "If A is on the bridge, A will be deeply hungry.",
    "If A is deeply hungry, A will lose 2 green fins.",
    "If A is a calm fox, it has 9 green fins.",
    "If A is a calm owl, it has 4 blue wings.",
    "If A is in the desert, A will be hardly awake.",
]
"""A chain of three rules, and three besides."""


def script(name: str, say: Say) -> Backend:
    """Return a backend that answers each prompt with ``say(prompt)``."""
    Script.says[name] = say
    return Script(name)


@component
class Script(Backend):
    """Answers by a function of the prompt and the answer so far; a token is a word.

    Parameters
    ----------
    model : str
        Name given to `script`.
    context : int or None
        Most words of prompt and answer together.
    """

    name = "script"
    whole_batches = False
    says: ClassVar[dict[str, Say]] = {}

    model: str = ""
    context: Any = None

    @property
    def batch(self) -> int:
        """Prompts at once."""
        return 4

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield what the function says."""
        for prompt in prompts:
            length = len(prompt.text.split())
            if self.context is not None and length + decoding.max_new_tokens > self.context:
                yield Completion(finish="context", prompt_tokens=length)
                continue
            text = cut(self.says[self.model](prompt.text + prompt.begun), decoding.stop)
            words = text.split(" ")
            short = " ".join(words[: decoding.max_new_tokens])
            yield Completion(short, "stop" if short == text else "length", length, len(short.split()))
