"""Does a reworded question still ask the same? Decided from the two texts alone; in doubt the answer is no.

A text is read as a sequence of mentions. A mention is a creature with its indefinite article (``a tiny cat``), a
state, a place with its preposition, a verb, an attribute that is counted (``with 9 strong horns``), changed (``loses 2
strong horns``) or asked for (``how many strong horns``), or one of the words that name a path (``which state``, ``the
environment``). The mentions of the rewording, cut into runs as long as those of the sub-questions, must be the same run
by run: the same mentions equally often, the creatures in the same order, the same one acting on the same other. All
other words must be in a closed list (``words.txt``) that holds no number, no name and no word that negates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from ..questions import merge_templates
from ..world import load_vocabulary

SHORTEST, LONGEST = 0.5, 2.0
"""Bounds of a rewording's length, relative to the question."""

_PLAIN = re.compile(r"[A-Za-z0-9 ,;:.?!()'-]+")
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")
_INDEFINITE = {"a", "an", "any", "another", "some"}
_ENTERING = set("enter enters entered entering board boards boarded boarding into onto inside".split())
_BEING = {"is", "was", "are", "were", "be", "been", "being"}
_BEFORE_VERB = _BEING | set("has had have does did do will would then that which".split())
_APART = set(
    "own separate separately independent independently unrelated afresh fresh isolation individually".split()
)
_CASES = set(
    "case cases scene scenes scenario scenarios situation situations question questions part parts".split()
)
_HAVING = set("with has had have having possess possesses possessing owns owning".split())


class Mention(NamedTuple):
    """What a text mentions, and where: ``words[start:stop]``."""

    what: tuple[str, ...]
    start: int
    stop: int


class _Refused(Exception):
    """A text that says something that the checker cannot accept."""


def sub_questions(question: str) -> list[str]:
    """Cut a merged template question into its sub-questions.

    Raises
    ------
    ValueError
        If no merge template made it.
    """
    for template in merge_templates():
        before, after = template.text.split("{parts}")
        if question.startswith(before) and question.endswith(after):
            parts = question[len(before) : len(question) - len(after)].split("; ")
            if len(parts) > 1 and parts[-1].startswith("and "):
                return [*parts[:-1], parts[-1].removeprefix("and ")]
    raise ValueError(
        f"cannot cut {question!r} into sub-questions: it follows no merge template; make the build again with this "
        "version: ruleworld build"
    )


def why_refused(question: str, wording: str) -> str | None:
    """Say why a rewording cannot replace a merged template question.

    Parameters
    ----------
    question : str
        The template question.
    wording : str
        One line, stripped.

    Returns
    -------
    str or None
        The first reason found; None if the rewording asks the same.

    Raises
    ------
    ValueError
        If no merge template made the question.
    """
    clauses = sub_questions(question)
    if not _PLAIN.fullmatch(wording):
        return "it is not one line of plain text"
    if wording[-1] not in ".?":
        return "it does not end with a full stop or a question mark"
    if not SHORTEST * len(question) <= len(wording) <= LONGEST * len(question):
        return f"its length of {len(wording)} characters is far from the question's {len(question)}"
    try:
        words = _words(wording)
        if not _APART.intersection(words):
            return "it does not say that the cases are separate"
        mentions = _mentions(words)
        for clause in clauses:
            clause_words = _words(clause)
            wanted = _mentions(clause_words)
            found, mentions = mentions[: len(wanted)], mentions[len(wanted) :]
            _compare(wanted, clause_words, found, words)
    except _Refused as refused:
        return str(refused)
    return f"it adds {' '.join(mentions[0].what)!r}" if mentions else None


def _words(text: str) -> list[str]:
    """Lower-case words, numbers and signs."""
    return _TOKEN.findall(text.lower())


def _compare(
    wanted: Sequence[Mention], wanted_words: list[str], found: Sequence[Mention], found_words: list[str]
) -> None:
    want, have = Counter(m.what for m in wanted), Counter(m.what for m in found)
    if want != have:
        for missing in want - have:
            raise _Refused(f"{' '.join(missing)!r} is not where the question has it, or not as often")
        raise _Refused(f"it adds {' '.join(next(iter(have - want)))!r}")  # a run of mentions cut short
    if _bearers(wanted) != _bearers(found):
        raise _Refused("the creatures of a sub-question, or what one has, are in another order")
    roles = _roles(found, found_words)
    for want_role, role, other in zip(_roles(wanted, wanted_words), roles, reversed(roles), strict=True):
        if (want_role and role != want_role) or (role and role == other):
            raise _Refused("it is not clear that the same creature acts on the same other one")


def _bearers(mentions: Sequence[Mention]) -> list[tuple[str, ...]]:
    """List creatures and what they have: the first is the one that is asked about, a count belongs to the last."""
    return [m.what for m in mentions if m.what[0] in ("creature", "count")]


def _roles(mentions: Sequence[Mention], words: list[str]) -> list[str]:
    """Return for each creature beside the verb whether it acts or suffers; nothing for one that is not beside it."""
    creatures = [m for m in mentions if m.what[0] == "creature"]
    roles = [""] * len(creatures)
    for act in (m for m in mentions if m.what[0] == "act"):
        passive = words[act.stop : act.stop + 1] == ["by"]
        right, left = act.stop + passive, act.start
        while left and words[left - 1] in _BEFORE_VERB:
            left -= 1
        for i, creature in enumerate(creatures):
            if creature.start == right:
                roles[i] = "actor" if passive else "target"
            elif creature.stop == left:
                roles[i] = "target" if passive else "actor"
    # A creature on its own needs no other to differ from.
    return roles if len(roles) > 1 else []


def _mentions(words: list[str]) -> list[Mention]:
    """Read all mentions of a text, in order."""
    mentions: list[Mention] = []
    i = 0
    while i < len(words):
        kind, name, stop = _term_at(words, i)
        mention = _mention(words, i, stop, kind, name) if kind else _other_word(words, i)
        if mention:
            mentions.append(mention)
        i = max(i + 1, stop, mention.stop if mention else 0)
    return mentions


def _term_at(words: list[str], i: int) -> tuple[str, str, int]:
    """Return kind and name of the longest term that begins at a word, and where it stops."""
    lexicon = _lexicon()
    for stop in range(min(len(words), i + lexicon.longest), i, -1):
        term = lexicon.terms.get(" ".join(words[i:stop]))
        if term:
            return *term, stop
    return "", "", i + 1


def _mention(words: list[str], i: int, stop: int, kind: str, name: str) -> Mention | None:
    """Read a term together with the words that tie it to its place in the sentence."""
    before = words[max(0, i - 2) : i]
    last = words[i - 1] if i else ""
    if kind == "entity":
        if last not in _INDEFINITE:
            raise _Refused(f"{name!r} has no 'a' or 'an' before it")
        return Mention(("creature", name), i - 1, stop)
    if kind == "attribute":
        if before in (["how", "many"], ["number", "of"]):
            return Mention(("how many", name), i, stop)
        raise _Refused(f"{name!r} is neither counted nor asked for")
    if kind == "place":
        preposition, article = _lexicon().places[name]
        if last != article or before[0] not in _ENTERING | {preposition}:
            raise _Refused(f"{name!r} does not follow '{preposition} {article}'")
        return Mention(("place", name), i, stop)
    if kind == "change":
        if not words[stop : stop + 1] or not words[stop].isdecimal():
            raise _Refused(f"{words[i]!r} is followed by no number")
        counted = _counted(words, stop)
        return Mention(("change", name, *counted.what[1:]), i, counted.stop)
    if kind == "act":
        if (last, words[i]) in (("the", "following"), ("as", "follows")):
            return None
        passive = last in _BEING and not words[i].endswith("ing")
        if passive and words[stop : stop + 1] != ["by"]:
            raise _Refused(f"{words[i]!r} does not say by whom")
    return Mention((kind, name), i, stop)


def _other_word(words: list[str], i: int) -> Mention | None:
    """Read a number or a word of the asks; refuse what is in no list."""
    word, last = words[i], words[i - 1] if i else ""
    if word.isdecimal():
        if last not in _HAVING:
            raise _Refused(f"{word} does not follow 'with' or 'has'")
        return _counted(words, i)
    if word == "creature" and last in _INDEFINITE:
        return Mention(("creature", "creature"), i - 1, i + 1)
    if word in ("state", "environment") and last in ("which", "what"):
        return Mention(("which", word), i, i + 1)
    if word == "environment" or (word in ("act", "action") and last in ("the", "that", "this")):
        return Mention(("the", "act" if word == "action" else word), i, i + 1)
    if word in ("each", "every") and not _CASES.intersection(words[i + 1 : i + 5]):
        raise _Refused(f"{word!r} can mean more than one creature")
    if word[0].isalpha() and word not in small_words():
        raise _Refused(f"{word!r} is neither a whole name nor a word that a rewording may use")
    return None


def _counted(words: list[str], i: int) -> Mention:
    """Read a number and the attribute right after it."""
    kind, name, stop = _term_at(words, i + 1) if i + 1 < len(words) else ("", "", i + 1)
    if kind != "attribute":
        raise _Refused(f"the number {words[i]} counts nothing")
    return Mention(("count", words[i], name), i, stop)


@lru_cache(maxsize=1)
def small_words() -> frozenset[str]:
    """Return the words that a rewording may use besides the mentions."""
    text = resources.files(__package__).joinpath("words.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


class _Lexicon(NamedTuple):
    """Kind and name of every term in each of its forms, and preposition and article of the places; of all versions."""

    terms: dict[str, tuple[str, str]]
    places: dict[str, tuple[str, str]]
    longest: int


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    words = load_vocabulary()
    attributes = words.plural_of.items()
    terms = {name: ("entity", name) for name in words.entities}
    terms |= {form: ("attribute", name) for name, plural in attributes for form in (name, plural)}
    terms |= {name: ("state", name) for name in words.states}
    terms |= {place.name: ("place", place.name) for place in words.environments}
    for kind, verbs in (("act", words.actions), ("change", (*words.minus, *words.plus))):
        terms |= {form: (kind, verb.base) for verb in verbs for form in vars(verb).values()}
    places = {place.name: (place.preposition, place.article) for place in words.environments}
    return _Lexicon(terms, places, max(len(term.split()) for term in terms))
