"""The ``<search>`` token: one row of the vocabulary that a model emits when it wants to read the rules again.

The row comes from what is there already, in this order: the token itself, a row of the embedding matrix that the
tokenizer does not use (Qwen2.5), a reserved token (Llama 3), and only then a matrix grown by one row. Nothing is ever
cut off, as ``resize_token_embeddings(len(tokenizer))`` would do with Qwen2.5, and no other row changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

SEARCH_TOKEN = "<search>"
Origin = Literal["existing", "spare", "reserved", "grown"]
_RESERVED = ("<|reserved_special_token_", "<|reserved_token_", "<unused", "[unused", "<|extra_")


@dataclass(frozen=True)
class SearchToken:
    """Where ``<search>`` went.

    Attributes
    ----------
    id : int
        Its row.
    token : str
        Its text.
    origin : {"existing", "spare", "reserved", "grown"}
        Where the row comes from.
    """

    id: int
    token: str
    origin: Origin


def prepare_search(
    model: nn.Module, tokenizer: Any, token: str = SEARCH_TOKEN, initialise: bool | None = None
) -> SearchToken:
    """Give a tokenizer and a model the token ``<search>``; a second call changes nothing.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model of transformers; its embeddings may be tied or not.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer, changed in place. Save it with the adapter.
    token : str
        Text of the token.
    initialise : bool or None
        Set the row to the mean of the embedding matrix, in the output matrix too where it is untied. None: unless the
        tokenizer knew the token before, since then the row may be trained.

    Returns
    -------
    SearchToken
        The id and where it comes from.
    """
    embedding: nn.Embedding = base_matrix(model.get_input_embeddings())  # type: ignore[operator]
    rows = embedding.num_embeddings
    known = _id_of(tokenizer, token)
    origin: Origin
    if known is not None:
        origin, row = "existing", known
    elif len(tokenizer) < rows:
        origin, row = "spare", _add(tokenizer, token)
    else:
        reserved = _rename_reserved(tokenizer, token)
        origin = "grown" if reserved is None else "reserved"
        row = _add(tokenizer, token) if reserved is None else reserved
    means = [matrix.detach().float().mean(0) for matrix in _matrices(model)]
    if row >= rows:
        origin = "grown"
        model.resize_token_embeddings(row + 1, mean_resizing=False)  # type: ignore[operator]
    if initialise or (initialise is None and origin != "existing"):
        # Every row that growing made is a mean, in case the tokenizer was more than one token ahead of the model.
        first = min(row, rows)
        with torch.no_grad():
            for matrix, mean in zip(_matrices(model), means, strict=True):
                matrix[first if origin == "grown" else row : row + 1] = mean.to(matrix)
    return SearchToken(row, token, origin)


def search_id(tokenizer: Any, token: str | None = None, trained: int | None = None) -> int:
    """Return the id of ``<search>``.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        The tokenizer of the answering model.
    token : str or None
        Its text; None: ``<search>``.
    trained : int or None
        The id that an adapter was trained with, if one was.

    Raises
    ------
    ValueError
        If the tokenizer has no such token, or has it at another id.
    """
    token = token or SEARCH_TOKEN
    row = _id_of(tokenizer, token)
    if row is None:
        raise ValueError(
            f"the tokenizer ({len(tokenizer)} tokens) has no token {token!r}, so the model cannot ask for rules again; "
            "load the tokenizer saved with the adapter, or call dynarule.prepare_search(model, tokenizer)"
        )
    if trained not in (None, row):
        raise ValueError(
            f"the tokenizer has {token!r} at id {row}, the adapter was trained with id {trained}; use the tokenizer "
            "saved with the adapter"
        )
    return row


def token_rows(model: nn.Module, row: int) -> list[int] | dict[str, list[int]]:
    """Return what PEFT's ``trainable_token_indices`` takes to train one row, in both matrices where they are untied."""
    if len(_matrices(model)) == 1:
        return [row]
    names = {module: name.rsplit(".", 1)[-1] for name, module in model.named_modules()}
    embeddings = (model.get_input_embeddings(), model.get_output_embeddings())  # type: ignore[operator]
    return {names[module]: [row] for module in embeddings}


def _matrices(model: nn.Module) -> list[Tensor]:
    """The input embedding, and the output embedding unless it is the same tensor."""
    source: Tensor = base_matrix(model.get_input_embeddings()).weight  # type: ignore[operator]
    output = model.get_output_embeddings()  # type: ignore[operator]
    head = source if output is None else base_matrix(output).weight
    return [source] if head is source else [source, head]


def base_matrix(module: nn.Module) -> Any:
    """Return an embedding or output layer without PEFT's trained rows around it."""
    return getattr(getattr(module, "token_adapter", None), "base_layer", module)


def _id_of(tokenizer: Any, token: str) -> int | None:
    return tokenizer.get_vocab().get(token)


def _add(tokenizer: Any, token: str) -> int:
    from transformers import AddedToken

    added = AddedToken(token, special=True, normalized=False, lstrip=False, rstrip=False)
    tokenizer.add_tokens([added], special_tokens=True)
    return tokenizer.convert_tokens_to_ids(token)


def _rename_reserved(tokenizer: Any, token: str) -> int | None:
    """Give the first reserved token the new name; None if there is none, or the tokenizer is not a fast one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    reserved = sorted(
        (row, added.content)
        for row, added in tokenizer.added_tokens_decoder.items()
        if added.content.startswith(_RESERVED)
    )
    if backend is None or not reserved:
        return None
    row, old = reserved[0]
    state = json.loads(backend.to_str())
    for entry in state["added_tokens"]:
        if entry["id"] == row:
            entry["content"] = token
    vocabulary = state["model"].get("vocab")
    if isinstance(vocabulary, dict) and old in vocabulary:
        vocabulary[token] = vocabulary.pop(old)
    backend.__setstate__(json.dumps(state).encode())
    return row
