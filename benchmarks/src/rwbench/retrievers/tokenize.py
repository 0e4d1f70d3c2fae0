"""From text to index terms.

The tokenizer decides whether BM25 works on rules at all: split at blanks, ``Tiny_cat(A)`` shares no term with
"a tiny cat", and every rule in FOL scores zero.
"""

import re
from collections.abc import Callable
from functools import lru_cache

WORD = re.compile(r"[^\W\d_]+|\d+")
"""A run of letters or a run of digits: underscores and brackets separate, and ``x2`` is two terms."""


@lru_cache(maxsize=300_000)
def naive(text: str) -> tuple[str, ...]:
    """Split lower-cased text at white space, punctuation left on."""
    return tuple(text.lower().split())


@lru_cache(maxsize=300_000)
def identifier_aware(text: str) -> tuple[str, ...]:
    """Split lower-cased text into runs of letters or digits and stem them (English Snowball).

    Digits stay, because counts are content; stop words stay, because "in" is half of "in the desert".
    """
    return tuple(_stemmer()(WORD.findall(text.lower())))


TOKENIZERS: dict[str, Callable[[str], tuple[str, ...]]] = {"naive": naive, "aware": identifier_aware}


@lru_cache(maxsize=1)
def _stemmer() -> Callable[[list[str]], list[str]]:
    import Stemmer

    return Stemmer.Stemmer("english").stemWords
