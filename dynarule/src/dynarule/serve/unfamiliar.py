"""Words that a model's training did not hold, told by how its tokenizer takes them apart: any script, any tokenizer."""

from collections.abc import Sequence
from typing import Any
from unicodedata import category, east_asian_width

LETTERS = 1.5
"""Letters a token from which on a word is not spelled; known words have 4 to 5."""
SPLIT = 0.7
"""Share of a text's longer words in several tokens from which on its language is foreign: English .1, German .9."""
LEAST = 5
"""Longer words of a text, or of all together, by which a language is told."""


def words_of_text(text: str) -> list[str]:
    """Return runs of letters and their marks, Chinese and Japanese signs, without names such as w11 and my_rule."""
    signs = "".join(f" {sign} " if east_asian_width(sign) in "WF" else sign for sign in text)
    words = "".join(sign if category(sign)[:1] in "LMN" or sign == "_" else " " for sign in signs).split()
    return [word for word in words if not any(sign.isdigit() or sign == "_" for sign in word)]


def unfamiliar(tokenizer: Any, texts: Sequence[str]) -> tuple[list[str], int]:
    """Return the words of texts that a tokenizer's training hardly held, and how many different words there are.

    Such a word has no token, or is spelled nearly letter by letter; or has several, as most words of its text.
    """
    words = [list(dict.fromkeys(words_of_text(text))) for text in texts]
    counts = {word: _tokens(tokenizer, word) for part in words for word in part}
    signs = {word for word in counts if len(word) == 1 and east_asian_width(word) in "WF"}
    # a rare name is written in two or three tokens, a Chinese sign in one
    most = {word: 1 if word in signs else max(len(word), 4) / LETTERS for word in counts}
    found = [word for word, count in counts.items() if count > most[word]]
    for part in (*words, list(counts)):
        longer = [word for word in part if len(word) > 3]
        split = [word for word in longer if counts[word] > 1]
        if len(longer) >= LEAST and len(split) > SPLIT * len(longer):
            found += split
    return list(dict.fromkeys(found)), len(counts)


def _tokens(tokenizer: Any, word: str) -> float:
    """Return in how many tokens a word is written at best, capitals aside; none knows it: infinite."""
    forms = word, f" {word}", f" {word.lower()}"
    ids = [tokenizer(form, add_special_tokens=False)["input_ids"] for form in forms]
    return min((len(form) for form in ids if tokenizer.unk_token_id not in form), default=float("inf"))
