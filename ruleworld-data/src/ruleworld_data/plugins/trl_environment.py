"""RuleWorld in TRL: `dataset` and `reward` for `GRPOTrainer`, `SearchEnvironment` for ``environment_factory``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from datasets import Dataset

from ruleworld_data.environments import EnvConfig, Episode, instance, score


def dataset(config: EnvConfig, indexes: Iterable[int], chat: bool = True) -> Dataset:
    """Return instances as TRL reads them.

    Parameters
    ----------
    config : EnvConfig
    indexes : iterable of int
        Which instances, e.g. ``range(1000)``.
    chat : bool
        Prompts are conversations of one message; else plain text.

    Returns
    -------
    datasets.Dataset
        Columns ``prompt``, ``completion`` (the golden answer, for supervised training), ``metadata`` (JSON).
    """

    def turn(role: str, text: str) -> Any:
        return [{"role": role, "content": text}] if chat else text

    return Dataset.from_list(
        [
            {
                "prompt": turn("user", one.prompt),
                "completion": turn("assistant", one.answer),
                "metadata": json.dumps(one.metadata),
            }
            for one in (instance(config, index) for index in indexes)
        ]
    )


def reward(
    completions: Sequence[Any],
    metadata: Sequence[str],
    environments: Sequence[SearchEnvironment] | None = None,
    **_: Any,
) -> list[float]:
    """Score completions, texts or conversations; with `SearchEnvironment` its searches count.

    Of a conversation the last message is the answer.
    """
    searches = [one.episode.searches for one in environments or []] or [0] * len(metadata)
    rows = zip(completions, metadata, searches, strict=True)
    return [score(_text(completion), record, count).reward for completion, record, count in rows]


def _text(completion: Any) -> str:
    if isinstance(completion, str) or not completion:
        return completion or ""
    last = completion[-1]
    content = (last.get("content") or "") if last.get("role") == "assistant" else ""
    # Content may be a list of parts, as processors of images ask for.
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


class SearchEnvironment:
    """One rollout with the tool ``search``; give the class itself as ``environment_factory``."""

    def reset(self, metadata: str, **_: Any) -> None:
        """Begin an instance; TRL gives the row's columns."""
        self.episode = Episode(metadata)

    def search(self, query: str) -> str:
        """
        Look up the rules that share most words with a query.

        Args:
            query: A few words, such as a kind of animal, a state, a place, or a thing that is counted.

        Returns
        -------
            The rules found, one a line.
        """
        return self.episode.search(query)
