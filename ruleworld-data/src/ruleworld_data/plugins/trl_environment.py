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
    rows = []
    for index in indexes:
        made = instance(config, index)
        asked: Any = [{"role": "user", "content": made.prompt}] if chat else made.prompt
        answer: Any = [{"role": "assistant", "content": made.answer}] if chat else made.answer
        rows.append({"prompt": asked, "completion": answer, "metadata": json.dumps(made.metadata)})
    return Dataset.from_list(rows)


def reward(
    completions: Sequence[Any],
    metadata: Sequence[str],
    environments: Sequence[SearchEnvironment] | None = None,
    **_: Any,
) -> list[float]:
    """Score completions, texts or conversations; with `SearchEnvironment` its searches count.

    Of a conversation the last message is the answer.
    """
    searches = [each.episode.searches for each in environments or []] or [0] * len(metadata)
    rows = zip(completions, metadata, searches, strict=True)
    return [score(_text(done), record, made).reward for done, record, made in rows]


def _text(completion: Any) -> str:
    if isinstance(completion, str) or not completion:
        return completion or ""
    last = completion[-1]
    return (last.get("content") or "") if last.get("role") == "assistant" else ""


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
