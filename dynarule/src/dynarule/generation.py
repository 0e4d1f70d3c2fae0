"""Answer questions with rules: batched generation, and a trace of what was read at which step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from .adapter import RuleAdapter
from .bank.bank import RuleBank
from .bank.sources import HALF_PAIR, listed
from .decoding import check_decoding, growing_cache
from .memory.hooks import attach
from .memory.serving import Retrieval, RuleMemory
from .search_token import search_id

__all__ = ["Generation", "Prompt", "encode_prompt", "generate", "question_prompts", "rule_memory"]

Prompt = str | Sequence[Mapping[str, Any]]
"""Text as it is, or chat messages for the tokenizer's template."""


@dataclass(frozen=True)
class Generation:
    """One answer.

    Attributes
    ----------
    text : str
        The answer, without special tokens.
    trace : tuple of Retrieval
        The selections of rules that led to it, one per step and updated layer; ``row`` counts prompts. Empty for
        settings without a confidence layer.
    token_ids : tuple of int
        The generated tokens, up to the end.
    """

    text: str
    trace: tuple[Retrieval, ...]
    token_ids: tuple[int, ...] = field(repr=False)


@torch.no_grad()
def generate(
    model: nn.Module,
    tokenizer: Any,
    memory: RuleMemory | RuleBank,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 256,
    do_sample: bool = False,
    batch_size: int = 8,
    max_searches: int = 16,
    keep_search: bool = False,
    stop_loops: bool = True,
    **options: Any,
) -> list[Generation]:
    """Answer prompts, reading rules at prefill and at every ``<search>``.

    Parameters
    ----------
    model : PreTrainedModel
        With its adapter (`RuleAdapter`).
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer, with ``<search>``.
    memory : RuleMemory or RuleBank
        What to read: the rules of a bank through the model's own adapter, or a memory made of them.
    prompts : sequence of str or of chat messages
        Messages go through the tokenizer's chat template.
    max_new_tokens, do_sample
        As in transformers; greedy by default.
    batch_size : int
        Prompts per forward, padded on the left; does not change greedy answers.
    max_searches : int
        After so many ``<search>`` in one answer the token cannot be emitted any more, which bounds the cost.
    keep_search : bool
        Leave ``<search>`` in the text.
    stop_loops : bool
        End an answer that says the same over and over, see `repeats`.
    **options
        Other options of ``model.generate``: temperature, top_p, stopping_criteria, ...

    Returns
    -------
    list of Generation
        One per prompt, in order.

    Raises
    ------
    ValueError
        For beam search and other decoding that does not run forward once per token, a prompt without words or longer
        than the model reads, or a tokenizer without ``<search>``.
    """
    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("max_new_tokens", max_new_tokens, 1),
        ("max_searches", max_searches, 0),
    ):
        if value < least:
            raise ValueError(f"{name} must be {least} or more, got {value}")
    check_decoding(model, options, num_return_sequences=1)
    if isinstance(memory, RuleBank):
        memory = rule_memory(model, tokenizer, memory)
    search = memory.search_token_id
    processors, criteria = (
        list(options.pop(name, None) or []) for name in ("logits_processor", "stopping_criteria")
    )
    encoded = [encode_prompt(tokenizer, prompt, i) for i, prompt in enumerate(listed("prompts", prompts))]
    most = getattr(model.config, "max_position_embeddings", None)
    long = next((i for i, ids in enumerate(encoded) if most and len(ids) > most), None)
    if long is not None:
        raise ValueError(f"prompt {long} has {len(encoded[long]):,} tokens, the model reads {most:,} at most")
    pad, ends = pad_id(model, tokenizer), _end_ids(model, tokenizer, options)
    named = _names_a_cache(model, options)
    answers: list[Generation] = []
    with attach(model, memory):
        for start in range(0, len(encoded), batch_size):
            batch = encoded[start : start + batch_size]
            ids_BT, mask_BT = left_pad(batch, pad, model.device)  # type: ignore[arg-type]
            length = ids_BT.shape[1]
            cap = [] if search is None else [_SearchCap(search, length, max_searches)]
            stop = [*criteria, *([StopLoops(length)] if stop_loops else [])]
            cache = None if named else growing_cache(model)
            out = model.generate(  # type: ignore[operator]
                ids_BT,
                attention_mask=mask_BT,
                max_new_tokens=max_new_tokens,
                do_sample=do_sample,
                pad_token_id=pad,
                logits_processor=[*processors, *cap],
                stopping_criteria=stop,
                **({} if cache is None else {"past_key_values": cache}),
                **(_GREEDY if not do_sample else {}) | options | {"eos_token_id": ends or None},
            )
            sequences = out if isinstance(out, Tensor) else out.sequences
            for row, new in enumerate(sequences[:, length:].tolist()):
                tokens = _until_end(new, ends, tokenizer.pad_token_id)
                trace = tuple(replace(r, row=start + row) for r in memory.trace if r.row == row)
                text = _decode(tokenizer, tokens, search if keep_search else None)
                answers.append(Generation(text, trace, tuple(tokens)))
    return answers


# Sampling settings in a model's generation_config would only bring a warning.
_GREEDY = {"temperature": None, "top_p": None, "top_k": None}


class _SearchCap:
    """Forbid ``<search>`` in rows that have used up their searches (a logits processor)."""

    def __init__(self, search: int, prompt_length: int, most: int) -> None:
        self.search, self.prompt_length, self.most = search, prompt_length, most

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        used_B = (input_ids[:, self.prompt_length :] == self.search).sum(-1)
        scores[:, self.search] = scores[:, self.search].masked_fill(used_B >= self.most, -torch.inf)
        return scores


LOOP_TOKENS, LOOP_TIMES, LOOP_LONGEST = 48, 4, 64
"""Tokens, and repetitions, of a loop at least; tokens of what is repeated at most."""


def repeats(tokens: Tensor) -> bool:
    """Return whether an answer (T,) ends in a loop: the same 64 tokens or fewer 4 times or more, 48 tokens or more."""
    for period in range(1, LOOP_LONGEST + 1):
        span = max(LOOP_TOKENS, LOOP_TIMES * period)
        if len(tokens) < span:
            return False
        if torch.equal(tokens[-span:-period], tokens[period - span :]):
            return True
    return False


class StopLoops:
    """End rows that repeat themselves (a stopping criterion); looks at every eighth token."""

    def __init__(self, prompt_length: int) -> None:
        self.prompt_length = prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        new_BT = input_ids[:, self.prompt_length :]
        look = new_BT.shape[1] % 8 == 0 and new_BT.shape[1] >= LOOP_TOKENS
        return torch.tensor([look and repeats(row) for row in new_BT], device=input_ids.device)


def rule_memory(model: nn.Module, tokenizer: Any, bank: RuleBank) -> RuleMemory:
    """Return a memory that searches if the adapter names layers that ``<search>`` replaces."""
    adapter = RuleAdapter(model)
    config, row = adapter.config, None
    if config.updated_layers(adapter.num_layers):
        row = search_id(tokenizer, config.search_token, config.search_id)
    return config.memory_class().open(adapter, bank, tokenizer, row)


def question_prompts(tokenizer: Any, questions: Sequence[str], opening: str = "") -> list[Prompt]:
    """Return questions as they are asked, in training too.

    Chat messages where the tokenizer has a template, else a line of its own for each.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Says whether there is a chat template.
    questions : sequence of str
        None of them empty.
    opening : str
        What stands before a line of its own: an adapter's ``config.question_opening``.
    """
    questions = listed("questions", questions)
    blank = next((i for i, question in enumerate(questions) if not question.strip()), None)
    if blank is not None:
        raise ValueError(f"question {blank} is empty, got {questions[blank]!r}")
    broken = next((i for i, question in enumerate(questions) if HALF_PAIR.search(question)), None)
    if broken is not None:
        raise ValueError(
            f"question {broken} holds half a surrogate pair, got {questions[broken]!r}; type UTF-8"
        )
    if getattr(tokenizer, "chat_template", None):
        return [[{"role": "user", "content": question}] for question in questions]
    return [f"{opening}{question}\n" for question in questions]


def encode_prompt(tokenizer: Any, prompt: Prompt, index: int = 0) -> list[int]:
    """Return a prompt's tokens; messages end where the answer begins."""
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    else:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"prompt {index} is a list of messages, but the tokenizer has no chat template; pass text"
            )
        try:
            written = tokenizer.apply_chat_template(
                list(prompt), add_generation_prompt=True, return_dict=True
            )
        except Exception as error:  # a template is a program: it may raise anything
            raise ValueError(
                f"the tokenizer's chat template cannot write prompt {index} ({type(error).__name__}: {error}); mend "
                "chat_template.jinja in the folder of the adapter or model, or remove it"
            ) from None
        ids = written["input_ids"]
    if not ids or (isinstance(prompt, str) and not prompt.strip()):
        raise ValueError(f"prompt {index} has no tokens, or only blanks: {prompt!r}")
    return ids


def pad_id(model: nn.Module, tokenizer: Any) -> int:
    """A token to fill rows with; which one makes no difference, since it is masked."""
    for value in (tokenizer.pad_token_id, tokenizer.eos_token_id, model.generation_config.eos_token_id):  # type: ignore[union-attr]
        if value is not None:
            return value[0] if isinstance(value, list) else int(value)  # type: ignore[arg-type]
    return 0


def left_pad(rows: list[list[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids and the attention mask, both (B, T)."""
    longest = max(map(len, rows))
    ids = [[pad] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _end_ids(model: nn.Module, tokenizer: Any, options: dict[str, Any]) -> list[int]:
    """Where an answer ends: as asked, as the model's generation_config says, or at the tokenizer's end of sequence."""
    defaults: Any = options.get("generation_config") or model.generation_config
    for end in (options.get("eos_token_id"), defaults.eos_token_id, tokenizer.eos_token_id):
        if end is not None:
            return list(end) if isinstance(end, list | tuple) else [end]
    return []


def _names_a_cache(model: nn.Module, options: dict[str, Any]) -> bool:
    """Whether a call, its generation_config or the model's says in what keys and values are kept."""
    sources: Any = [options.get("generation_config"), model.generation_config]
    asked = [options.get("past_key_values"), options.get("cache_implementation")]
    asked += [getattr(source, "cache_implementation", None) for source in sources]
    return any(each is not None for each in asked)


def _until_end(tokens: list[int], ends: list[int], pad: int | None) -> list[int]:
    """Cut a row after its end, and before what fills it up when a stopping criterion ended it."""
    for i, token in enumerate(tokens):
        if token in ends:
            return tokens[: i + 1]
        if token == pad:
            return tokens[:i]
    return tokens


def _decode(tokenizer: Any, tokens: list[int], keep: int | None) -> str:
    special = {row for row, added in tokenizer.added_tokens_decoder.items() if added.special}
    special = (special | set(tokenizer.all_special_ids)) - {keep}
    return tokenizer.decode([t for t in tokens if t not in special], clean_up_tokenization_spaces=False)
