"""The ``<search>`` token: one row of the vocabulary that a model emits when it wants to read the rules again.

The row comes from what is there already: the token itself, or a row of the embedding matrix that the tokenizer does
not use (Qwen2.5); only then a matrix grows by one row. Nothing is ever cut off, as
``resize_token_embeddings(len(tokenizer))`` would do with Qwen2.5, and no other row changes.
"""

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AddedToken

from .base_model import base_matrix

SEARCH_TOKEN = "<search>"
_HEADER = re.compile(r"\[\s*Step\s*(?!1\s*\])\d[\d\s]*\]$")
"""A header behind which ``<search>`` stands, as decoding writes it: digits may be tokens with blanks between them."""
_CLAUSE = re.compile(r"\[\s*Step[\s\d]*\](?:[^\n\[]*[.;])?([^\n\[.;]*)$")
"""A step's line, and what its last clause has so far."""
_LINE_TOKENS = 128  # of the text's end that is looked at


def prepare_search(model: nn.Module, tokenizer: Any, token: str = SEARCH_TOKEN) -> int:
    """Give a tokenizer and a model the token ``<search>``, and return its id; a second call changes nothing.

    Its row becomes the mean of the embedding matrix, in the output matrix too where it is untied, unless the tokenizer
    knew the token before: then the row may be trained. The tokenizer is changed in place; save it with the adapter.
    """
    rows = base_matrix(model.get_input_embeddings()).num_embeddings  # type: ignore[operator]
    row = known = _id_of(tokenizer, token)
    if row is None:
        added = AddedToken(token, special=True, normalized=False, lstrip=False, rstrip=False)
        tokenizer.add_tokens([added], special_tokens=True)
        row = int(tokenizer.convert_tokens_to_ids(token))
    if known is None or row >= rows:
        means = [matrix.detach().float().mean(0) for matrix in vocabulary_matrices(model)]
        if row >= rows:
            model.resize_token_embeddings(row + 1, mean_resizing=False)  # type: ignore[operator]
        # Every row that growing made is a mean, in case the tokenizer was more than one token ahead of the model.
        with torch.no_grad():
            for matrix, mean in zip(vocabulary_matrices(model), means, strict=True):
                matrix[min(row, rows) : row + 1] = mean.to(matrix)
    return row


def begin_as_header(model: nn.Module, tokenizer: Any, like: int | None = None) -> int:
    """Give ``<search>`` the rows of the last token of the header behind which it stands, and return its id.

    Its state then knows which step comes, before anything is trained: finding is trained on such states. ``like`` is
    another token that it begins as.
    """
    row = prepare_search(model, tokenizer)
    header = tokenizer("[Step 2]", add_special_tokens=False)["input_ids"][-1] if like is None else like
    with torch.no_grad():
        for matrix in vocabulary_matrices(model):
            matrix[row] = matrix[header]
    return row


def search_id(tokenizer: Any, token: str | None = None, trained: int | None = None) -> int:
    """Return the id of ``<search>``, or of another ``token``.

    Raises
    ------
    ValueError
        If the tokenizer has no such token, or has it at another id than an adapter was ``trained`` with.
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
    if len(vocabulary_matrices(model)) == 1:
        return [row]
    names = {module: name.rsplit(".", 1)[-1] for name, module in model.named_modules()}
    embeddings = (model.get_input_embeddings(), model.get_output_embeddings())  # type: ignore[operator]
    return {names[module]: [row] for module in embeddings}


def vocabulary_matrices(model: nn.Module) -> list[Tensor]:
    """Return the input embedding, and the output embedding unless it is the same tensor; quantised ones are refused."""
    source: Tensor = base_matrix(model.get_input_embeddings()).weight  # type: ignore[operator]
    output = model.get_output_embeddings()  # type: ignore[operator]
    head = source if output is None else base_matrix(output).weight
    for matrix in (source, head):
        if type(matrix) not in (Tensor, nn.Parameter) or not matrix.is_floating_point():
            raise ValueError(
                f"the vocabulary is quantised (a {type(matrix).__name__}), and {SEARCH_TOKEN} needs a row of its own; "
                "quantise the base without its embeddings and lm_head, as libraries do unless told"
            )
    return [source] if head is source else [source, head]


def _id_of(tokenizer: Any, token: str) -> int | None:
    # Not by get_vocab(), which lists the whole vocabulary; a token that is unknown may get the id of another.
    row = tokenizer.convert_tokens_to_ids(token)
    return row if row is not None and tokenizer.convert_ids_to_tokens(row) == token else None


def in_clause(text: str, token: str) -> bool:
    """Say whether a text ends in a clause of a step that has no ``<search>`` yet."""
    clause = _CLAUSE.search(text)
    return clause is not None and token not in clause[1]


class SearchWriter:
    """Write ``<search>`` where it was trained, and no more of them than allowed, in each row: a logits processor.

    The template leaves no choice: behind ``[Step 2]`` and later headers, or where a clause of a step goes on with one
    of the ``cues``, once a clause. A model that may choose forgets it now and then, and says what it remembers.
    """

    def __init__(
        self,
        search: int,
        tokenizer: Any,
        prompt_length: int,
        most: int,
        behind: bool,
        cues: Collection[int] = (),
    ) -> None:
        self.search, self.tokenizer, self.prompt_length, self.most = search, tokenizer, prompt_length, most
        self.behind, self.cues = behind, frozenset(cues)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores of the next token, those of `<search>` set where the template says."""
        written_BT = input_ids[:, self.prompt_length :]
        may_B = (written_BT == self.search).sum(-1) < self.most
        scores[:, self.search] = scores[:, self.search].masked_fill(~may_B | bool(self.cues), -torch.inf)
        if not self.behind and not self.cues:
            return scores
        if self.cues:
            due = [best in self.cues for best in scores.argmax(-1).tolist()]
        else:
            ends = self.tokenizer.convert_ids_to_tokens(written_BT[:, -1:].flatten().tolist())
            due = [(end or "").endswith("]") for end in ends] or [False] * len(scores)
        for row, may in enumerate(may_B.tolist()):
            if may and due[row] and self._searches(written_BT[row]):
                scores[row] = torch.full_like(scores[row], -torch.inf)
                scores[row, self.search] = 0.0
        return scores

    def _searches(self, written_T: Tensor) -> bool:
        line, token = (self.tokenizer.decode(ids) for ids in (written_T[-_LINE_TOKENS:], [self.search]))
        return in_clause(line, token) if self.cues else _HEADER.search(line) is not None
