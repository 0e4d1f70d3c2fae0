"""Openings of sentences: a condition, a place or a time, which ends where a main clause begins."""

import re
from collections.abc import Sequence
from itertools import pairwise

from . import lexicon as lex
from .lexicon import LISTS, VERBS, blanked, goes_on, has_verb, is_plural, patterns, words_of

_RE = patterns("openings")
CLAUSAL, LEAD, ARROW = _RE.clausal, _RE.lead, _RE.arrow
_TAKING = "not_before_verb restricts modals pronouns relative before_order not_before_clause"
_TAKES = frozenset(word for name in _TAKING.split() for word in LISTS[name])
"""Words that a noun phrase or a verb follows, so no main clause begins behind them."""
_SUBJECTS = lex.ARTICLES | LISTS["pronouns"] | lex.OWNERS
_PARTICIPLES = re.compile(rf"(?:\w{{3,}}ed|{'|'.join(LISTS['participles'])}) (?:and|or)\b")


def leading(text: str) -> tuple[str, str] | None:
    """``If ..., ...`` and its relatives: the condition ends where a main clause begins."""
    if not LEAD.match(text):
        return None
    commas = _commas(text)
    clausal, then = bool(CLAUSAL.match(text)), re.search(r"(?<![.!?]),?\s+then,?\s+", text, re.IGNORECASE)
    rest = text[then.end() :] if then else ""
    first = text[: then.start() if then else 0].split()[1:]
    whole = then and (then[0][0] == "," or has_verb(" ".join(first)) or _SUBJECTS.isdisjoint(first[:1]))
    follows = has_verb(rest) or "=" in rest or (then and (then[0].isupper() or [then.start()] == commas[:1]))
    if then and whole and follows and (clausal or text[:5].lower() == "given"):
        return text[: then.start()], rest
    colon = text.find(": ", 0, commas[0]) if commas else -1
    if colon > 0 and (parts := _uncomma(text, text[:colon], clausal)):
        return parts  # the commas are those of a list behind it
    named = colon > 0 and text[:colon].split()[-1][0].isupper()  # "If the From: line says x, ..."
    order = VERBS.get(text[colon + 2 :].split(" ")[0].lower())  # "In overdose: call a doctor, ..."
    if (
        colon > 0 and (clausal or order) and not named and has_verb(text[colon : commas[0]])
    ):  # "If in eyes: rinse; ..."
        end = commas[-1] if _RE.lists.search(text[:colon]) else colon
        return None if _still(text[end + 1 :].strip()) else (text[:end], text[end + 1 :])
    if commas and clausal and text[: commas[0]].split()[-1] in lex.MODALS:
        return _uncomma(text, text[: commas[0]], clausal)  # "... the buyer shall, within 7 days, inform ..."
    segments = [text[start + 1 : end].strip() for start, end in pairwise([*commas, len(text)])]
    first = text[: commas[0] if commas else 0].lower().split()[1:]
    # "If rent, ...", "If service charge, ...": nouns that are verbs, too, are no clause
    noun = first and VERBS.get(first[-1]) and not (is_plural("".join(first[-2:-1])) or "and" in first)
    complete = not clausal or has_verb(" ".join(first[:-1] if noun else first))
    above = 0  # the first of the commas before bare words, which may be the clause's first subjects
    said = has_verb(text[: commas[0]]) if commas else False  # a verb, so far
    for comma, segment in zip(commas, segments, strict=True):
        still = _still(segment)
        more = None if clausal else _RE.last_of_list.match(segment)
        if more and has_verb(segment[more.end() :]) and not has_verb(more[0]):
            at = text.index(segment, comma) + more.end()
            return text[:at], text[at:]
        if text[comma] == ";" and not clausal and said:
            break  # "In winter doors are shut; ..."
        # a condition without a verb so far is a list, or an insertion, in its middle
        last = comma == commas[-1]
        # "at a quorum of less than half, *the chair* adjourns": its verb is not known, none is in the opening
        named = len(segment.split()) > 3 and segment.lower().split()[0] in _SUBJECTS
        alone = last and named and not clausal and text[:3].lower() != "to "
        verb = has_verb(segment)
        clause = verb or (alone and not said)
        if clause and not still and (complete or last):
            listed = _RE.last_subjects.match(segment)
            at = above if above and listed and not has_verb(listed[0]) else comma
            return text[:at], text[at + 1 :]
        bare = complete and re.fullmatch(r"[\w-]+(?: [\w-]+)?", segment) and not still
        above = (above or comma) if bare else 0
        complete, said = complete or verb, said or verb
    if commas and clausal and not _RE.still_premise.match(segments[-1]):
        begins = [comma for comma, part in zip(commas, segments, strict=True) if not _still(part)]
        at = [commas[-1], *begins][-1]  # "..., half the price, but no more than 9 euros, is charged"
        return text[:at], text[at + 1 :]
    return _uncomma(text, text[: commas[0]] if commas else text, clausal)


def _still(segment: str) -> bool:
    """Whether a segment goes on with the condition before it."""
    return bool(_RE.still_premise.match(segment) or _PARTICIPLES.match(segment)) or goes_on(segment)


def _uncomma(text: str, first: str, clausal: bool) -> tuple[str, str] | None:
    """``If a book is lost the borrower pays``, ``In an emergency call 112``: the one place where a main clause begins.

    It begins with a subject that no word before it takes, else with an order; ``first`` is the text up to its comma.
    """
    words = [] if ARROW.search(first) else words_of(first)[:60]
    subjects, orders = [], []
    trios = zip([(0, ""), *words], words, words[1:], [*words[2:], (0, "")], strict=False)
    for (_, earlier), (_, before), (at, word), (_, after) in trios:
        said = first[:at].partition(" ")[2]
        whole = not clausal or has_verb(said) or re.match(r"\w+ing\b|in\b|on\b|not\b|possible\b", said)
        if not whole or before in _TAKES or LEAD.fullmatch(before) or _RE.still_premise.fullmatch(before):
            continue
        governed = earlier in lex.NOT_BEFORE_VERB or LEAD.fullmatch(earlier)
        noun = before not in VERBS or (earlier != "to" and governed)
        if re.fullmatch(r"\w+ing ", said) and word not in LISTS["pronouns"]:
            noun = False  # "When calculating *the fee* round up"
        named = word in _SUBJECTS and noun and has_verb(first[at:])
        if named or (not clausal and _bare_subject(first[:at].split(), earlier, before, word, after)):
            subjects.append(at)
        elif not clausal and word != "no" and is_plural(before) and earlier[-2:] != "ed" and not governed:
            continue  # "In the desert players lose", "On school days bring lunch": a subject, or an order
        elif word in LISTS["before_order"] or (word == "no" and not clausal):
            orders.append(at)
        elif VERBS.get(word) and (
            after in lex.ARTICLES | lex.OWNERS | LISTS["after_order"]
            or after[:1].isdigit()
            or (not clausal and before not in lex.NOT_BEFORE_VERB and LEAD.fullmatch(after))
            or (not clausal and _RE.named.match(first, at + len(word)))
        ):
            rest = _RE.order_ends.split(first[at + len(word) :])[0]
            orders += [] if has_verb(rest) else [at]
    places = subjects or orders
    return (text[: places[0]], text[places[0] :]) if len(places) == 1 else None


def _bare_subject(opening: Sequence[str], earlier: str, before: str, word: str, after: str) -> bool:
    """Whether a plural without an article begins the main clause: behind a plural, a name, a number, or one noun."""
    modal, last = after in lex.MODALS, opening[-1]
    if not (is_plural(word) and (modal or (VERBS.get(after) and (word not in VERBS or is_plural(before))))):
        return False
    return (
        (is_plural(before) and (modal or opening[0].lower() != "for"))  # "For sales reps fill in ..."
        or (last[0].isupper() and earlier not in lex.ARTICLES)
        or (last[0].isdigit() and earlier.isalpha() and earlier not in _TAKES and not LEAD.fullmatch(earlier))
        or (modal and len(opening) == 2 + (opening[1:2] == ["the"]))
        or (last.endswith(".m.") or earlier in ("a", "an", "each", "every"))
    )


def _commas(text: str) -> list[int]:
    """Return the commas and semicolons outside numbers, brackets and quotes."""
    shown = blanked(blanked(_RE.braces.sub(lambda match: "\0" * len(match[0]), text)))  # nested brackets
    return [match.start() for match in _RE.comma.finditer(shown)]
