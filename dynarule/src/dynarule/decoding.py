"""Decoding with rules: the ways of ``model.generate`` that a memory can follow, a cache and a text that grow."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

ROOM = 128
"""Tokens that a growing cache has room for beyond its text whenever it is copied."""
_CONTEXT = 8  # tokens before the new ones of a running text

# What reorders rows, reads other tokens in between or takes tokens back, and the value that does not; transformers
# itself refuses what it keeps on the Hub (contrastive search, DoLa, constrained beams).
SINGLE_PASS: dict[str, Any] = {
    "num_beams": 1,
    "use_cache": True,
    "guidance_scale": 1,
    "assistant_model": None,
    "assistant_early_exit": None,
    "prompt_lookup_num_tokens": None,
    "use_mtp": False,
    "prefill_chunk_size": None,
    "custom_generate": None,
    "token_healing": False,
}


def check_decoding(model: nn.Module, options: Mapping[str, Any], **allowed: Any) -> None:
    """Raise ValueError at a way of decoding that a memory cannot follow.

    ``options`` are arguments of ``model.generate``; where they say nothing, the model's ``generation_config`` counts.
    ``allowed`` are further options that may have one value, besides None.
    """
    for name, value in (SINGLE_PASS | allowed).items():
        given = setting(model, options, name)
        if given not in (None, value):
            raise ValueError(
                f"{name}={repr(given).splitlines()[0]:.60} is not supported with rules: the memory follows one forward "
                f"per new token of a fixed batch; set {name}={value!r} (greedy or sampled decoding)"
            )


def setting(model: Any, options: Mapping[str, Any], name: str) -> Any:
    """Return what a call of ``model.generate``, its generation_config or the model's says first; None: none does."""
    sources = options.get("generation_config"), model.generation_config
    values = options.get(name), *(getattr(source, name, None) for source in sources)
    return next((value for value in values if value is not None), None)


@contextmanager
def single_pass(model: Any) -> Iterator[None]:
    """Let ``model.generate`` refuse, inside the block, what a memory cannot follow.

    The forward hooks cannot: beam search shows them nothing but rows of the right number.
    """
    if not hasattr(model, "generate"):  # a decoder without a head
        yield
        return
    if hasattr(model, "get_base_model"):  # a PeftModel calls its base's, and so may a user
        model = model.get_base_model()
    generate, own = model.generate, vars(model).get("generate")

    def check(kwargs: dict[str, Any]) -> None:
        check_decoding(model, kwargs)
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2 and not bool(mask[:, -1].all()):
            raise ValueError(
                "a row is padded on the right, so its answer would follow the padding; pad on the left: "
                'tokenizer.padding_side = "left"'
            )
        past = kwargs.get("past_key_values")
        if past is not None and past.get_seq_length():
            raise ValueError(
                "past_key_values holds an earlier turn: rules are looked for when a prompt is read from its start, and "
                "a later question would be answered with the first one's; leave past_key_values out"
            )

    @wraps(generate)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            check(dict(zip(("inputs", "generation_config"), args, strict=False)) | kwargs)
            return generate(*args, **kwargs)
        except Exception:
            if kwargs.get("streamer") is not None:  # who reads it in another thread waits for its end
                kwargs["streamer"].end()
            raise

    model.generate = checked
    try:
        yield
    finally:
        del model.generate
        if own is not None:
            model.generate = own


def growing_cache(model: Any) -> DynamicCache | None:
    """Return an empty key-value cache for ``model.generate(past_key_values=...)``, of one batch; None if there is none.

    It holds what transformers' `DynamicCache` holds, to the last bit. That one writes all keys and values anew at each
    token, which with many prompts on a CPU is most of the time of decoding; here a token is written into room that is
    left behind the text. Layers with a sliding window stay as transformers has them; a model with others, such as
    linear attention, which keep more than keys and values, gets None, for transformers to choose. For inference alone,
    and ``no_grad`` and ``inference_mode`` do not take turns.
    """
    cache = DynamicCache(config=model.config)
    if not {type(layer) for layer in cache.layers} <= {DynamicLayer, DynamicSlidingWindowLayer}:
        return None
    cache.layers = [_GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class _GrowingLayer(DynamicLayer):
    """One layer's keys and values: views of the used part of two larger tensors."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self._rooms: list[Tensor | None] = [None, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append states (B, G, T, D), and return all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        assert self.keys is not None and self.values is not None
        self.keys = self._appended(0, self.keys, before, key_states)
        self.values = self._appended(1, self.values, before, value_states)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows; the room of all is let go."""
        super().batch_select_indices(indices)
        self._rooms = [None, None]

    def _appended(self, side: int, old: Tensor, before: int, new: Tensor) -> Tensor:
        room, after = self._rooms[side], before + new.shape[-2]
        # Rows that were put in another order lie elsewhere.
        ours = room is not None and room.data_ptr() == old.data_ptr() and room.shape[:-2] == new.shape[:-2]
        if room is None or not ours or room.shape[-2] < after:
            room = new.new_empty((*new.shape[:-2], after + ROOM, new.shape[-1]))
            if before:  # an empty layer's tensor has one dimension
                room[..., :before, :] = old
            self._rooms[side] = room
        room[..., before:after, :] = new
        return room[..., :after, :]


class RunningText:
    """The text of tokens that come one by one, each decoded behind a few others, not behind all; some are not said."""

    def __init__(self, tokenizer: Any, hidden: Collection[int]) -> None:
        self._decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
        self._hidden = hidden
        self._last: list[int] = []
        self._text = self._known = ""  # without the last tokens, and what is in it of those

    def add(self, token: int) -> str:
        """Return the text with one more token."""
        self._last += [token] if token not in self._hidden else []
        text = self._text + str(self._decode(self._last))[len(self._known) :]
        if len(self._last) >= 2 * _CONTEXT:
            known = str(self._decode(self._last[-_CONTEXT:]))
            if "\ufffd" not in known:  # it begins and ends between characters
                self._text, self._known, self._last = text, known, self._last[-_CONTEXT:]
        return text
