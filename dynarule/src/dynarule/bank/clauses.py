"""The premise and the conclusion of a rule, by the structure of its sentence.

A comma ends a leading condition only where a main clause begins behind it, so the commas of numbers and of lists do not
split a rule; a subject is a premise where something in it restricts it ("children *under 6*", "anyone *who* ...").
Where no structure is sure the whole rule is both its premise and its conclusion.
"""

import re
from itertools import islice, pairwise
from typing import NamedTuple

from . import lexicon as lex
from .lexicon import LISTS, VERBS, blanked, has_verb, is_plural, patterns, words_of
from .openings import ARROW, CLAUSAL, LEAD, leading


class Clauses(NamedTuple):
    """A premise, a conclusion, and whether the split is sure; if not, both are the whole rule."""

    premise: str
    conclusion: str
    sure: bool


_RE = patterns("clauses")
_FORMS = [re.compile(pattern, re.DOTALL | re.IGNORECASE) for pattern in lex.WORDS["forms"].values()]
ABBREVIATED = re.compile(r"\b\w\.\w\.$|\betc\.$")
"""The end of a text that keeps its stop."""


def split_rule(rule: str) -> Clauses:
    """Return the premise and the conclusion of a rule.

    Sentences behind the first belong to the conclusion. A place, a time or a group that opens a sentence is joined with
    the condition that ends it: "In zone D, if the permit has expired".

    Examples
    --------
    >>> split_rule("If the price is over 1,000 euros, the manager signs.")
    Clauses(premise='If the price is over 1,000 euros', conclusion='the manager signs', sure=True)
    >>> split_rule("A bag flies free only if it weighs less than 8 kg.").premise
    'only if it weighs less than 8 kg'
    >>> split_rule("Children under 6 travel free.").premise
    'Children under 6'
    >>> split_rule("All bridges are closed.").sure
    False
    """
    whole = " ".join(rule.split())
    text = whole if ABBREVIATED.search(whole) else whole.removesuffix(".")
    places = (match.start() for match in _RE.sentence.finditer(text))
    ends = (at for at in places if not _RE.no_end.search(text, max(0, at - 9), at))
    first = text[: next(ends, len(text))]
    label = _RE.labelled.match(first)
    if label:  # "RENT: When you land on ...", "Note: ..."
        text, first = text[label.end() :], first[label.end() :]
    # "it ends if ...; the next begins", "it ends if ..., otherwise it goes on"
    begun = _RE.begun.match(first)
    finds = _logic, leading, _label, _behind
    reads = [(find, part) for part in dict.fromkeys([begun[0] if begun else first, first]) for find in finds]
    for find, read in [(_forms, text), *reads]:
        parts = find(read)
        if parts and all(part.strip(" .,;:") for part in parts):
            premise, conclusion = (part.strip().rstrip(",;:") for part in parts)
            sides = (premise, conclusion), (conclusion, premise)
            if find is not _label and any(
                _RE.announced.search(one) and ": " not in one and ": " in other for one, other in sides
            ):
                break  # "If any of the following applies, it is refused: ...": the list belongs to the other part
            place = find is leading and not CLAUSAL.match(premise) and premise[:3].lower() != "to "
            more = _trailing(conclusion, clause=True) if place else None
            # "In zone D, drivers pay 3 euros if the permit has expired"
            if more and _RE.conditional.match(more[0]):
                premise, conclusion = f"{premise}, {more[0]}", more[1].rstrip(",;:")
            return Clauses(premise, conclusion + text[len(read) :], True)
    return Clauses(whole, whole, False)


def parts_of(rule: str) -> tuple[str, str]:
    """Return what a search takes as a rule's premise and conclusion.

    They are those of `split_rule`. Where these are not sure, or the premise is a few words at the end without a verb,
    a rule is about its subject, or about what its end restricts; one that says what a person does, about that.

    Examples
    --------
    >>> parts_of("The Heron tank is locked at 20:15.")
    ('The Heron tank', 'is locked at 20:15')
    >>> parts_of("Ms Ito ticks off the names of all who come late.")
    ('all who come late', 'Ms Ito ticks off the names')
    """
    premise, conclusion, sure = split_rule(rule)
    text = " ".join(rule.split()).removesuffix(".")
    if sure and (text.find(premise) <= text.find(conclusion) or has_verb(premise)):
        return premise, conclusion
    pairs = pairwise([(0, ""), *words_of(text)])
    verbs = (at for (_, one), (at, word) in pairs if at and one not in lex.RELATIVE and _finite(word, one))
    if not (at := next(verbs, 0)):
        return premise, conclusion
    subject, said = text[:at].strip(), text[at:]
    if restricted := _RE.restricted.search(said):
        return said[restricted.end() :], f"{subject} {said[: restricted.start()]}"
    return (said, text) if _RE.person.match(subject) else (subject, said)


def _finite(word: str, before: str) -> bool:
    return word in lex.MODALS or (word in VERBS and before not in lex.NOT_BEFORE_VERB)


def _forms(text: str) -> tuple[str, str] | None:
    """``head :- body``, a question and its answer, "no ticket, no entry"."""
    match = next(filter(None, (form.fullmatch(text) for form in _FORMS)), None)
    return (match["premise"], match["conclusion"]) if match else None


def _logic(text: str) -> tuple[str, str] | None:
    """``P => Q``, ``P -> Q`` (no path through menus)."""
    parts = _RE.logic.split(text, maxsplit=1)
    if len(parts) == 2:
        return parts[0], parts[1]
    parts = ARROW.split(text)
    clause = CLAUSAL.match(text) or has_verb(parts[0]) or parts[-1][:1].islower()
    if len(parts) != 2 or not (clause or re.search(r"[(<>=≤≥]", parts[0])) or leading(text):
        return None
    menu = re.search(r"\b[A-Z]\w+$", parts[0]) and re.match(r"[A-Z]\w+\b", parts[1])
    return None if menu and "(" not in parts[0] else (parts[0], parts[1])


def _behind(text: str) -> tuple[str, str] | None:
    """``... if ...``, ``... unless ...``, ``... must ... before ...``, else a subject that is restricted."""
    if LEAD.match(text) or _RE.status.match(text) or _RE.defines.match(text):
        return None
    subject = _subject(text)
    if subject and (other := _RE.no_list.search(subject[0])):  # no list: "Starting in May, the office closes"
        return text[: other.start()], text[other.end() :]
    return _trailing(text, len(subject[0]) if subject else 0) or subject


def _trailing(text: str, start: int = 0, clause: bool = False) -> tuple[str, str] | None:
    """Return a condition at the end of a text, and what stands before it: a clause, where that is known."""
    if _RE.two_cases.search(text):
        return None
    for match in islice(_RE.trailing.finditer(blanked(text), start), 8):
        premise, conclusion = text[match.end() :], text[: match.start()]
        if ";" in conclusion or len(re.findall(" [–—] ", text)) == 1:
            return None  # "Return it; we pay only if ...": a condition of the last clause alone
        if match[0].startswith(",") and "," in premise:
            continue  # "..., if delayed, ...": a condition within a sentence
        if re.search(r":$|\(\w{1,4}\)$|\((?:ii|b|2)\) ", conclusion):
            continue  # "2nd offence: until noon"; the last of several in brackets
        if match[0][0] == "," and re.match("when|where|while|once|before|after|until", premise):
            continue  # "..., when no notice is needed"
        other, more = _RE.another.search(premise), _RE.series.split(conclusion)[-1]
        if (other and VERBS.get(other[1])) or (more != conclusion and not has_verb(more)):
            return None  # "... sign in when they arrive and sign out when they leave", "..., and 20 euros if ..."
        told = premise.startswith("where ") and _RE.tells.search(conclusion)  # "Tell the driver where ..."
        told = told or premise.startswith(("where to ", "when to "))
        asked = " where " not in conclusion and _RE.asks.search(conclusion)
        if told or asked or (_RE.term.search(conclusion) and re.match("after|before", premise)):
            continue
        if premise.startswith("without") and not _RE.negative.search(conclusion):
            continue
        bare = lex.MODALS.isdisjoint(conclusion.lower().split()) and not VERBS.get(
            conclusion.split(" ")[0].lower()
        )
        if bare and _RE.placed.search(conclusion):
            continue  # "Express orders placed after 2 p.m. ship the next day"
        if (clause or has_verb(conclusion)) and (_RE.verbless.match(premise) or has_verb(premise)):
            return premise, conclusion
    return None


def _subject(text: str) -> tuple[str, str] | None:
    """``Anyone who is late ...``, ``Children under 6 ...``: a subject that something restricts, and what it does."""
    words = words_of(text)
    starts = words[0][1] if words else "no"
    if starts in LISTS["no_subject"] or (starts == "only" and CLAUSAL.match(text[5:])):
        return None
    restricted = starts in LISTS["openers"]
    head = starts if starts in LISTS["anyone"] else ""
    own = False  # the next verb is that of a relative clause
    found: list[int] = []
    for i, (_, word) in enumerate(words):
        before, after = (words[j][1] if 0 <= j < len(words) else "" for j in (i - 1, i + 1))
        if word == "whether" or (word == "if" and before == "know"):
            return None  # "The form asks whether anyone under 18 lives there"
        if before in lex.AMOUNTS and i > 1 and words[i - 2][1] in ("or", "and"):
            before = ""  # "65 or over"
        finite = _finite(word, before)
        if found and (word in lex.RELATIVE | {"and", "or", "but"} or CLAUSAL.fullmatch(word)):
            beyond = re.sub(r"\S+ ", "", text[words[i][0] :], count=2) if word in ("and", "or") else ""
            if text[: words[found[-1]][0]].endswith(", ") and (found[-1] == i - 1 or has_verb(beyond)):
                return None  # "people who smoke, drink or eat here are sent out", "who lend a key or lose it pay"
            break
        if word in lex.RELATIVE:
            head, own, restricted = head or before, True, True
        elif own:
            at_once = before in lex.RELATIVE - {"whose", "whom"} and text[: words[i][0]].rstrip()[-1] != ","
            adverb = word.endswith("ly") or word in LISTS["adverbs"]
            own = not finite and not (at_once and not adverb and word not in lex.ARTICLES | LISTS["pronouns"])
        elif finite and before not in lex.MODALS | {"not", "to", "and", "or", "but"}:
            plural = VERBS.get(word, False)
            if not i and word in VERBS and not plural:
                continue  # "Orders over 50 euros ..."
            if i and word not in lex.MODALS and plural != is_plural(head or before):
                continue
            if not restricted:
                return None
            found.append(i)
            if word in lex.MODALS:
                break
        elif i and not found and starts not in LISTS["definite"] and _restricts(word, before, after, starts):
            head, restricted = head or (before if starts not in LISTS["openers"] else ""), True
    # of two verbs the first may be a noun: "employees on sick *leave* must"
    if len(found) == 2 and found[1] == found[0] + 1 and words[found[1]][1] in lex.MODALS:
        del found[0]
    if len(found) != 1 or not found[0]:
        return None
    at = words[found[0]][0]
    ends = "[:;] " if words[found[0]][1] in lex.MODALS else r"[:;] |\bsuch as\b[^,]*$|, then\b"
    if re.search(ends, text[:at]):
        return None  # "such as health records", "Bake it, then cool it until the crust is hard"
    return text[:at], text[at:]


def _restricts(word: str, before: str, after: str, starts: str) -> bool:
    """Whether a word within a subject begins what restricts it: "under", "placed", "of more than", "older than"."""
    if word == "of":
        return starts in ("each", "every", "any") or after in lex.RESTRICTS | lex.AMOUNTS | {"at", "up"}
    participle = word in LISTS["participles"] or (len(word) > 4 and word.endswith(("ing", "ed")))
    return word in lex.RESTRICTS or after == "than" or participle


def _label(text: str) -> tuple[str, str] | None:
    """``Gold members: free``: a condition, or a few words without a verb, a colon, what holds for them."""
    marks = [mark for mark in _RE.label.finditer(blanked(text)) if text[: mark.start()].strip()]
    if not marks or _RE.no_label.match(text) or _RE.status.match(text):
        return None
    between = text[marks[0].end() : marks[1].start()] if len(marks) > 1 else ""
    if re.search("[,·|]| / ", between) or (len(marks) > 1 and ":" not in marks[0][0]):
        return None  # "Adults: 9 euros, children: 5 euros", "Adults - 9 euros - children - 5 euros"
    two = between and marks[1][0][0] == ":" and len(between.split()) < 5 and not has_verb(between)
    mark = marks[1 if two else 0]  # "Waste: glass: green bin"
    label, rest = text[: mark.start()], text[mark.end() :]
    if "=" in marks[0][0] and re.search(r"(?i)\b(?:if|when|unless|while|until)\b|\{", label):
        return None  # "Return 0 if a = b"
    words = label.lower().split()
    noun = "=" in marks[0][0] or (len(blanked(label).replace("\0", "").split()) <= 8 and not has_verb(label))
    few = len(words) <= 4 and VERBS.keys().isdisjoint(words[1:-1]) and not lex.MODALS.intersection(words)
    open_ = words[0] in LISTS["pronouns"] or (len(words) > 2 and VERBS.get(words[0]) is True)
    few = few and not open_ and VERBS.get(words[-1]) is not True  # "late returns" are no sentence
    return (label, rest) if CLAUSAL.match(label) or noun or few or len(words) == 1 else None
