"""Lists as rules: the items joined with the words that lead in to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..bank.clauses import ABBREVIATED
from ..bank.lexicon import LISTS, PHRASES, goes_on, has_verb
from ..bank.openings import leading
from .blocks import Block, is_whole

_JOINS = re.compile(r"[;,]?\s*\b(and|or|und|oder)\s*$")
_ALL = re.compile(PHRASES["all_of"], re.IGNORECASE)
_ANY = re.compile(r"\b(?:any|one|either|at least one) of (?:the following|these|them)\b", re.IGNORECASE)
_FOLLOWING = re.compile(r"\b(?:following|below|as follows|these|rules|steps|examples?)\b", re.IGNORECASE)
_ANNOUNCES = re.compile(rf"(?:{PHRASES['announces']})", re.IGNORECASE)
"""Words that lead in and say nothing more."""
_NEXT = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_CONDITION = re.compile(r"(?:if|when|whenever|unless|where|provided|in case)\b", re.IGNORECASE)
RUNS_ON = re.compile(rf"\b(?:{'|'.join(LISTS['runs_on'])})$", re.IGNORECASE)
_GOES_ON = re.compile(rf"(?:{PHRASES['goes_on']})\b")
_OPENER = re.compile(rf"\b(?:{PHRASES['in_condition']})\b", re.IGNORECASE)
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
    words = {match[1].lower() for item, _ in groups if (match := _JOINS.search(item.text))}
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
    openers = [*_OPENER.finditer(stem)]
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
