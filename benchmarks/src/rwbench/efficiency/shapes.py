"""Models by shape, with random weights: time and memory depend on shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Qwen2 model.

    Attributes
    ----------
    hidden, layers, heads, kv_heads, ffn, vocab : int
        As in its configuration.
    tied : bool
        Whether input and output embeddings are one matrix.
    context : int
        Tokens it was made for; prompting cannot use more.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: bool
    context: int = 32_768

    @property
    def width(self) -> int:
        """F: heads times head dimension."""
        return self.hidden


SHAPES = {
    "qwen2-0.5b": ModelShape(896, 24, 14, 2, 4_864, 151_936, tied=True),
    "qwen2.5-7b": ModelShape(3_584, 28, 28, 4, 18_944, 152_064, tied=False),
    "small": ModelShape(512, 8, 8, 4, 1_408, 4_096, tied=False),
    "tiny": ModelShape(32, 2, 4, 2, 64, 101, tied=True, context=512),
}


def shape_of(name: str) -> ModelShape:
    """Return a shape by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {name!r}")
    return SHAPES[name]


def random_model(shape: ModelShape, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """Return a Qwen2 model with small random weights, frozen, in eval mode.

    Weights are drawn once, where and how they are used: 7 billion of them on a CPU in fp32 would take minutes.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.initialization import no_init_weights

    config = Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=shape.tied,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), no_init_weights():
            model = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            elif parameter.ndim == 1:
                parameter.zero_()
            else:
                parameter.normal_(std=0.02, generator=generator)
    return model.eval().requires_grad_(False)
