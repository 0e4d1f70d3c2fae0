"""Any OpenAI-compatible endpoint: questions side by side, tokens counted, replies kept on disk.

What decides how patiently it is asked is no field of the run, so it comes from the environment: ``RWBENCH_CONCURRENCY``
(questions at once), ``RWBENCH_TIMEOUT`` (seconds) and ``RWBENCH_TRIES``.
"""

import importlib.util
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Self

from ruleworld_data.prompts import Prompt, Template, answer_template, template_named

from ..cache import cache_root
from ..registry import NotNegative, check_same
from ..spec import DATA_VERSION
from . import Backend, Completion, Decoding, GoneError, component, cut
from .address import check_endpoint, trust_endpoint
from .chat import ChatClient

CONCURRENCY = "RWBENCH_CONCURRENCY"
TIMEOUT = "RWBENCH_TIMEOUT"
TRIES = "RWBENCH_TRIES"
FAILED_IN_A_ROW = 10
"""Questions in a row without an answer for any reason, each tried `TRIES` times, after which a run stops."""
_failing: Counter[tuple[str, str]] = Counter()
"""Such questions by URL and model, over all batches of this process."""


@component
class Endpoint(Backend):
    """A model behind ``/chat/completions``. The key is read from ``RULEWORLD_API_KEY``."""

    name = "endpoint"
    whole_batches = False

    model: str = ""  # its name there
    url: str = ""  # base URL, such as http://localhost:8000/v1
    prompt: str = ""  # id of the prompt template, from `of`
    temperature: NotNegative = 0.0  # sent as it is

    def __post_init__(self) -> None:
        check_endpoint(self.url, self.model)

    @classmethod
    def of(cls, model: str, url: str, version: str = DATA_VERSION, **changes: Any) -> Self:
        """Return the backend of a model that the user names, so the key may go there, with the id of its template."""
        endpoint = cls(model, url, answer_template(version).id, **changes)
        trust_endpoint(url)
        return endpoint

    @property
    def template(self) -> Template:
        """The template of this package that the spec names."""
        return template_named(self.prompt)

    @property
    def label(self) -> str:
        """Name in reports."""
        return self.model

    @property
    def batch(self) -> int:
        """Prompts at once: enough that a slow one does not hold up the others."""
        return 4 * _concurrency()

    def missing(self) -> str | None:
        """What to install, if anything."""
        return None if importlib.util.find_spec("openai") else 'pip install "rwbench[endpoint]"'

    def prepare(self) -> None:
        """Check that the prompt template is the one that the spec names."""
        check_same("prompt template", self.prompt, self.template.id)

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yield the answers in order; what comes early is kept on disk meanwhile."""
        try:
            patience = _number(TIMEOUT, 120.0), max(1, int(_number(TRIES, 5)))
            client = ChatClient(self.url, self.model, cache_root() / "replies", *patience)
        except ValueError as error:  # of the environment: the same for every question
            raise GoneError(str(error)) from None
        # the client ends first: what is asked then fails at once, and what waits in the threads is not asked
        with ThreadPoolExecutor(_concurrency()) as threads, closing(client):
            for completion in threads.map(partial(self._complete, client, decoding), prompts):
                self._count_failures(completion)
                yield completion

    def _count_failures(self, completion: Completion) -> None:
        """Count failures in a row; a GoneError when they are too many for going on to make sense."""
        server = (self.url, self.model)
        if completion.error is None:
            if not completion.cached:  # a reply from disk says nothing about the server
                _failing.pop(server, None)
            return
        _failing[server] += 1
        if _failing[server] >= FAILED_IN_A_ROW:
            del _failing[server]
            raise GoneError(
                f"{self.url} failed on {FAILED_IN_A_ROW} questions in a row (the last: {completion.error}); wait until "
                f"it answers again; for a slow one set {TIMEOUT} to more seconds, or {CONCURRENCY} to fewer at once"
            )

    def _complete(self, client: ChatClient, decoding: Decoding, prompt: Prompt) -> Completion:
        """Return the completion of a prompt, cut off at a stop string."""
        begun = [{"role": "assistant", "content": prompt.begun}] if prompt.begun else []
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": prompt.text}, *begun],
            "temperature": self.temperature,
            "max_tokens": decoding.max_new_tokens,
        }
        if decoding.stop:
            body["stop"] = list(decoding.stop)
        done = client.complete(body)
        return replace(done, text=cut(done.text, decoding.stop))


def _concurrency() -> int:
    return max(1, int(_number(CONCURRENCY, 8)))


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise GoneError(f"the environment variable {variable} must be a number of 0 or more, got {text!r}")
    return value
