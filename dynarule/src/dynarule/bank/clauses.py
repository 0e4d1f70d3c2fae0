"""The premise and the conclusion of a rule, by the structure of its sentence.

A comma ends a leading condition only where a main clause begins behind it, so the commas of numbers and of lists do not
split a rule. Where no structure is sure the whole rule is both its premise and its conclusion.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from itertools import islice, pairwise
from typing import NamedTuple


class Clauses(NamedTuple):
    """A premise, a conclusion, and whether the split is sure; if not, both are the whole rule."""

    premise: str
    conclusion: str
    sure: bool


_CLAUSES = (
    "if|when|whenever|where|wherever|once|unless|until|while|as soon as|as long as|so long as|provided|providing|"
    "in case(?! of)|in the event(?! of)|except when|except if|should|given that|assuming|suppose|even if|only if|"
    "only when|because|since"
)
_CLAUSAL = re.compile(rf"(?:{_CLAUSES})\b", re.IGNORECASE)
"""The beginning of a condition with a verb of its own."""
_LEAD = re.compile(
    rf"(?:{_CLAUSES}|in|in case of|in the event of|before|after|during|upon|on|at|for|from|with|without|within|to|"
    r"except|given|by|under|among|between|outside|inside|above|below|over)\b",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r",?\s+(?:(?:but|and)\s+)?(?=(?:only\s+)?(?:if|when|whenever|unless|provided(?: that)?|as long as|so long as|"
    r"as soon as|once|until|in case(?: of)?|in the event(?: of| that)?|before|after|where|"
    r"except (?:when|if|in|for|on|where|during|with)|only (?:with|after|by|during|in|on|for|to))\s)",
    re.IGNORECASE,
)
_LOGIC = re.compile(r"\s*(?:=>|⇒)\s*")
_ARROW = re.compile(r"\s*(?:->|→)\s*")
_PROLOG = re.compile(r"([a-z]\w*\s*(?:\(.*?\))?)\s*:-\s*(.+?)\.?$", re.DOTALL)
_ABBREVIATED = re.compile(r"\b\w\.\w\.$|\betc\.$")
_MODAL = set(
    "is are was were be am has have had do does did may might must can cannot could shall should will would need needs "
    "ought isn't aren't doesn't don't won't can't mustn't".split()
)
_NOT_BEFORE_VERB = set(
    "a an the this that these those any every each no some all both another other its his her their our your my of for "
    "in on with per by from at under over between into than about less more least most".split()
)
_STILL_PREMISE = re.compile(
    r"(?:and|or|nor|but not|as well as|including|such as|even if|if|when|unless|who|whose|which|whom|where|that|except|"
    r"with|without|whether|not|for example|e\.g\.|i\.e\.)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def _verbs() -> frozenset[str]:
    forms: set[str] = set()
    for verb in resources.files(__package__).joinpath("verbs.txt").read_text(encoding="utf-8").split():
        ends = verb.endswith(("s", "sh", "ch", "x", "z", "o"))
        consonant_y = verb.endswith("y") and verb[-2] not in "aeiou"
        forms |= {verb, verb + "es" if ends else verb[:-1] + "ies" if consonant_y else verb + "s"}
    return frozenset(forms)


def has_verb(text: str) -> bool:
    """Say whether a text has a finite verb: a modal, a form of be, have or do, or a verb of rules in its place."""
    words = re.findall(r"[\w']+", text.lower())
    for before, word in zip(["", *words], words, strict=False):
        if word in _MODAL or (word in _verbs() and before not in _NOT_BEFORE_VERB):
            return True
    return False


def split_rule(rule: str) -> Clauses:
    """Return the premise and the conclusion of a rule.

    Examples
    --------
    >>> split_rule("If the price is over 1,000 euros, the manager signs.")
    Clauses(premise='If the price is over 1,000 euros', conclusion='the manager signs', sure=True)
    >>> split_rule("A bag flies free only if it weighs less than 8 kg.").premise
    'only if it weighs less than 8 kg'
    >>> split_rule("All bridges are closed.").sure
    False
    """
    whole = " ".join(rule.split())
    text = whole if _ABBREVIATED.search(whole) else whole.removesuffix(".")
    for find in (_logic, _leading, _trailing, _label):
        parts = find(text)
        if parts and all(part.strip(" .,;:") for part in parts):
            premise, conclusion = (part.strip().rstrip(",;:") for part in parts)
            return Clauses(premise, conclusion, True)
    return Clauses(whole, whole, False)


def _logic(text: str) -> tuple[str, str] | None:
    """``P => Q``, ``P -> Q`` (no path through menus), ``head :- body.``."""
    if match := _PROLOG.fullmatch(text):
        return match[2], match[1]
    parts = _LOGIC.split(text, maxsplit=1)
    if len(parts) == 2:
        return parts[0], parts[1]
    parts = _ARROW.split(text)
    condition = "(" in parts[0] or _CLAUSAL.match(text) or has_verb(parts[0])
    if len(parts) != 2 or not condition or _leading(text):
        return None
    menu = re.search(r"\b[A-Z]\w+$", parts[0]) and re.match(r"[A-Z]\w+\b", parts[1])
    return None if menu and "(" not in parts[0] else (parts[0], parts[1])


def _leading(text: str) -> tuple[str, str] | None:
    """``If ..., ...`` and its relatives: the condition ends where a main clause begins."""
    if not _LEAD.match(text):
        return None
    commas = _commas(text)
    clausal, then = bool(_CLAUSAL.match(text)), re.search(r",?\s+then\s+", text, re.IGNORECASE)
    if clausal and then and has_verb(text[then.end() :]):
        return text[: then.start()], text[then.end() :]
    segments = [text[start + 1 : end].strip() for start, end in pairwise([*commas, len(text)])]
    complete = not clausal or (commas and has_verb(text[: commas[0]].partition(" ")[2]))
    for comma, segment in zip(commas, segments, strict=True):
        goes_on = _STILL_PREMISE.match(segment) or _goes_on(segment)
        # a condition without a verb so far is a list, or an insertion, in its middle
        if has_verb(segment) and not goes_on and (complete or comma == commas[-1]):
            return text[:comma], text[comma + 1 :]
        complete = complete or has_verb(segment)
    if commas and clausal and not _STILL_PREMISE.match(segments[-1]):
        return text[: commas[-1]], text[commas[-1] + 1 :]
    return None


def _goes_on(segment: str) -> bool:
    """Whether a segment begins with the verb of the condition's subject: "is under 2, *sits* on a lap, ..."."""
    word = segment.partition(" ")[0].lower()
    return word in ("is", "was", "has", "does") or (word in _verbs() and word.endswith("s"))


def _commas(text: str) -> list[int]:
    """Return the commas outside numbers, brackets and quotes."""
    inside, places = 0, []
    quoted = False
    for i, sign in enumerate(text):
        inside += (sign in "([{") - (sign in ")]}")
        quoted = not quoted if sign in '"“”' else quoted
        number = text[i - 1 : i].isdigit() and text[i + 1 : i + 2].isdigit()
        if sign == "," and inside <= 0 and not quoted and not number:
            places.append(i)
    return places


def _trailing(text: str) -> tuple[str, str] | None:
    """``... if ...``, ``... unless ...``, ``... must ... before ...``."""
    for match in islice(_TRAILING.finditer(text), 8):
        premise, conclusion = text[match.end() :], text[: match.start()]
        inside = conclusion.count("(") > conclusion.count(")")
        if match[0].startswith(",") and "," in premise:
            continue  # "..., if delayed, ...": a condition within a sentence
        when = re.match(r"(?:if|when|unless|once|before|after|until|in|only)\b", premise, re.IGNORECASE)
        if not inside and has_verb(conclusion) and (when or has_verb(premise)):
            return premise, conclusion
    return None


def _label(text: str) -> tuple[str, str] | None:
    """``Gold members: free``: a condition, or a few words without a verb, a colon, what holds for them."""
    label, colon, rest = text.partition(": ")
    if (
        colon
        and rest.strip()
        and (_CLAUSAL.match(label) or (len(label.split()) <= 8 and not has_verb(label)))
    ):
        return label, rest
    return None
