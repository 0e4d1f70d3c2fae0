"""OpenAI's requests as they are read, and what is answered: completions, pieces of a stream, errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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
HARMLESS = (
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention parallel_tool_calls"
).split()
"""Fields that change no answer; whatever else is not named here is another server's, and may."""
NEUTRAL: dict[str, Any] = {
    "best_of": 1,
    "top_k": -1,
    "repetition_penalty": 1,
    "tool_choice": "none",
    "modalities": ["text"],
    "response_format": {"type": "text"},
}
"""What leaves an answer as it is, besides what is off or empty."""
Texts = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""One text is read as a list of it: of two types an error would name each, as pydantic calls them."""
StopWord = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """What chat completions and completions share; of other fields only those that change no answer are ignored."""

    model_config = ConfigDict(extra="allow")
    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(0.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=MOST_ANSWERS)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: Annotated[list[StopWord] | None, Field(max_length=16), Texts] = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if (self.n or 1) > 1 and not self.temperature:
            raise ValueError("n answers without a temperature are all the same; set temperature, or n=1")
        extra = (self.model_extra or {}).items()
        if given := [name for name, value in extra if _changes_answer(name, value)]:
            raise ValueError(f"{', '.join(given)}: not supported, and leaving it out would change the answer")
        if 0 < (self.temperature or 0) < LEAST_TEMPERATURE:
            raise ValueError(f"temperature must be 0 (greedy) or from {LEAST_TEMPERATURE} to 2")
        return self


def _changes_answer(name: str, value: Any) -> bool:
    # logprobs=0 asks for those of each token
    off = value is None or value is False or (value in (0, "", [], {}) and name != "logprobs")
    return not (off or name in HARMLESS or (name in NEUTRAL and value == NEUTRAL[name]))


class ChatCompletion(Asked):
    """A chat completion: one question, alone."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _newer_name(self) -> Self:
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self


class TextCompletion(Asked):
    """A completion of one or several questions."""

    prompt: Annotated[list[str], Texts]


class Rule(BaseModel):
    """A rule to add or to put in another's place; a premise or conclusion that is not given is found in its text."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(min_length=1, max_length=1_000, pattern=r"[^.]")  # addresses hold it, but not ".."
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
    def of(cls, problem: Exception, *, answering: bool = False) -> RequestError:
        """Return what a client reads of an error: what it caused itself, before it was answered, is its own, 4xx."""
        if isinstance(problem, RequestError):
            return problem
        if isinstance(problem, EngineClosed):
            return cls(503, str(problem))
        if not answering and isinstance(problem, OverflowError):
            return cls(429, str(problem), "rate_limit_exceeded")
        if not answering and isinstance(problem, ValueError | ImportError):
            return cls(400, str(problem))
        return cls(500, f"the server failed, as its log says ({type(problem).__name__}: {problem})")

    @classmethod
    def of_fields(cls, error: dict[str, Any]) -> RequestError:
        """Return what a client reads of a field that is not as it should be, of pydantic's errors."""
        said, (_, *place) = error["msg"].removeprefix("Value error, "), error["loc"]
        if error["type"] == "json_invalid":
            return cls(400, f"the body is no JSON: {error['ctx']['error']} at character {place[0]}")
        if not place and "ctx" not in error:
            return cls(400, f"the body: {said}; send it with Content-Type: application/json")
        field = ".".join(map(str, place))
        got = "" if error["type"] == "missing" else f", got {error['input']!r:.80}"
        return cls(400, f"{field}: {said}{got}" if field else said, param=field or None)

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
    return [
        {"step": search.step, "rules": [{"id": i, "text": text, "score": score} for i, text, score in rules]}
        for search in trace
        for rules in [list(zip(search.ids, search.texts, search.scores, strict=True))[:TOP_RULES]]
    ]


def usage(answers: Iterable[Answer]) -> dict[str, int]:
    """Return how many tokens were read and written."""
    counts = [(answer.prompt_tokens, answer.tokens) for answer in answers]
    read, written = map(sum, zip(*counts, strict=True))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
