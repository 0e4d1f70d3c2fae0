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
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import chain
from typing import NamedTuple

from ..questions import merge_templates
from ..spec import VERSIONS
from ..world import load_vocabulary

SHORTEST, LONGEST = 0.5, 2.0
"""Bounds of a rewording's length, relative to the question."""

_PLAIN = re.compile(r"[A-Za-z0-9 ,;:.?!()'-]+")
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")
_INDEFINITE = "a|an|any|another|some"
_ENTERING = "enter|enters|entered|entering|board|boards|boarded|boarding|into|onto|inside"
_HAVING = "with|has|had|have|having|possess|possesses|possessing|owns|owning"
_CASES = "cases?|scenes?|scenarios?|situations?|questions?|parts?"
_BEING = {"is", "was", "are", "were", "be", "been", "being"}
_BEFORE_VERB = _BEING | set("has had have does did do will would then that which".split())
_APART = set(
    "own separate separately independent independently unrelated afresh fresh isolation individually".split()
)


class _Mention(NamedTuple):
    what: tuple[str, ...]  # kind and names; nothing of a small word
    text: str


class _Refused(Exception):
    """A text that says something that the checker cannot accept."""


def sub_questions(question: str) -> list[str]:
    """Cut a merged template question into its sub-questions.

    Raises
    ------
    ValueError
        If no merge template made it.
    """
    for template in chain(*map(merge_templates, VERSIONS)):
        before, after = template.text.split("{parts}")
        if question.startswith(before) and question.endswith(after):
            parts = question[len(before) : len(question) - len(after)].split("; ")
            if len(parts) > 1 and parts[-1].startswith("and "):
                return [*parts[:-1], parts[-1].removeprefix("and ")]
    raise ValueError(
        f"cannot cut {question!r} into sub-questions: it follows no merge template; make the build again with this "
        "version: ruleworld build"
    )


def rewording_prompt(question: str) -> str:
    """Return what to ask a language model for a rewording of a merged template question, whose parts it names."""
    text = resources.files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip()
    return text.replace("{questions}", "\n".join(f"- {part}" for part in sub_questions(question)))


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
        rest = _read(wording)
        if not any(mention.text in _APART for mention in rest):
            return "it does not say that the cases are separate"
        for clause in clauses:
            wanted = _read(clause)
            stop = _end_of(rest, sum(bool(mention.what) for mention in wanted))
            _compare(wanted, rest[:stop])
            rest = rest[stop:]
    except _Refused as refused:
        return str(refused)
    more = [mention for mention in rest if mention.what]
    return f"it adds {' '.join(more[0].what)!r}" if more else None


def _end_of(mentions: Sequence[_Mention], count: int) -> int:
    """Return where so many mentions end, small words right before the next one included."""
    places = [place for place, mention in enumerate(mentions) if mention.what]
    return places[count] if count < len(places) else len(mentions)


def _compare(wanted: Sequence[_Mention], given: Sequence[_Mention]) -> None:
    want, have = (Counter(m.what for m in mentions if m.what) for mentions in (wanted, given))
    for missing in want - have:
        raise _Refused(f"{' '.join(missing)!r} is not where the question has it, or not as often")
    if _bearers(wanted) != _bearers(given):
        raise _Refused("the creatures of a sub-question, or what one has, are in another order")
    roles = _roles(given)
    for want_role, role, other in zip(_roles(wanted), roles, reversed(roles), strict=True):
        if (want_role and role != want_role) or (role and role == other):
            raise _Refused("it is not clear that the same creature acts on the same other one")


def _bearers(mentions: Sequence[_Mention]) -> list[tuple[str, ...]]:
    """List creatures and what they have: the first is the one that is asked about, a count belongs to the last."""
    return [m.what for m in mentions if m.what[:1] in (("creature",), ("count",))]


def _roles(mentions: Sequence[_Mention]) -> list[str]:
    """Return for each creature beside the verb whether it acts or suffers; nothing for one that is not beside it."""
    roles = {place: "" for place, mention in enumerate(mentions) if mention.what[:1] == ("creature",)}
    for place, mention in enumerate(mentions):
        if mention.what[:1] != ("act",):
            continue
        passive = [m.text for m in mentions[place + 1 : place + 2]] == ["by"]
        left = place - 1
        while left >= 0 and mentions[left].text in _BEFORE_VERB:
            left -= 1
        for neighbour, role in ((place + 1 + passive, "target"), (left, "actor")):
            if neighbour in roles:
                roles[neighbour] = role if not passive else {"target": "actor", "actor": "target"}[role]
    # A creature on its own needs no other to differ from.
    return list(roles.values()) if len(roles) > 1 else []


def _read(text: str) -> list[_Mention]:
    """Read all mentions and small words of a text, in order."""
    words = " ".join(_TOKEN.findall(text.lower()))
    mentions: list[_Mention] = []
    patterns, name_of = _grammar()
    while words:
        matches = ((kind, pattern.match(words)) for kind, pattern in patterns)
        kind, match = next(((kind, match) for kind, match in matches if match), ("", None))
        if match is None:
            raise _Refused(
                f"{words.split()[0]!r} is neither a whole name in its place nor a word that a rewording may use"
            )
        mention = match[0].strip()
        if kind == "act" and not mention.endswith("ing"):
            before = mentions[-1].text.split()[-1] if mentions else ""
            if before in _BEING and not words[match.end() :].startswith("by "):
                raise _Refused(f"{mention!r} does not say by whom")
        what = (kind, *(name_of.get(name, name) for name in match.groups())) if kind else ()
        mentions.append(_Mention(what, mention))
        words = words[match.end() :]
    return mentions


@cache
def _grammar() -> tuple[list[tuple[str, re.Pattern[str]]], dict[str, str]]:
    """Return what can be read, by kind, and the name of each form of a word; of all versions."""
    words = load_vocabulary()
    name_of = {plural: name for name, plural in words.plural_of.items()} | {"action": "act"}
    verbs = (*words.actions, *words.minus, *words.plus)
    name_of |= {form: verb.base for verb in verbs for form in vars(verb).values()}

    def any_of(names: Iterable[str]) -> str:
        return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))

    def forms(verbs: Iterable[object]) -> str:
        return any_of(form for verb in verbs for form in vars(verb).values())

    attribute = any_of([*words.plural_of, *words.plural_of.values()])
    places = words.environments
    heads = sorted({(place.preposition, place.article) for place in places})
    patterns = [
        ("creature", rf"(?:{_INDEFINITE}) ({any_of(words.entities)}|creature)"),
        *(
            (
                "place",
                rf"(?:{preposition}|{_ENTERING}) {article} "
                rf"({any_of(p.name for p in places if (p.preposition, p.article) == (preposition, article))})",
            )
            for preposition, article in heads
        ),
        ("how many", rf"(?:how many|number of) ({attribute})"),
        ("count", rf"(?:{_HAVING}) (\d+) ({attribute})"),
        ("change", rf"({forms((*words.minus, *words.plus))}) (\d+) ({attribute})"),
        ("state", rf"({any_of(words.states)})"),
        ("which", r"(?:which|what) (state|environment)"),
        ("the", r"(?:the|that|this) (act|action)"),
        ("the", r"(environment)"),
        ("", r"the following|as follows"),
        ("", rf"(?:each|every)(?=(?: \S+){{0,3}} (?:{_CASES})(?: |$))"),
        ("", rf"[^\w ]|{any_of(small_words() - {'each', 'every'})}"),
        ("act", rf"({forms(words.actions)})"),
    ]
    return [(kind, re.compile(rf"(?:{pattern})(?: |$)")) for kind, pattern in patterns], name_of


@cache
def small_words() -> frozenset[str]:
    """Return the words that a rewording may use besides the mentions."""
    text = resources.files(__package__).joinpath("words.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
