"""Which ways of ``model.generate`` a rule memory can follow: one forward per new token of a fixed batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import nn

# What reorders rows, reads other tokens in between or takes tokens back, and the value that does not.
SINGLE_PASS: dict[str, Any] = {
    "num_beams": 1,
    "use_cache": True,
    "guidance_scale": 1,
    "assistant_model": None,
    "assistant_early_exit": None,
    "prompt_lookup_num_tokens": None,
    "use_mtp": False,
    "penalty_alpha": None,
    "prefill_chunk_size": None,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "custom_generate": None,
}


def check_decoding(model: nn.Module, options: Mapping[str, Any], **allowed: Any) -> None:
    """Raise ValueError at a way of decoding that a memory cannot follow.

    Parameters
    ----------
    model : PreTrainedModel
        Its ``generation_config`` counts where the options say nothing.
    options : mapping
        Arguments of ``model.generate``, ``generation_config`` among them.
    **allowed
        Further options that may have one value, besides None.
    """
    sources = [options.get("generation_config"), model.generation_config]
    for name, value in (SINGLE_PASS | allowed).items():
        values = [options.get(name), *(getattr(source, name, None) for source in sources)]
        seen = next((found for found in values if found is not None), None)
        if seen not in (None, value):
            raise ValueError(
                f"{name}={seen!r} is not supported with rules: the memory follows one forward per new token of a "
                f"fixed batch; set {name}={value!r} (greedy or sampled decoding)"
            )


@contextmanager
def single_pass(model: Any) -> Iterator[None]:
    """Let ``model.generate`` refuse, inside the block, what a memory cannot follow.

    The forward hooks cannot: beam search shows them nothing but rows of the right number.
    """
    if not hasattr(model, "generate"):  # a decoder without a head
        yield
        return
    generate, own = model.generate, vars(model).get("generate")

    @wraps(generate)
    def checked(*args: Any, **kwargs: Any) -> Any:
        positional = dict(zip(("inputs", "generation_config"), args, strict=False))
        check_decoding(model, positional | kwargs)
        return generate(*args, **kwargs)

    model.generate = checked
    try:
        yield
    finally:
        del model.generate
        if own is not None:
            model.generate = own
