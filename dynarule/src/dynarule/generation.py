"""Answer questions with rules: batched generation, and a trace of what was read at which step."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from .adapter import RuleAdapter
from .bank.bank import RuleBank
from .bank.sources import listed
from .base_model import padded
from .decoding import RunningText, check_decoding, growing_cache, setting
from .memory.hooks import attach
from .memory.refusal import Refusals, refusal
from .memory.serving import Retrieval, RuleMemory
from .search_token import SearchWriter, search_id
from .tokenizer import Prompt, control_tokens, encode_prompt

__all__ = ["Generation", "generate", "rule_memory"]


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
    support : float or None
        The least of its searches at the confidence layer, see `Retrieval.support`; None without any.
    refused : bool
        Whether it says that no rule says so.
    """

    text: str
    trace: tuple[Retrieval, ...]
    token_ids: tuple[int, ...] = field(repr=False)
    support: float | None = field(default=None, repr=False)
    refused: bool = field(default=False, repr=False)


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
    min_support: float | None = None,
    on_answer: Callable[[Generation], None] | None = None,
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
        As in transformers; greedy by default. An answer ends where the model has no more places.
    batch_size : int
        Prompts per forward, padded on the left; does not change greedy answers.
    max_searches : int
        After so many ``<search>`` in one answer the token cannot be emitted any more, which bounds the cost. An adapter
        that was trained with it behind ``[Step 2]`` and later headers has it written there.
    keep_search : bool
        Leave ``<search>`` in the text.
    min_support : float or None
        An answer ends, and says that no rule says so, where a search's `Retrieval.support` is less;
        0: never. None: as the adapter's configuration says.
    on_answer : callable or None
        Called with each answer when its batch is done, in order.
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
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be {least} or more, a whole number, got {value!r}")
    if not isinstance(do_sample, bool):  # a text such as "no" would sample
        raise ValueError(f"do_sample must be True or False, got {do_sample!r:.60}")
    if min_support is not None and not (isinstance(min_support, Real) and 0 <= min_support <= 1):
        raise ValueError(f"min_support must be from 0 to 1, got {min_support!r}")
    for name, instead in _OURS.items():
        if options.get(name) is not None:
            raise ValueError(f"{name} would not count beside the settings of this function; give {instead}")
    check_decoding(model, options, num_return_sequences=1)
    if isinstance(memory, RuleBank):
        memory = rule_memory(model, tokenizer, memory)
    if not isinstance(memory, RuleMemory):
        raise ValueError(f"rules are read from a RuleBank or a RuleMemory, got a {type(memory).__name__}")
    search = memory.search_token_id
    stops = options.pop("stop_strings", None) or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list | tuple) or not all(isinstance(word, str) and word for word in stops):
        raise ValueError(f"stop_strings must be texts that are not empty, got {stops!r:.80}")
    names = "logits_processor", "stopping_criteria"
    processors, criteria = (list(options.pop(name, None) or []) for name in names)
    config = memory.config
    own, layer = config.search_id == search, config.confidence_layer
    behind, cues = own and config.search_place == "behind", config.search_cues if own else ()
    floor = config.min_support if min_support is None else min_support
    encoded = [encode_prompt(tokenizer, prompt, i) for i, prompt in enumerate(listed("prompts", prompts))]
    longest = getattr(model.config, "max_position_embeddings", None)
    for i, ids in enumerate(encoded):
        if longest and len(ids) > longest:
            raise ValueError(f"prompt {i} has {len(ids):,} tokens, the model reads {longest:,} at most")
        if max(ids) >= model.config.vocab_size:  # type: ignore[union-attr, operator]
            raise ValueError(
                f"prompt {i} has a token of id {max(ids):,}, the model knows {model.config.vocab_size:,}; load the "  # type: ignore[union-attr]
                "tokenizer that belongs to the model"
            )
    pad, ends = pad_id(model, tokenizer), _end_ids(model, tokenizer, options)
    caches = [setting(model, options, name) for name in ("past_key_values", "cache_implementation")]
    hidden = control_tokens(tokenizer).keys() - ({search} if keep_search else set())
    answers: list[Generation] = []
    with attach(model, memory):
        for start in range(0, len(encoded), batch_size):
            batch = encoded[start : start + batch_size]
            ids_BT, mask_BT = (part.to(model.device) for part in padded(batch, pad, "left"))  # type: ignore[arg-type]
            length = ids_BT.shape[1]
            rooms = [(longest or sys.maxsize) - len(ids) or 1 for ids in batch]  # places that the model has
            writers = []
            if search is not None:
                writers = [SearchWriter(search, tokenizer, length, max_searches, behind, cues)]
            cache = growing_cache(model) if caches == [None, None] else None
            refusals = Refusals(memory, length, floor) if floor else None
            endings = [_ends_at(stops, [RunningText(tokenizer, hidden) for _ in batch])] if stops else []
            out = model.generate(  # type: ignore[operator]
                ids_BT,
                attention_mask=mask_BT,
                max_new_tokens=min(max_new_tokens, max(rooms)),
                do_sample=do_sample,
                pad_token_id=pad,
                tokenizer=tokenizer,  # for stop_strings of its generation_config
                logits_processor=[_finite, *processors, *writers],
                stopping_criteria=[*criteria, *endings, *([refusals] if refusals else [])],
                **({} if cache is None else {"past_key_values": cache}),
                **(_GREEDY if not do_sample else {}) | options | {"eos_token_id": ends or None},
            )
            sequences = out if isinstance(out, Tensor) else out.sequences
            for row, new in enumerate(sequences[:, length:].tolist()):
                trace = tuple(replace(r, row=start + row) for r in memory.trace if r.row == row)
                support = min((r.support for r in trace if r.layer == layer), default=None)
                tokens = _until_end(new[: rooms[row]], ends, tokenizer.pad_token_id)
                refused = refusals.at.get(row) if refusals else None
                if refused is not None:
                    tokens = tokens[: refused[0]]
                kept = [token for token in tokens if token not in hidden]
                text = tokenizer.decode(kept, clean_up_tokenization_spaces=False)
                if refused is not None:  # the steps before, line by line, without the header of the next
                    text = text[: text.rfind("\n") + 1] + refusal(refused[1])
                answers.append(Generation(text, trace, tuple(tokens), support, refused is not None))
                if on_answer is not None:
                    on_answer(answers[-1])
    return answers


# Options of ``model.generate`` that are made here, and what to give in their place.
_OURS = dict.fromkeys(("input_ids", "inputs", "attention_mask"), "prompts")
_OURS |= {"max_length": "max_new_tokens", "generation_config": "its settings by name"}
_OURS |= {"pad_token_id": "a tokenizer that has it"}
# Sampling settings in a model's generation_config would only bring a warning.
_GREEDY = {"temperature": None, "top_p": None, "top_k": None}


def _finite(input_ids: Tensor, scores: Tensor) -> Tensor:
    """Refuse to write noise (a logits processor): of NaN any token could be the most likely one."""
    if bool(scores.isnan().any()):
        raise ValueError(
            f"the model computes NaN in {str(scores.dtype).removeprefix('torch.')}: its weights are damaged, or too "
            "large for its dtype; copy it again, or load it in bf16 or fp32"
        )
    return scores


def _ends_at(words: Sequence[str], texts: Sequence[RunningText]) -> Any:
    """Return a stopping criterion: the text of a row's new tokens holds one of some words, whatever the tokenizer."""

    def ended(input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        said = [text.add(new) for text, new in zip(texts, input_ids[:, -1].tolist(), strict=True)]
        return torch.tensor([any(word in text for word in words) for text in said], device=input_ids.device)

    return ended


def rule_memory(model: nn.Module, tokenizer: Any, bank: RuleBank) -> RuleMemory:
    """Return a memory that searches if the adapter names layers that ``<search>`` replaces."""
    adapter = RuleAdapter(model)
    config, row = adapter.config, None
    if config.updated_layers(adapter.num_layers):
        row = search_id(tokenizer, config.search_token, config.search_id)
    return config.memory_class()(adapter, bank, row, tokenizer=tokenizer)


def pad_id(model: nn.Module, tokenizer: Any) -> int:
    """A token to fill rows with; which one makes no difference, since it is masked."""
    for value in (tokenizer.pad_token_id, tokenizer.eos_token_id, model.generation_config.eos_token_id):  # type: ignore[union-attr]
        if value is not None:
            return value[0] if isinstance(value, list) else int(value)  # type: ignore[arg-type]
    return 0


def _end_ids(model: nn.Module, tokenizer: Any, options: dict[str, Any]) -> list[int]:
    """Where an answer ends: as asked, as the model's generation_config says, or at the tokenizer's end of sequence."""
    end = setting(model, options, "eos_token_id")
    end = tokenizer.eos_token_id if end is None else end
    return list(end) if isinstance(end, list | tuple) else [] if end is None else [end]


def _until_end(tokens: list[int], ends: list[int], pad: int | None) -> list[int]:
    """Cut a row after its end, and before what fills it up when a stopping criterion ended it."""
    for i, token in enumerate(tokens):
        if token in ends:
            return tokens[: i + 1]
        if token == pad:
            return tokens[:i]
    return tokens
