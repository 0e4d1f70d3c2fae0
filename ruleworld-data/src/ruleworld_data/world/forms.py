"""What things are called: a usual name each, and three more that mean the same.

A *form* picks the name: 0 is the usual one. A name of two words, "tiny cat", has a form for each of them, so sixteen in
all. No two things share a name, in any form, so that every text says one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from itertools import chain

import numpy as np

from .streams import Ints, Key, keyed_integers
from .vocabulary import Place, Verb, load_vocabulary

FORMS = 4
"""Names of one word."""
TWO_WORDS = (
    "entity",
    "attribute",
    "trigger_attribute",
    "state",
    "subject",
    "other",
    "stated",
    "asked",
    "trigger",
)
"""What is called by two words: columns of a rule, and what a question names."""
HERE, THERE, SHAPES = np.array([0, 1]), np.array([2, 3]), np.array([0, 1, 2, 3])
"""Forms of names in premises and in what is asked for, of those in conclusions and facts, and of frames."""
QUESTION_NAMES = dict.fromkeys(
    ("subject", "other", "trigger", "verb", "environment", "state", "action"), THERE
) | dict.fromkeys(("stated", "asked"), HERE)
"""What a question names: two creatures, what happens, and the attributes that it states and asks for."""
FRAMES = ("premise_frame", "conclusion_frame", "join", "mention")
"""What else has four forms: the shapes of sentences."""
_SCALE = 2**30
_JOINING = frozenset(
    "a all an and at away be been being by for from go goes had has have in is it its no of off on or out over s the "
    "through to toward under up upon was with without".split()
)


def draw_forms(key: tuple[Key, ...], words: float, sides: Mapping[str, Ints], rows: Ints) -> dict[str, Ints]:
    """Draw which name, or which frame, each column has in each row.

    Parameters
    ----------
    key : tuple
        Names the drawing.
    words : float
        Chance, for each word by itself, of a name drawn anew. With more of it the names that have changed stay as they
        are, and more change.
    sides : dict
        What is drawn, and from which forms: `HERE`, `THERE` or `SHAPES`. What a premise looks for is `HERE` and what
        can meet it, a conclusion or a question's fact, is `THERE`; so at 1 the two never share a name.
    rows : array of int, shape (n,)
        Numbers of the rows.

    Returns
    -------
    dict
        For every column an array of shape (n,): below 16 where a term has two words, else below 4.
    """
    forms = {}
    for column, choice in sides.items():
        form = np.zeros(len(rows), dtype=np.int64)
        for part in range(1 + (column in TWO_WORDS)):
            changed = keyed_integers((*key, column, part, "changed"), _SCALE, rows) < words * _SCALE
            drawn = choice[keyed_integers((*key, column, part, "drawn"), len(choice), rows)]
            form = form * FORMS + np.where(changed, drawn, 0)
        forms[column] = form
    return forms


class Forms:
    """The names of the whole vocabulary, by its indices and a form."""

    def __init__(self) -> None:
        words = load_vocabulary()
        variants: dict[str, dict[str, list[tuple[str, str]]]] = {}
        for kind, word, variant, plural in _rows("variants.tsv"):
            variants.setdefault(kind, {}).setdefault(word, []).append((variant, plural))
        verbs: dict[str, list[Verb]] = {}
        for word, *parts in _rows("verb_variants.tsv"):
            verbs.setdefault(word, []).append(Verb(*parts))
        places: dict[str, list[Place]] = {}
        for word, *parts in _rows("place_variants.tsv"):
            places.setdefault(word, []).append(Place(*parts))

        def named(kind: str, plurals: dict[str, str] | None = None) -> list[list[tuple[str, str]]]:
            return [
                [(word, plurals[word] if plurals else ""), *variants[kind][word]] for word in variants[kind]
            ]

        plurals = {
            singular.split(" ", 1)[1]: plural.split(" ", 1)[1] for singular, plural in words.plural_of.items()
        }
        self._entity = named("entity_adjective"), named("entity_noun")
        self._attribute = named("attribute_adjective"), named("attribute_noun", plurals)
        self._state = named("state_adverb"), named("state_adjective")
        self._action = [[verb, *verbs[verb.base]] for verb in words.actions]
        self._change = tuple(
            [[verb, *verbs[verb.base]] for verb in change] for change in (words.minus, words.plus)
        )
        self._place = [[place, *places[place.name]] for place in words.environments]

    def entity(self, index: int, form: int) -> str:
        """Return the name of a kind: "miniature feline"."""
        return " ".join(word for word, _ in _pair(self._entity, index, form))

    def attribute(self, index: int, form: int) -> tuple[str, str]:
        """Return the name of an attribute and its plural."""
        (adjective, _), (noun, plural) = _pair(self._attribute, index, form)
        return f"{adjective} {noun}", f"{adjective} {plural}"

    def state(self, index: int, form: int) -> str:
        """Return the name of a state: "profoundly famished", or "famished to the core"."""
        (adverb, _), (adjective, _) = _pair(self._state, index, form)
        return adverb.replace("~", adjective) if "~" in adverb else f"{adverb} {adjective}"

    def action(self, index: int, form: int) -> Verb:
        """Return the verb of an action; its participle is empty where it has no passive."""
        return self._action[index][form]

    def change(self, operator: int, verb: int, form: int) -> Verb:
        """Return a verb of change."""
        return self._change[operator][verb][form]

    def place(self, index: int, form: int) -> Place:
        """Return a place with the small words that go with it."""
        return self._place[index][form]

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that names are made of, without those that join them."""
        pairs = (
            name
            for lists in (self._entity, self._attribute, self._state)
            for words in lists
            for name in words
        )
        names = [text for name in pairs for form in name for text in form]
        names += [place.name for several in self._place for place in several]
        verbs = chain(self._action, *self._change)
        names += [form for several in verbs for verb in several for form in vars(verb).values()]
        return frozenset(re.findall(r"[a-z]+", " ".join(names).lower())) - _JOINING


def _pair(lists, index: int, form: int):
    first, second = lists
    left, right = divmod(index, len(second))
    return first[left][form // FORMS], second[right][form % FORMS]


def _rows(name: str) -> list[list[str]]:
    text = (resources.files(__package__) / "vocab" / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()[1:]]


@cache
def load_forms() -> Forms:
    """Read the other names; the same object on every call."""
    return Forms()


@cache
def names_of(kind: str) -> dict[str, str]:
    """Return every name of every term of a kind, and the usual one; attributes have one name and ``plural`` another."""
    words, forms = load_vocabulary(), load_forms()
    tables: dict[str, tuple[Sequence[str], Callable[[int, int], str]]] = {
        "entity": (words.entities, forms.entity),
        "state": (words.states, forms.state),
        "place": ([place.name for place in words.environments], lambda i, form: forms.place(i, form).name),
        "attribute": (words.attributes, lambda i, form: forms.attribute(i, form)[0]),
        "plural": (words.attribute_plurals, lambda i, form: forms.attribute(i, form)[1]),
    }
    terms, name = tables[kind]
    several = range(FORMS if kind == "place" else FORMS * FORMS)
    return {name(i, form): usual for i, usual in enumerate(terms) for form in several}


@cache
def other_names() -> dict[str, tuple[str, ...]]:
    """Return the other names of every term and form of a verb by its usual one, as letters with single spaces."""
    words, forms, others = load_vocabulary(), load_forms(), dict[str, list[str]]()
    for kind in ("entity", "state", "place", "attribute", "plural"):
        for name, usual in names_of(kind).items():
            others.setdefault(usual, []).extend([name] * (name != usual))
    one = range(1, FORMS)
    verbs = [(verb, [forms.action(i, form) for form in one]) for i, verb in enumerate(words.actions)]
    for sign, change in enumerate((words.minus, words.plus)):
        verbs += [(verb, [forms.change(sign, i, form) for form in one]) for i, verb in enumerate(change)]
    for verb, synonyms in verbs:
        for part, usual in vars(verb).items():
            # What stands behind an object, "cuts it short", is not looked for.
            phrases = [getattr(other, part).split(" ~")[0] for other in synonyms]
            others.setdefault(usual, []).extend(phrase for phrase in phrases if phrase)
    return {
        usual: tuple(re.sub("[^a-z]+", " ", name).strip() for name in several)
        for usual, several in others.items()
    }
