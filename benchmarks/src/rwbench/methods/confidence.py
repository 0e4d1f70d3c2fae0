"""Which layer knows best: the entropy of rule attention in every layer, by question (the paper's figures 3 and 8)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from . import Batch, Output, component
from .memory import Memory


@component
class Confidence(Memory):
    """Measure, without answering: ``rule_entropy`` and ``rule_layers`` of each question, in ``measures``.

    The layer with the lowest mean is the confidence layer. The adapter is DynaRule's.
    """

    name = "confidence"
    title = "Entropy of rule attention"
    adapter_name = "dynarule"

    def answer(self, batch: Batch, top_k: int) -> Iterator[Output]:
        """Yield the measures."""
        from dynarule import measure_confidence, question_prompts

        reader = self.reader(batch[0][0].representation)
        for pool, question in batch:
            bank = reader.bank(pool.rules, pool.ids, pool.representation)
            prompts = question_prompts(reader.tokenizer, [question.text])
            with warnings.catch_warnings():  # that one question is few: the mean is taken over all samples
                warnings.simplefilter("ignore", UserWarning)
                curve = measure_confidence(reader.model, reader.tokenizer, bank, prompts)
            measures = {
                "rule_entropy": [round(nats, 6) for nats in curve.mean],
                "rule_layers": list(curve.layers),
            }
            yield Output(question.id, measures=measures)
