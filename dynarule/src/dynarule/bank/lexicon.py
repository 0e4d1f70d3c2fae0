"""The words of English rules: forms of verbs, and words by what stands before or behind them."""

import re
import tomllib
from importlib import resources
from types import SimpleNamespace
from typing import Any

_WORDS, _PATTERNS = (
    tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("words.toml", "patterns.toml")
)
INLINE: list[list[str]] = _WORDS.pop("inline")
WORDS: dict[str, Any] = {
    name: _WORDS.pop(name)
    for name in ("symbols", "ends", "signs", "operators", "bounds", "forms", "docx", "marks")
}
"""Tables of words and signs."""
BOUNDS: list[list[str]] = _WORDS.pop("cells")
PHRASES = {name: phrases.replace("\n", "") for name, phrases in _WORDS.pop("phrases").items()}
"""Alternatives of patterns."""
DIALECTS: dict[str, dict[str, Any]] = _PATTERNS.pop("dialects")
"""Marks by which a text is told, and what stands for them in HTML."""
LISTS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
MODALS, ARTICLES, OWNERS, RELATIVE, RESTRICTS, AMOUNTS = (
    LISTS[name] for name in ("modals", "articles", "owners", "relative", "restricts", "amounts")
)
NOT_BEFORE_VERB = LISTS["not_before_verb"] | ARTICLES | OWNERS


def patterns(of: str) -> SimpleNamespace:
    """Return the patterns of a part of the parser by their names, with phrases in them."""
    filled = {n: re.sub(r"<<(\w+)>>", lambda name: PHRASES[name[1]], p) for n, p in _PATTERNS[of].items()}
    return SimpleNamespace(**{name: re.compile(pattern) for name, pattern in filled.items()})


_RE = patterns("lexicon")


_THIRD = {
    v: re.sub("(s|sh|ch|x|z|o)$", r"\1e", re.sub("(?<![aeiou])y$", "ie", v)) + "s" for v in LISTS["verbs"]
}
VERBS = dict.fromkeys(_THIRD.values(), False) | dict.fromkeys(_THIRD, True)
"""Forms of verbs, and whether each is that of a plural."""


def blanked(text: str) -> str:
    """Return a text of the same length without brackets and quotes, in which no clause begins."""
    return _RE.hidden.sub(lambda match: "\0" * len(match[0]), text)


def words_of(text: str) -> list[tuple[int, str]]:
    """Return the words outside brackets and quotes, with their places; months are none."""
    text = _RE.month.sub(lambda match: "\0" * len(match[0]), _RE.letter.sub("B", blanked(text)))
    return [(match.start(), match[0].lower()) for match in re.finditer(r"[ap]\.m\.|[\w'’-]+", text)]


def has_verb(text: str) -> bool:
    """Say whether a text has a finite verb: a modal, a form of be, have or do, or a verb of rules in its place."""
    words = [word for _, word in words_of(re.sub(r"^\d+ ", "the ", _RE.or_more.sub("or so", text)))]
    if words and VERBS.get(words[0]) is False:
        words = words[1:]  # no sentence begins with "orders" as its verb
    return bool(_RE.does.search(blanked(text))) or any(
        word in MODALS or (word in VERBS and before not in NOT_BEFORE_VERB)
        for before, word in zip(["", *words], words, strict=False)
    )


def is_told(sentence: str) -> bool:
    """Say whether a sentence tells what happened: its first verb, in no condition, is a past tense."""
    return bool((_RE.asked if "?" in sentence else _RE.told).match(blanked(sentence)))


def goes_on(segment: str) -> bool:
    """Whether a segment begins with the verb of the condition's subject: "is under 2, *sits* on a lap, ..."."""
    word, after = [*segment.lower().split()[:2], "", ""][:2]
    return word in ("is", "was", "has", "does") or (VERBS.get(word) is False and after not in MODALS)


def opens_with_verb(text: str) -> bool:
    """Whether a text begins with a finite verb: what stands above it is its subject."""
    return text.split()[0].lower() in MODALS or goes_on(text)


def is_plural(noun: str) -> bool:
    """Say whether a noun is a plural."""
    return noun in LISTS["plural"] or (
        noun[-1:] == "s" and noun[-2:] not in ("ss", "us", "is", "'s", "’s", "`s")
    )
