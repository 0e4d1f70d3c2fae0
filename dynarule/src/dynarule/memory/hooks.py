"""Attach a rule memory to a model for the length of a ``with`` block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock, get_ident
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from ..attention_interface import NAMES, READ_WITH, is_attached, register
from ..base_model import attention_blocks
from ..decoding import single_pass
from .selection import LayerMemory

Memory = TypeVar("Memory", bound=LayerMemory)
_entering = Lock()


@contextmanager
def attach(model: nn.Module, memory: Memory) -> Iterator[Memory]:
    """Let a model read a rule memory, in ``model(...)`` and ``model.generate(...)``, inside the block.

    A hook on the decoder sees each forward's tokens, one on every attention block computes the rule query from the
    hidden states. The model's code and weights stay as they are, and leaving the block restores its attention: SDPA or
    eager, which also computes whatever reads no rules. Beam search and the like reorder rows, or read other tokens in
    between, behind the memory's back: inside the block ``model.generate`` refuses them. The model is this thread's
    alone until then, and is not copied or pickled.

    Raises
    ------
    ValueError
        If the model is of no supported family, is not the one that holds the adapter, attends by anything but SDPA or
        eager attention, or has a memory already.

    Examples
    --------
    >>> with attach(model, RuleMemory(model, bank)) as memory:  # doctest: +SKIP
    ...     model.generate(**inputs)
    ...     memory.trace
    """
    config: Any = model.config
    with _entering:  # of two threads at once, one is refused
        before: str = config._attn_implementation
        if is_attached(model):
            raise ValueError("a rule memory is attached to this model already; leave its block first")
        blocks = attention_blocks(model)
        if not memory.adapter.is_part_of(blocks):
            raise ValueError(
                f"the memory reads the adapter of another model than this {type(model).__name__}; make it with "
                "RuleMemory(model, bank)"
            )
        if before not in NAMES:
            raise ValueError(
                f"the model attends with {before!r}, and a rule memory stands in for {' or '.join(NAMES)}; call "
                'model.set_attn_implementation("sdpa") first'
            )
        register()
        model.set_attn_implementation(NAMES[before])  # type: ignore[operator]
    handles = []
    try:
        decoder = model.get_decoder()  # type: ignore[operator]
        note = _Hook(partial(_note_tokens, memory))
        handles.append(decoder.register_forward_pre_hook(note, with_kwargs=True))
        handles.append(decoder.register_forward_hook(_Hook(lambda _module, _args, out: memory.end(out))))
        for layer, block in enumerate(blocks):
            block = getattr(block, "base_layer", block)  # inside PEFT's wrapper
            handles.append(
                block.register_forward_pre_hook(
                    _Hook(partial(_read_rules, memory, layer), True), with_kwargs=True
                )
            )
        with single_pass(model), _search_rows_in_place(model):
            yield memory
    finally:
        for handle in handles:
            handle.remove()
        model.set_attn_implementation(before)  # type: ignore[operator]


class _Hook:
    """A hook for the thread that attached the memory; a block's may run in autograd's too, under checkpointing."""

    def __init__(self, run: Callable[..., Any], block: bool = False) -> None:
        self.run, self.block, self.thread = run, block, get_ident()

    def __call__(self, *args: Any) -> Any:
        if get_ident() != self.thread and not (self.block and torch.is_grad_enabled()):
            raise ValueError(
                "another thread has attached a rule memory to this model; wait until it leaves the block of `attach`, "
                "or call attach and the model in one thread"
            )
        return self.run(*args)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ValueError(
            "a model with a rule memory attached cannot be copied or pickled: the copy would read rules for ever; "
            "leave the block of `attach` first"
        )


@contextmanager
def _search_rows_in_place(model: Any) -> Iterator[None]:
    """Let PEFT's trained rows stand in the matrices themselves, inside the block.

    Beside them, every forward copies the whole matrix to put them in. Rows that are being trained stay beside.
    """
    merged = []
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):
        rows = getattr(module, "token_adapter", None)
        if rows is None or rows.merged or rows.disable_adapters:
            continue
        trained = any(row.requires_grad for row in rows.trainable_tokens_delta.values())
        if trained and torch.is_grad_enabled():
            continue
        for name in rows.active_adapters:
            place = torch.tensor(rows.token_indices[name], device=rows.base_layer.weight.device)
            new = rows.trainable_tokens_delta[name].detach().to(rows.base_layer.weight)
            rows.base_layer.weight.data.index_copy_(0, place, new)
            rows.merged_adapters.append(name)
        merged.append(rows)
    try:
        yield
    finally:
        for rows in merged:
            if rows.merged:
                rows.unmerge()


def _note_tokens(memory: LayerMemory, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    input_ids = args[0] if args else kwargs.get("input_ids")
    if input_ids is None:
        raise ValueError("a rule memory needs input_ids: <search> cannot be seen in inputs_embeds")
    if module.config._attn_implementation not in NAMES.values():
        raise ValueError(
            f"the attention was set to {module.config._attn_implementation!r}, which reads no rules; set it before "
            "the block of `attach`"
        )
    if kwargs.get("output_attentions") or module.config.output_attentions:
        raise ValueError(
            "output_attentions=True is not supported with rules, whose attention weights are not kept; leave it "
            "out: memory.trace says which rules were read"
        )
    past = kwargs.get("past_key_values")
    if getattr(past, "is_compileable", False):
        raise ValueError(
            f"a {type(past).__name__} is not supported with rules, which follow a cache that grows with the text; "
            "leave out cache_implementation, or pass a DynamicCache"
        )
    length = past.get_seq_length() if past is not None else 0
    if length and (getattr(past, READ_WITH, None), len(input_ids)) != (memory.prompts, memory.prompts[1]):
        raise ValueError(
            f"past_key_values of {len(input_ids)} rows holds no text that was read with the rules of the latest prompt "
            "of this memory; read it again inside the block of `attach`, without a cache"
        )
    memory.given = {**kwargs, "input_ids": input_ids}
    memory.begin(input_ids, kwargs.get("attention_mask"), int(length))
    inputs = memory.inputs()
    # Gradient checkpointing gives it to a layer that is computed again.
    return args[1:], inputs | {READ_WITH: memory.prompts} if torch.is_grad_enabled() else inputs


def _read_rules(
    memory: LayerMemory, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    read_with = kwargs.get(READ_WITH)
    if read_with and not (read_with == memory.prompts and torch.is_grad_enabled()):
        raise ValueError(
            "gradient checkpointing computes a text's layers again, with the rules of its forward: call backward after "
            "each forward, before the next one and the next `load`; and enable it with "
            'gradient_checkpointing_kwargs={"use_reentrant": False}, without which rules have no gradients'
        )
    rules = memory.attended(layer, args[0] if args else kwargs["hidden_states"], module)
    if kwargs.get("past_key_values") is not None:
        setattr(kwargs["past_key_values"], READ_WITH, memory.prompts)
    return (args, kwargs | {"attended_rules": rules}) if rules is not None else None
