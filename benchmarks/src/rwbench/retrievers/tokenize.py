"""From text to index terms.

The tokenizer decides whether BM25 works on rules at all: split at blanks, ``Tiny_cat(A)`` shares no term with
"a tiny cat", and every rule in FOL scores zero.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from ruleworld_data.environments import index_terms


@lru_cache(maxsize=300_000)
def naive(text: str) -> tuple[str, ...]:
    """Split lower-cased text at white space, punctuation left on."""
    return tuple(text.lower().split())


@lru_cache(maxsize=300_000)
def identifier_aware(text: str) -> tuple[str, ...]:
    """Split text as the environments' search does, see `ruleworld_data.environments.index_terms`."""
    return tuple(index_terms()(text))


def with_pairs(words: Sequence[str]) -> list[str]:
    """Return words and pairs of neighbouring words, each once.

    Examples
    --------
    >>> with_pairs(identifier_aware("Lose_Strong_fin(A, 1)"))
    ['lose', 'strong', 'fin', 'a', '1', 'lose strong', 'strong fin', 'fin a', 'a 1']
    """
    return list(dict.fromkeys([*words, *map(" ".join, pairwise(words))]))


TOKENIZERS: dict[str, Callable[[str], tuple[str, ...]]] = {"naive": naive, "aware": identifier_aware}
