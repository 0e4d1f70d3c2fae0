"""The words of RuleWorld: terms, verb forms, places and the pairs that common sense would link.

The words live in ``vocab/`` as one plain file per list, so they can be read and reviewed without code; the tests check
them.
Two-word terms are products of an adjective list and a noun list and are ordered adjective-major: the
index of a term is ``adjective * len(nouns) + noun``.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from ..spec import OPERATORS


@dataclass(frozen=True)
class Verb:
    """A verb in the five forms the templates need: "chase", "chases", "chased", "chasing", "chased"."""

    base: str
    third: str
    past: str
    gerund: str
    participle: str


@dataclass(frozen=True)
class Place:
    """An environment and the small words that go with it: one is "on the starship deck" and must "step onto" it."""

    name: str
    preposition: str
    article: str
    goal: str


@dataclass(frozen=True)
class Vocabulary:
    """All terms of RuleWorld, in the order that gives each its index."""

    entities: tuple[str, ...]  # 960 kinds of creature, "tiny cat"
    attributes: tuple[str, ...]  # 4,096 countable things a creature can have, "strong horn"
    plural_of: dict[str, str]  # of each attribute
    actions: tuple[Verb, ...]  # 100 transitive verbs
    environments: tuple[Place, ...]  # 100 places
    states: tuple[str, ...]  # 1,664 of them, "deeply hungry"
    change_verbs: dict[
        str, tuple[Verb, ...]
    ]  # by operator, the closed lexicon of verbs that take away or add
    goal_verbs: dict[str, Verb]  # the verbs of `Place.goal` by base form
    # Rows (kind, left, right) of word pairs that a reader could link without any rule. Kinds: env_state (a word of a
    # place name, a state adjective), action_state (a verb, a state adjective) and action_env (a verb, a place name).
    denied: tuple[tuple[str, str, str], ...]


def with_object(form: str, who: str) -> str:
    """Return a verb with its object: "chases it", or "cuts it short" of ``"cuts ~ short"``."""
    return form.replace("~", who) if "~" in form else f"{form} {who}"


def symbol(term: str) -> str:
    """Return the logic symbol of a plain term: "Tiny_cat" of "tiny cat"."""
    return term[:1].upper() + term[1:].replace(" ", "_")


def term(symbol: str) -> str:
    """Return the plain term of a logic symbol; the inverse of `symbol`."""
    return symbol[:1].lower() + symbol[1:].replace("_", " ")


def article(term: str) -> str:
    """Return "a" or "an" by the first letter; the word lists hold no "unicorn" or "hour"."""
    return "an" if term[:1] in "aeiou" else "a"


def read_rows(name: str) -> list[list[str]]:
    """Return the cells of a file in ``vocab``, without the header that tables have."""
    lines = (resources.files(__package__) / "vocab" / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[name.endswith(".tsv") :]]


@cache
def load_vocabulary() -> Vocabulary:
    """Read the vocabulary; the same object on every call."""

    def words(name: str) -> list[str]:
        return [word for (word,) in read_rows(name)]

    def product(first: list[str], second: list[str]) -> tuple[str, ...]:
        return tuple(f"{left} {right}" for left in first for right in second)

    adjectives, nouns = words("attribute_adjectives.txt"), read_rows("attribute_nouns.tsv")
    change = read_rows("change_verbs.tsv")
    attributes, plurals = (product(adjectives, [*column]) for column in zip(*nouns, strict=True))
    return Vocabulary(
        entities=product(words("entity_adjectives.txt"), words("entity_nouns.txt")),
        attributes=attributes,
        plural_of=dict(zip(attributes, plurals, strict=True)),
        actions=tuple(Verb(*forms) for forms in read_rows("actions.tsv")),
        environments=tuple(Place(*cells) for cells in read_rows("environments.tsv")),
        states=product(words("state_adverbs.txt"), words("state_adjectives.txt")),
        change_verbs={
            sign: tuple(Verb(*forms) for own, *forms in change if own == sign) for sign in OPERATORS
        },
        goal_verbs={forms[0]: Verb(*forms) for forms in read_rows("goal_verbs.tsv")},
        denied=tuple((kind, left, right) for kind, left, right in read_rows("denied.tsv")),
    )


@cache
def denied_pairs(kind: str) -> np.ndarray:
    """Return which terms of one kind common sense would expect with which of another.

    ``kind`` is that of `Vocabulary.denied`. True where a pair is denied: a row per place or action, a column per state
    or place.
    """
    words = load_vocabulary()
    places = [place.name for place in words.environments]
    left = [name.split() for name in places] if kind == "env_state" else [[v.base] for v in words.actions]
    # The adverb of a state does not change what a reader expects.
    right = places if kind == "action_env" else [state.rsplit(" ", 1)[1] for state in words.states]
    mask = np.zeros((len(left), len(right)), dtype=bool)
    for row_kind, word, key in words.denied:
        if row_kind == kind:
            mask |= np.outer([word in own for own in left], [key == other for other in right])
    return mask
