"""Lists as rules: the items joined with the words that lead in to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..bank.clauses import has_verb
from .blocks import Block

_JOINS = re.compile(r"[;,]?\s*\b(and|or)\s*$")
_ALL = re.compile(
    r"\b(?:all|both|each) of (?:the following|these|them)\b|\ball (?:the )?following\b", re.IGNORECASE
)
_ANY = re.compile(r"\b(?:any|one|either|at least one) of (?:the following|these|them)\b", re.IGNORECASE)
_FOLLOWING = re.compile(r"\b(?:following|below|as follows|these|rules|steps|examples?)\b", re.IGNORECASE)
_RUNS_ON = re.compile(
    r"\b(?:if|when|whenever|unless|that|who|which|whose|where|and|or|to|for|by|with|of|in|at|on|from|as|a|an|the|is|are|be|"
    r"has|have|may|must|can|cannot|shall|should|will|not|bring|carry|include|includes|contain|cover|covers|receive|receives|"
    r"pay|pays|get|gets|need|needs|require|requires|provide|provides|means|allow|allows|accept|accepts|excludes?|use)$",
    re.IGNORECASE,
)


def is_whole(text: str) -> bool:
    """Say whether a text ends as a sentence does."""
    return text.endswith((".", "!", "?"))


def joined(lead: str, line: int, items: Sequence[Block]) -> Iterator[tuple[str, Block | int]]:
    """Join the items of a list with the words that lead in to it; nested lists first."""
    tops = [i for i, item in enumerate(items) if item.depth == min(item.depth for item in items)]
    parts: list[tuple[str, Block | int]] = []
    for start, stop in zip(tops, [*tops[1:], len(items)], strict=True):
        item, nested = items[start], items[start + 1 : stop]
        parts += joined(item.text, item.line_at(0), nested) if nested else [(item.text, item)]
    *before, last_lead = re.split(r"(?<=[.!?])\s+(?=[A-Z])", lead)
    stem = last_lead.rstrip(" :–-")
    texts = [text.strip() for text, _ in parts]
    words = {match[1].lower() for text in texts if (match := _JOINS.search(text))}
    bare = [_JOINS.sub("", text).rstrip(" ;,.") for text in texts]
    if before:
        yield " ".join(before), line
    condition = re.match(r"(?:if|when|unless|where|provided)\b", stem, re.IGNORECASE) or _RUNS_ON.search(stem)
    if _ALL.search(stem) or (words == {"and"} and condition and not _FOLLOWING.search(stem)):
        yield f"{stem}{'' if _RUNS_ON.search(stem) else ':'} {_series(bare, 'and')}.", line
    elif (_ANY.search(stem) or words == {"or"}) and condition:
        yield f"{stem}{'' if _RUNS_ON.search(stem) else ':'} {_series(bare, 'or')}.", line
    else:
        for text, (_, where), short in zip(texts, parts, bare, strict=True):
            alone = has_verb(short) and short[:1].isupper() and (is_whole(text) or _FOLLOWING.search(stem))
            if alone and not _RUNS_ON.search(stem):
                yield text, where
            elif _RUNS_ON.search(stem):
                yield f"{stem} {_lower(short)}.", where
            else:
                yield f"{stem}: {short}.", where


def _series(texts: Sequence[str], word: str) -> str:
    texts = [_lower(text) for text in texts]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {word} {texts[-1]}"


def _lower(text: str) -> str:
    """Begin a text in lower case, where its first word is a usual one."""
    first = text.split(" ")[0]
    usual = first.lower() in {
        "a",
        "an",
        "the",
        "one",
        "any",
        "no",
        "all",
        "two",
        "your",
        "their",
        "it",
        "they",
        "is",
        "has",
    }
    return text[:1].lower() + text[1:] if usual or has_verb(first) else text
