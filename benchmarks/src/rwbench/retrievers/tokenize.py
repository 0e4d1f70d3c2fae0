"""From text to index terms.

The tokenizer decides whether BM25 works on rules at all: split at blanks, ``Tiny_cat(A)`` shares no term with
"a tiny cat", and every rule in FOL scores zero.
"""

from collections.abc import Callable
from functools import lru_cache

from ruleworld_data.environments import index_terms


@lru_cache(maxsize=300_000)
def naive(text: str) -> tuple[str, ...]:
    """Split lower-cased text at white space, punctuation left on."""
    return tuple(text.lower().split())


@lru_cache(maxsize=300_000)
def identifier_aware(text: str) -> tuple[str, ...]:
    """Split text as the environments' search does, see `ruleworld_data.environments.index_terms`."""
    return tuple(index_terms()(text))


TOKENIZERS: dict[str, Callable[[str], tuple[str, ...]]] = {"naive": naive, "aware": identifier_aware}
