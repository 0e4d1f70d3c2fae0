"""Which encoder a name, or the fingerprint in an adapter or a bank, stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import encoders
from .layer_encoder import LayerEncoder, parse_layers

if TYPE_CHECKING:
    from torch import nn

AnyEncoder = encoders.SentenceEncoder | LayerEncoder


def open_encoder(
    name: str, fol: bool = False, model: nn.Module | None = None, tokenizer: Any = None
) -> AnyEncoder:
    """Return the encoder of a name.

    Parameters
    ----------
    name : str
        ``minilm``, a sentence-transformers folder or name, or ``layers:N``: the first N layers of the model.
    fol : bool
        Whether a sentence encoder gets logic as words; the model's own layers read logic as the model does.
    model, tokenizer
        For ``layers:N``: the model that will answer.

    Raises
    ------
    ImportError, ValueError
        If the encoder cannot be loaded, or ``layers:N`` comes without a model.
    """
    layers = parse_layers(name)
    if layers is None:
        return encoders.SentenceEncoder(name, fol=fol)
    if model is None or tokenizer is None:
        raise ValueError(f"encoder {name!r} is a part of the model that answers; say which with --model")
    return LayerEncoder(model, tokenizer, layers)


def encoder_of(fingerprint: str, model: nn.Module | None = None, tokenizer: Any = None) -> AnyEncoder:
    """Return the encoder with a fingerprint, as adapters and banks record it; ``""`` is minilm.

    Raises
    ------
    ImportError, ValueError
        If none that can be loaded here has the fingerprint.
    """
    name = fingerprint.split("@")[0]
    source = encoders.MINILM if name in ("", "all-MiniLM-L6-v2") else name
    seen = ""
    for fol in (False,) if parse_layers(source) else (False, True):  # layers read logic as it is
        encoder = open_encoder(source, fol, model, tokenizer)
        if fingerprint in ("", encoder.fingerprint):
            return encoder
        seen = seen or encoder.fingerprint
    if parse_layers(source) and model is not None:
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        raise ValueError(
            f"the rules' encoder is {fingerprint!r}; the first layers of this model, loaded in {dtype}, are {seen!r}: "
            "load the model of then, in the dtype of then (weights that were rounded are others), or train and embed "
            "again"
        )
    raise ValueError(
        f"the rules' encoder is {fingerprint!r}; the one called {source!r} here is {seen!r}: load the model or install "
        "the version that was used then, or train and embed again"
    )
