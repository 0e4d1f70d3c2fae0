"""Adapters on disk: safetensors and JSON, checked against the model they are loaded into.

A folder holds ``adapter.json`` and the weights file that it names. The weights come first under a name of their own,
the JSON is replaced last, so an interrupted save leaves the adapter that was there before.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .adapter_info import (
    FILE,
    AdapterInfo,
    BaseModel,
    SearchInfo,
    check_base,
    read_adapter_info,
    write_adapter_info,
)
from .memory.search import search_id, search_rows, set_search_rows
from .projection import RuleAdapter


def save_adapter(
    folder: str | Path,
    adapter: RuleAdapter,
    model: nn.Module,
    *,
    encoder: str | None = None,
    search_token: str | None = None,
    tokenizer: Any = None,
    curve: dict[str, Any] | None = None,
) -> AdapterInfo:
    """Save an adapter, and the row of ``<search>`` that was trained with it.

    Parameters
    ----------
    folder : path
        Made if missing; an adapter that is there is replaced at once or not at all.
    adapter : RuleAdapter
        What to save.
    model : PreTrainedModel
        The model it belongs to, for the fingerprint and the rows of ``<search>``.
    encoder : str or None
        Name and revision of the encoder; None takes ``adapter.encoder``.
    search_token : str or None
        Text of the trained token, usually ``<search>``; None saves no row.
    tokenizer : PreTrainedTokenizerBase or None
        Tells the token's row, and is saved too. Needed with ``search_token``.
    curve : dict or None
        The entropies from which the confidence layer was chosen.

    Returns
    -------
    AdapterInfo
        What was written into ``adapter.json``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"layers.{name}": value for name, value in adapter.layers.state_dict().items()}
    search = None
    if search_token is not None:
        if tokenizer is None:
            raise ValueError(f"to save the row of {search_token!r}, pass the tokenizer that knows its id")
        search = SearchInfo(search_token, search_id(tokenizer, search_token))
        tensors |= {f"search.{name}": row for name, row in search_rows(model, search.id).items()}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy())
    info = AdapterInfo(
        adapter.config,
        BaseModel.of(model),
        adapter.encoder if encoder is None else encoder,
        search,
        curve,
        f"adapter-{digest.hexdigest()[:12]}.safetensors",
    )
    from safetensors.torch import save_file

    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    partial = folder / f".{info.weights}.part"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / info.weights)
    write_adapter_info(folder, info)
    for old in folder.glob("adapter-*.safetensors"):
        if old.name != info.weights:
            old.unlink()
    return info


def load_adapter(model: nn.Module, folder: str | Path, tokenizer: Any = None) -> RuleAdapter:
    """Load an adapter for a model, and write its ``<search>`` row into the model's embeddings.

    Parameters
    ----------
    model : PreTrainedModel
        The base model. If the adapter's vocabulary is larger, call `dynarule.prepare_search` first.
    folder : path
        Made by `save_adapter`.
    tokenizer : PreTrainedTokenizerBase or None
        If given, it must know ``<search>`` under the id of the adapter.

    Returns
    -------
    RuleAdapter
        On the model's device and in its dtype.

    Raises
    ------
    FileNotFoundError, ValueError
        If files are missing, truncated or do not fit the model or tokenizer; the model is then unchanged.
    """
    info = read_adapter_info(folder)
    check_base(info, model)
    if tokenizer is not None and info.search is not None:
        row = search_id(tokenizer, info.search.token)
        if row != info.search.id:
            raise ValueError(
                f"the tokenizer has {info.search.token!r} at id {row}, the adapter was trained with id "
                f"{info.search.id}; use the tokenizer saved with the adapter"
            )
    tensors: dict[str, Tensor] = dict(_open(Path(folder) / info.weights, True))
    adapter = RuleAdapter(model, info.memory)
    adapter.encoder = info.encoder
    weights = {
        name.removeprefix("layers."): value for name, value in tensors.items() if name.startswith("layers.")
    }
    rows = {
        name.removeprefix("search."): value for name, value in tensors.items() if name.startswith("search.")
    }
    expected = {name: tuple(value.shape) for name, value in adapter.layers.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    wrong = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    extra = sorted(set(tensors) - {f"layers.{n}" for n in weights} - {f"search.{n}" for n in rows})
    if wrong or extra or bool(rows) != (info.search is not None):
        name = (wrong or extra or ["search rows"])[0]
        raise ValueError(
            f"{Path(folder) / info.weights}: tensor {name!r} is missing, unknown or of another shape (file "
            f"{found.get(name)}, expected {expected.get(name)}; {len(wrong) + len(extra)} in all); "
            f"{FILE} and the weights do not belong together: copy the adapter again"
        )
    adapter.layers.load_state_dict(weights)
    if info.search is not None:
        set_search_rows(model, info.search.id, rows)
    return adapter


def read_shapes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of an adapter, without reading it.

    Raises
    ------
    FileNotFoundError, ValueError
        As for `load_adapter`.
    """
    return dict(_open(Path(folder) / read_adapter_info(folder).weights, False))


def _open(path: Path, whole: bool) -> list[tuple[str, Any]]:
    """Read names with tensors, or with shapes."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, though {FILE} names it; copy the adapter again")
    try:
        with safe_open(path, "pt") as file:
            return [
                (name, file.get_tensor(name) if whole else tuple(file.get_slice(name).get_shape()))
                for name in file.keys()  # noqa: SIM118 - not a dict
            ]
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) is truncated or not safetensors ({error}); copy the adapter again"
        ) from None
