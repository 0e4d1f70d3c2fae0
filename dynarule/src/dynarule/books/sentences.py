"""Sentences of a text, those that say nothing alone with the one before them, and lists with what leads in to them."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .._lazy import need
from ..bank.clauses import ABBREVIATED
from ..bank.lexicon import LISTS, PHRASES, goes_on, has_verb
from ..bank.openings import leading
from ..bank.sources import LONGEST
from .blocks import Block, is_whole, unnumbered

REFERS_BACK = re.compile(rf"(?:{PHRASES['refers_back']})\b", re.IGNORECASE)
"""The beginning of a sentence that is about the rule before it, also where that is another item or paragraph."""
_NEEDS_LAST = re.compile(rf"(?:{PHRASES['refers_back']}|{PHRASES['needs_last']})\b", re.IGNORECASE)
"""The beginning of a sentence that says nothing without the one before it."""
_ABBREVIATION = re.compile(rf"\b(?:{PHRASES['abbreviations']})\.$", re.IGNORECASE)
TITLE = "a title of its paragraph"
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
        torn = sentence[:1].islower() or sentence[:1] in "<>=≤≥+/&:;,)" or shortened
        # "1. goals; 2. points", "... (see the log)"
        torn = torn or last[-1:] in (";", ",") or (sentence[:1] == "(" and last[-1:].isalnum())
        if whole and (torn or _NEEDS_LAST.match(sentence) or last.endswith("?")):
            whole[-1] = (whole[-1][0], f"{last}{'' if sentence[:1] in ';,)' else ' '}{sentence}")
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
        return TITLE
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


_JOINS = re.compile(r"[;,]?\s*\b(?:and|or|und|oder)\s*$|^(?:and|or|und|oder)\s+(?!else\b)")
_ALL = re.compile(PHRASES["all_of"], re.IGNORECASE)
_ANY = re.compile(r"\b(?:any|one|either|at least one) of (?:the following|these|them)\b", re.IGNORECASE)
_FOLLOWING = re.compile(r"\b(?:following|below|as follows|these|rules|steps|examples?)\b", re.IGNORECASE)
_ANNOUNCES = re.compile(rf"(?:{PHRASES['announces']})", re.IGNORECASE)
"""Words that lead in and say nothing more."""
_NEXT = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_CONDITION = re.compile(r"(?:if|when|whenever|unless|where|provided|in case)\b", re.IGNORECASE)
RUNS_ON = re.compile(rf"\b(?:{'|'.join(LISTS['runs_on'])})$", re.IGNORECASE)
_GOES_ON = re.compile(rf"(?:{PHRASES['goes_on']})\b")
_IN_CONDITION = re.compile(rf"\b(?:{PHRASES['in_condition']})\b", re.IGNORECASE)
_NEGATIVE = re.compile(r"\b(?:no|not|never|cannot|nicht|kein)\b", re.IGNORECASE)
_SAYS = re.compile(r":\s|\s[–—=-]\s|->|^(?:no|not|never)\b", re.IGNORECASE)
_NO_TITLE = re.compile(r"\b(?:contents|links|references|index|authors)\b", re.IGNORECASE)
_FINITE = re.compile(r"(?:are|have|must|may|can|cannot|shall|should|will)\b")
_OPEN = re.compile(r"\b(?:may|must|can|shall|should|will|is|are|has|have|not)\b")


def joined(lead: str, line: int, items: Sequence[Block]) -> Iterator[tuple[str, Block | int]]:
    """Join the items of a list with the words that lead in to it, and items with those below them."""
    tops = [i for i, item in enumerate(items) if item.depth == min(item.depth for item in items)]
    groups = [(items[i], items[i + 1 : end]) for i, end in zip(tops, [*tops[1:], len(items)], strict=True)]
    *before, stem = [lead, ""] if is_whole(lead) else _NEXT.split(lead)
    stem = stem.rstrip(" :–—-")
    if before:
        yield " ".join(before), line
    words = {match[0].strip(" ;,") for item, _ in groups if (match := _JOINS.search(item.text))}
    every = _ALL.search(stem) or (words <= {"and", "und"} and words and not _FOLLOWING.search(stem))
    some = _ANY.search(stem) or words in ({"or"}, {"oder"})
    condition = _in_condition(stem)
    runs = (condition or not has_verb(stem)) and any(
        _FINITE.match(i.text) or goes_on(i.text) for i, _ in groups
    )
    one = condition or _ALL.search(stem) or _ANY.search(stem)  # several duties are rules of their own
    choice = some and (RUNS_ON.search(stem) or _CONDITION.match(stem)) and not _NEGATIVE.search(stem)
    if stem and (every or some) and (one or choice):
        parts = [" ".join(text for text, _ in joined(i.text, 0, n)) if n else i.text for i, n in groups]
        word = next(iter(words & {"und", "oder"}), "and" if every else "or")
        # A second sentence of an item stands behind the series.
        ends = [_NEXT.split(part, 1) for part in parts]
        series = _prefixed(lead, stem, _series([_bare(part) for part, *_ in ends], word), runs)
        yield " ".join([series, *(more for _, *rest in ends for more in rest)]), line
        return
    for item, nested in groups:
        bare = _bare(item.text)
        alone = (
            not stem
            or (_ANNOUNCES.match(stem) and (has_verb(bare) or _SAYS.search(bare)))
            or (has_verb(bare) and bare[:1].isupper() and (is_whole(item.text) or _FOLLOWING.search(stem)))
        )
        if alone and not (RUNS_ON.search(stem) or _CONDITION.match(stem)):
            text = item.text if nested or is_whole(item.text) or not stem else f"{bare}."
        else:
            text = _prefixed(lead, stem, item.text.strip() if nested else bare, runs)
        if nested:
            text = text if is_whole(item.text) else text.removesuffix(".")
            yield from joined(text, item.line_at(0), nested)
        else:
            yield text, item


def _in_condition(stem: str) -> bool:
    """Whether words end within a condition: "... if the guest", no verb since its beginning, but for the last word."""
    openers = [*_IN_CONDITION.finditer(stem)]
    return bool(openers) and not has_verb(stem[openers[-1].end() :].strip().rpartition(" ")[0])


def whole_item(title: str, text: str) -> str:
    """Put the title above an item before what says nothing alone: "passport", "must sign in"."""
    if text[:1].islower() and (_FINITE.match(text) or goes_on(text)):
        return f"{title} {text}"
    says = is_whole(text) or has_verb(text) or leading(text)
    return text if says or _SAYS.search(text) or _NO_TITLE.search(title) else f"{title}: {text}"


def _prefixed(lead: str, stem: str, text: str, runs: bool = False) -> str:
    """Put the words that lead in before an item: at once where the sentence runs on, else behind a comma or a colon."""
    mark = ":"
    if _CONDITION.match(stem) and has_verb(stem) and not RUNS_ON.search(stem) and "," not in stem:
        mark = ","
    elif (
        RUNS_ON.search(stem)
        or (_OPEN.search(stem) and not lead.endswith(":"))
        or _GOES_ON.match(text)
        or (runs and has_verb(f"it {text.partition(' ')[0].lower()}"))
    ):
        mark = ""
    end = "" if text.endswith((":", "!", "?", ".")) else "."
    return f"{stem}{mark} {text if mark == ':' else _lower(text)}{end}"


def _bare(text: str) -> str:
    text = _JOINS.sub("", text.strip()).rstrip(" ;,")
    return text if ABBREVIATED.search(text) else text.rstrip(" ;,.")


def _series(texts: Sequence[str], word: str) -> str:
    texts = [_lower(text) for text in texts]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {word} {texts[-1]}"


def _lower(text: str) -> str:
    """Begin a text in lower case, where its first word is a usual one."""
    first = text.split(" ")[0]
    return text[:1].lower() + text[1:] if first.lower() in LISTS["lower"] or has_verb(first) else text
