"""Backends: from prompts to texts. One file per way to run a language model.

A backend is a frozen dataclass whose fields decide what is written (model, weights, temperature); how fast it runs
is no field. A prompt that does not fit, an endpoint that gives up and an answer cut short are results, not exceptions:
the method turns them into outcomes, and the run goes on.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ruleworld_data.prompts import Prompt, Template, answer_template

from ..registry import Component, Registry, component

__all__ = ["Backend", "Completion", "Decoding", "Finish", "GoneError", "Prompt", "component"]

Finish = Literal["stop", "length", "context", "filter", "error"]


class GoneError(Exception):
    """The model cannot be used any more, so asking the next question is no use; the run stops and can be resumed."""


@dataclass(frozen=True)
class Decoding:
    """How to decode."""

    max_new_tokens: int = 512  # an answer is cut off here
    stop: tuple[str, ...] = ()  # the text ends before the first of these
    # Somebody answers when the model asks for rules in its own language (`Template.request`). If not, a local model's
    # answer does not open with a request's first token.
    requests: bool = False


@dataclass(frozen=True)
class Completion:
    """What came of one prompt."""

    text: str = ""  # what the model wrote, without the stop string
    # By itself, cut off, not asked since it does not fit, withheld by the endpoint, or failed.
    finish: Finish = "stop"
    prompt_tokens: int = 0  # as counted by the model's tokenizer or the endpoint; 0 where it does not say
    completion_tokens: int = 0
    seconds: float = 0.0  # wall time; questions of one batch share it evenly
    cached: bool = False  # read from disk
    error: str | None = None  # why there is no text
    # The text with the special tokens of the model's own format, from which the model can go on, and with marks where
    # it spells them as text (`Backend.as_text`); None: the text has them.
    marked: str | None = None


class Backend(Component):
    """Base of all backends. A subclass sets ``name`` and implements `generate`."""

    registry = Registry["type[Backend]"]("backend", __name__)
    # Texts can depend, in the last bits, on which prompts share a batch: a resumed run must make the same batches.
    whole_batches: ClassVar[bool] = True

    @property
    def batch(self) -> int:
        """How many prompts to hand over at once."""
        return 1

    @property
    def template(self) -> Template:
        """The prompt template that the model wants."""
        return answer_template()

    def prepare(self) -> None:
        """Get ready before the first question; a ValueError if that is not possible."""

    def as_text(self, text: str) -> str:
        """Return a text for `Prompt.begun` that the model did not write: its control tokens are text."""
        return text

    def without_marks(self, begun: str) -> str:
        """Return the beginning of an answer as it reads."""
        return begun

    def excess(self, prompt: Prompt, decoding: Decoding) -> int:
        """Return how many tokens a prompt and its answer have too many for the model; 0 where that is not known."""
        return 0

    @abstractmethod
    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield one completion per prompt, in order, each as soon as it is there.

        Raises
        ------
        GoneError
            If there is no use in going on.
        """


def cut(text: str, stop: Sequence[str]) -> str:
    """Return a text up to the first of the stop strings."""
    ends = [place for mark in stop if (place := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text
