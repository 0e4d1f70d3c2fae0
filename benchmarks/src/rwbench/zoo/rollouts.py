"""Episodes in one pass of generation: where a model asks for rules in a line of its own, they are its next tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from ruleworld_data.environments import Episode
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList


class Rollout(NamedTuple):
    """What was written in one episode.

    Attributes
    ----------
    prompt, ids : list of int
        Tokens of the prompt, and all that follow up to the end.
    own : list of int
        1 where the model wrote the token, 0 where the environment did.
    text : str
        What the tokens that follow say.
    searches : int
    """

    prompt: list[int]
    ids: list[int]
    own: list[int]
    text: str
    searches: int


class Lookups(LogitsProcessor):
    """Answers requests while a batch is written: the rules found are forced, token by token, and a blank line.

    One request more than the environment answers ends the episode.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    episodes : sequence of Episode
        One for each row of the batch.
    mark : str
        What a line that asks for rules begins with.
    """

    def __init__(self, tokenizer: Any, episodes: Sequence[Episode], mark: str) -> None:
        self.tokenizer, self.episodes, self.mark = tokenizer, episodes, mark
        self.lines: list[list[int]] = [[] for _ in episodes]
        self.waiting: list[list[int]] = [[] for _ in episodes]
        self.own: list[list[int]] = [[] for _ in episodes]
        (self.line_end,) = self._ids("\n")

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Force what the environment says, shape (rows, vocabulary)."""
        for row, last in enumerate(input_ids[:, -1].tolist()):
            own, line, waiting = self.own[row], self.lines[row], self.waiting[row]
            if own and own[-1]:
                line.append(last)
                if last == self.line_end:
                    waiting += self._answer(self.episodes[row], self.tokenizer.decode(line))
                    line.clear()
            own.append(0 if waiting else 1)
            if waiting:
                scores[row] = float("-inf")
                scores[row, waiting.pop(0)] = 0.0
        return scores

    def _answer(self, episode: Episode, line: str) -> list[int]:
        """Return the tokens that follow a line: none, unless it is a request."""
        if not line.startswith(self.mark):
            return []
        if episode.searches >= episode.config.max_searches:
            return [self.tokenizer.eos_token_id]
        return self._ids(episode.search(line.removeprefix(self.mark).strip()) + "\n\n")

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class RolloutFunction:
    """TRL's ``rollout_func``: what `rollouts` samples, with the tokens of the environment kept out of the loss.

    Parameters
    ----------
    records : mapping of str to str
        Prompt -> the record of its instance; TRL hands over prompts alone.
    mark, tokens
        As of `rollouts`.

    Attributes
    ----------
    searches : list of int
        Of every rollout so far.
    """

    def __init__(self, records: Mapping[str, str], mark: str, tokens: int) -> None:
        self.records, self.mark, self.tokens = records, mark, tokens
        self.searches: list[int] = []

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Sample one rollout for each prompt."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        records = [self.records[prompt] for prompt in prompts]
        made = rollouts(
            model, trainer.processing_class, prompts, records, self.mark, self.tokens, sample=True
        )
        prompt_ids, ids, own, _, searches = (list(column) for column in zip(*made, strict=True))
        self.searches += searches
        ours = {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": None}
        return ours | {"env_mask": own, "searches": searches}


def rollouts(
    model: Any, tokenizer: Any, prompts: Sequence[str], metadata: Sequence[str], mark: str, tokens: int, sample: bool
) -> list[Rollout]:  # fmt: skip
    """Let a model work on instances until it ends its answers.

    Parameters
    ----------
    model, tokenizer
        As transformers loads them; the tokenizer pads on the left.
    prompts, metadata : sequence of str
        One a rollout, and the records of the instances.
    mark : str
        What a line that asks for rules begins with; "" if none does.
    tokens : int
        Most tokens after the prompt, of the model and of the rules that it finds.
    sample : bool
        Draw at temperature 1; else take the likeliest token.
    """
    episodes = [Episode(record) for record in metadata]
    asked = tokenizer(list(prompts), return_tensors="pt", padding=True, return_token_type_ids=False)
    lookups = Lookups(tokenizer, episodes, mark) if mark else None
    start, end = asked["input_ids"].shape[1], tokenizer.eos_token_id
    drawn = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {}
    with torch.no_grad():
        written = model.generate(
            **asked,
            do_sample=sample,
            **drawn,
            max_new_tokens=tokens,
            logits_processor=LogitsProcessorList([lookups] if lookups else []),
            cache_implementation="static",  # one that grows is copied at each token: half of the time
        )
    found = []
    for row, ids in enumerate(written[:, start:].tolist()):
        ids = ids[: ids.index(end) + 1] if end in ids else ids
        prompt = asked["input_ids"][row][asked["attention_mask"][row] == 1].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True)
        own = lookups.own[row][: len(ids)] if lookups else [1] * len(ids)
        found.append(Rollout(prompt, ids, own, text, episodes[row].searches))
    return found
