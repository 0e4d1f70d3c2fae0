"""Prompting: the rules stand in the prompt, all of them, the gold ones only, or none."""

from typing import Literal

import numpy as np

from ..run.data import Question
from ..run.pools import Pool
from . import component
from .conversation import Conversation, ModelMethod, UsageCounter, final_answer

LABELS = {"pool": "Prompting", "gold": "Gold rules only (ceiling)", "none": "No rules (floor)"}
KEYS = {"pool": "prompting", "gold": "gold-only", "none": "no-rules"}


@component
class Prompting(ModelMethod):
    """Ask once, with rules before the question."""

    name = "prompting"

    # The whole pool (the paper's full-context prompting), the question's gold rules by id (a ceiling: nothing is left
    # to find), or no rules (a floor: what the model answers by itself).
    rules: Literal["pool", "gold", "none"] = "pool"

    @property
    def key(self) -> str:
        """See `Component.key`."""
        return KEYS[self.rules]

    @property
    def label(self) -> str:
        """Name in reports."""
        return f"{LABELS[self.rules]}, {self.model.label}"

    def converse(self, pool: Pool, question: Question, top_k: int, usage: UsageCounter) -> Conversation:
        """Ask once."""
        template, representation = self.model.template, pool.representation
        if self.rules == "none" and template.has("answer_without_rules"):
            prompt = template.render("answer_without_rules", representation, question.asked)
        else:
            ids = {"pool": pool.ids, "gold": sorted(question.gold), "none": []}[self.rules]
            texts = pool.rules.texts(np.array(ids, dtype=np.int32), representation)
            prompt = template.render("answer", representation, question.asked, texts)
        return (yield from final_answer(self, question, prompt))
