"""Keep a model that was taught to ask for rules from doing so where nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def no_requests(request: str, tokenizer: Any) -> list[NoRequests]:
    """Return the logits processors that keep a model from beginning a line like a request; none without one."""
    return [NoRequests(request, tokenizer)] if request else []


class NoRequests:
    """Forbid a request's first token where a line begins (a logits processor).

    A model that asks and is not answered repeats itself to the end of its answer; forbidden to, it writes what comes
    second, which is a step. Greedy answers that do not ask stay as they are.

    Parameters
    ----------
    request : str
        How such a line begins: `Template.request`.
    tokenizer : PreTrainedTokenizerBase
        The model's own.
    """

    def __init__(self, request: str, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.first = tokenizer(request, add_special_tokens=False)["input_ids"][0]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B, V) of what comes after the tokens (B, T), prompts included."""
        before = self.tokenizer.batch_decode(input_ids[:, -1:], clean_up_tokenization_spaces=False)
        rows = [row for row, text in enumerate(before) if text.endswith("\n")]
        scores[rows, self.first] = -float("inf")
        return scores
