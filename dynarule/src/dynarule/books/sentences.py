"""Sentences of a text, those that say nothing by themselves with the one before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from .._lazy import need
from ..bank.lexicon import PHRASES, has_verb
from ..bank.sources import LONGEST
from .blocks import is_whole, unnumbered

REFERS_BACK = re.compile(rf"(?:{PHRASES['refers_back']})\b", re.IGNORECASE)
"""The beginning of a sentence that is about the rule before it, also where that is another item or paragraph."""
_NEEDS_LAST = re.compile(rf"(?:{PHRASES['refers_back']}|{PHRASES['needs_last']})\b", re.IGNORECASE)
"""The beginning of a sentence that says nothing without the one before it."""
_ABBREVIATION = re.compile(rf"\b(?:{PHRASES['abbreviations']})\.$", re.IGNORECASE)
_OPENER = re.compile(PHRASES["sentence_opener"])
_TITLED = re.compile(r"\b(?:mr|mrs|ms|dr|prof|messrs|st)\.$", re.IGNORECASE)
IMPRINT = re.compile(rf"(?:{PHRASES['imprint']})", re.IGNORECASE)
"""The beginning of what is about the document."""


def sentences(text: str) -> list[tuple[int, str]]:
    """Return the sentences of a text with their offsets; what says nothing by itself stays with the one before it."""
    whole: list[tuple[int, str]] = []
    for offset, sentence in _split(text):
        last = whole[-1][1] if whole else ""
        shortened = _TITLED.search(last) or (sentence[:1].isdigit() and _ABBREVIATION.search(last))
        torn = sentence[:1].islower() or sentence[:1] in "<>=≤≥+/&:" or shortened
        torn = torn or last[-1:] in (";", ",")  # "1. goals; 2. points"
        if whole and (torn or _NEEDS_LAST.match(sentence) or last.endswith("?")):
            whole[-1] = (whole[-1][0], f"{last} {sentence}")
        else:
            whole.append((offset, sentence))
    return whole


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text with their offsets."""
    process = need("syntok.segmenter", "documents").process
    starts = [tokens[0].offset for paragraph in process(text) for tokens in paragraph if tokens]
    for start, end in pairwise([*starts, len(text)]):  # not its tokens: it writes "don't" as "do not"
        at = start
        for mark in [*_OPENER.finditer(text, start, end), None]:
            part = text[at : mark.start() if mark else end].strip()
            if mark and mark[0][:1] == ";":
                part += "."
            yield at, unnumbered(part[:1].upper() + part[1:] if text[at - 2 : at] == "; " else part)
            at = mark.end() if mark else end


def no_rule(sentence: str, first: bool, alone: bool) -> str:
    """Return why a sentence is no rule, or nothing; it may be the first of several, or alone in its text."""
    words = sentence.split()
    if first and not alone and len(words) < 3 and re.fullmatch(r"[^\d:]+\.", sentence):
        return "a title of its paragraph"
    if len(sentence.encode()) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    if not re.search(r"[^\W\d_]{2}", sentence):
        return "no words"
    if IMPRINT.match(sentence) or re.fullmatch(r"[^.]* wrote:", sentence):
        return "about the document, or where else to look"
    if sentence.endswith("?"):
        return "a question without an answer"
    if sentence.endswith(":"):
        return "leads in to nothing"
    spaced = re.search("[A-Za-z]{2}", sentence)  # Chinese and Thai have no blanks between words
    says = re.search(r"\d|: |^(?:no|not|never)\b", sentence, re.IGNORECASE)
    says = says if unnumbered(f"{sentence} X") != "X" else None
    if spaced and not says and len(words) < 3 - (alone and is_whole(sentence)) and not has_verb(sentence):
        return "no sentence"
    return ""
