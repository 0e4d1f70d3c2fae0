"""OpenAI's requests as they are read, and what is answered: completions, pieces of a stream, errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..bank.sources import LONGEST
from ..memory.serving import Retrieval
from .engine import EngineClosed
from .requests import Answer

MOST_ANSWERS = 64
"""Of a request: ``n`` times its prompts."""
TOP_RULES = 5
"""Rules of a step that an answer names."""
LEAST_TEMPERATURE = 0.01
"""Above 0: below it, logits would overflow."""
UNSUPPORTED = (
    "tools functions logprobs logit_bias frequency_penalty presence_penalty echo suffix guided_json guided_regex "
    "guided_choice guided_grammar structured_outputs"
).split()
"""Fields that would change an answer."""
StopWord = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """What chat completions and completions share; fields that are not named here, nor `UNSUPPORTED`, are ignored."""

    model_config = ConfigDict(extra="allow")
    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(0.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=MOST_ANSWERS)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: StopWord | Annotated[list[StopWord], Field(max_length=16)] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if (self.n or 1) > 1 and not self.temperature:
            raise ValueError("n answers without a temperature are all the same; set temperature, or n=1")
        if given := [name for name in UNSUPPORTED if (self.model_extra or {}).get(name)]:
            raise ValueError(f"{', '.join(given)}: not supported, and leaving it out would change the answer")
        if 0 < (self.temperature or 0) < LEAST_TEMPERATURE:
            raise ValueError(f"temperature must be 0 (greedy) or from {LEAST_TEMPERATURE} to 2")
        return self


class ChatCompletion(Asked):
    """A chat completion: one question, alone."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    response_format: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _text(self) -> Self:
        if (self.response_format or {"type": "text"}).get("type") != "text":
            raise ValueError("response_format is not supported: answers are text")
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self


class TextCompletion(Asked):
    """A completion of one or several questions."""

    prompt: str | list[str]


class Rule(BaseModel):
    """A rule to add or to put in another's place; a premise or conclusion that is not given is found in its text."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(min_length=1)
    text: str = Field(min_length=1)
    premise: str | None = Field(None, pattern=r"\S", max_length=LONGEST)
    conclusion: str | None = Field(None, pattern=r"\S", max_length=LONGEST)


NewRules = Annotated[list[Rule], Field(min_length=1)]


class RequestError(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    @classmethod
    def of(cls, problem: Exception) -> RequestError:
        """Return what a client reads of an error: what it caused itself is its own, 4xx."""
        if isinstance(problem, RequestError):
            return problem
        if isinstance(problem, KeyError):
            return cls(404, str(problem.args[0]))
        if isinstance(problem, OverflowError):
            return cls(429, str(problem), "rate_limit_exceeded")
        if isinstance(problem, EngineClosed):
            return cls(503, str(problem))
        own = isinstance(problem, ValueError | ImportError)
        return cls(400 if own else 500, str(problem) or type(problem).__name__)

    @property
    def body(self) -> dict[str, Any]:
        """What a client reads, of OpenAI's shape and types, as an answer or within a stream."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "requests" if self.status == 429 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def choice(chat: bool, index: int, answer: Answer) -> dict[str, Any]:
    """Return a whole answer as one of a response's choices."""
    message = {"message": {"role": "assistant", "content": answer.text}}
    said = message if chat else {"text": answer.text}
    end = {"finish_reason": answer.finish, "logprobs": None, "rules": steps(answer.trace)}
    return {"index": index, **said, **end}


def piece(chat: bool, index: int, what: str | Answer) -> dict[str, Any]:
    """Return new text of a stream, or its end, as a chunk's choice."""
    text, end = (what, None) if isinstance(what, str) else ("", what)
    said: Any = text
    if chat:
        said = {"role": "assistant", "content": text} if text else {}
    rules = {} if end is None else {"rules": steps(end.trace)}
    return {"index": index, "delta" if chat else "text": said, "finish_reason": end and end.finish, **rules}


def steps(trace: Sequence[Retrieval]) -> list[dict[str, Any]]:
    """Return what was read at each step: ids of rules (file and line where documents were read), texts, scores."""
    names = "id", "text", "score"
    read = []
    for search in trace:
        rules = list(zip(search.ids, search.texts, search.scores, strict=True))[:TOP_RULES]
        read.append({"step": search.step, "rules": [dict(zip(names, rule, strict=True)) for rule in rules]})
    return read


def usage(answers: Iterable[Answer]) -> dict[str, int]:
    """Return how many tokens were read and written."""
    counts = [(answer.prompt_tokens, answer.tokens) for answer in answers]
    read, written = map(sum, zip(*counts, strict=True))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
