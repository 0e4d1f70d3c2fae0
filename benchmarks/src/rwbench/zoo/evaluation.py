"""The curve of `rwbench.zoo.grpo`: what a model earns on held-out instances, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ruleworld_data.environments import score

from .rollouts import rollouts

BATCH = 64
Row = dict[str, Any]


def evaluate(learner: Any, tokenizer: Any, questions: Sequence[Row], mark: str, tokens: int) -> Row:
    """Answer instances greedily, and where rules are looked up sampled too; 95 % intervals are bootstraps over them.

    Parameters
    ----------
    learner, tokenizer, mark, tokens
        As of `rwbench.zoo.rollouts.rollouts`.
    questions : sequence of dict
        With ``prompt`` and ``metadata``.

    Returns
    -------
    dict
        Means: ``reward`` with its interval ``low`` to ``high``, ``strict``, ``proved``; with a mark ``searches`` too,
        with ``fewest`` to ``most``, and the same of samples as ``sampled``.
    """
    was = learner.training
    learner.eval()
    measured: Row = {}
    for sample in (False, True) if mark else (False,):
        found = []
        for first in range(0, len(questions), BATCH):
            batch = questions[first : first + BATCH]
            asked, records = [row["prompt"] for row in batch], [row["metadata"] for row in batch]
            made = rollouts(learner, tokenizer, asked, records, mark, tokens, sample)
            for each, record in zip(made, records, strict=True):
                got = score(each.text, record, each.searches)
                found.append((got.reward, got.strict, got.proved, each.searches))
        row = _summary(np.array(found))
        measured |= {"sampled": row} if sample else row
    learner.train(was)
    return measured


def _summary(values: NDArray[np.floating]) -> Row:
    """Return means of columns; of the reward and the searches with intervals."""
    draws = np.random.default_rng(0).integers(len(values), size=(2_000, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975], axis=0).tolist()
    mean = values.mean(axis=0).tolist()
    row = {"reward": mean[0], "low": low[0], "high": high[0], "strict": mean[1], "proved": mean[2]}
    if values[:, 3].any():
        row |= {"searches": mean[3], "fewest": low[3], "most": high[3]}
    return row
