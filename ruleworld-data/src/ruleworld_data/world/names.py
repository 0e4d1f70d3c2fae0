"""The names of terms, ready to be looked up by index and form (see `forms`)."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from .forms import FORMS
from .streams import Ints
from .vocabulary import Place, Verb, load_vocabulary, read_rows, symbol

_JOINING = frozenset(
    "a all an and at away be been being by for from go goes had has have in is it its no of off on or out over s the "
    "through to toward under up upon was with without".split()
)


class Names:
    """Term names of a world by index: plain, plural, FOL symbol, verb forms, places.

    ``terms`` has for each kind of term the vocabulary index of every one; without it these are all terms. ``lexicon``
    has the change verbs by operator, ``changes`` their symbols; ``halves`` keeps the halves of rules that have been
    rendered.
    """

    def __init__(self, terms: Mapping[str, Ints] | None = None) -> None:
        words, self._variants = load_vocabulary(), _load_variants()
        known = {
            "entity": words.entities,
            "attribute": words.attributes,
            "action": tuple(verb.base for verb in words.actions),
            "environment": tuple(place.name for place in words.environments),
            "state": words.states,
        }
        self.terms = terms or {kind: np.arange(len(own)) for kind, own in known.items()}
        usual = {kind: [known[kind][i] for i in self.terms[kind].tolist()] for kind in known}
        self.entity, self.attribute, self.action, self.environment, self.state = usual.values()
        self.symbols = {kind: [*map(symbol, own)] for kind, own in usual.items()}
        self.lexicon = tuple(words.change_verbs.values())
        self.changes = tuple([symbol(verb.base) for verb in verbs] for verbs in self.lexicon)
        self.halves: dict[Any, dict[tuple[int, ...], tuple[str, str]]] = {}

    def _two(self, kind: str, index: int, form: int) -> list[tuple[str, str]]:
        """Return the two words of a term, each with its plural where it has one."""
        first, second = self._variants[kind]
        left, right = divmod(int(self.terms[kind][index]), len(second))
        return [first[left][form // FORMS], second[right][form % FORMS]]

    def kind(self, entity: int, form: int = 0) -> str:
        """``"tiny cat"``, or another name of it."""
        return " ".join(word for word, _ in self._two("entity", entity, form))

    def mood(self, state: int, form: int = 0) -> str:
        """``"deeply hungry"``, or ``"famished deep down"``."""
        (adverb, _), (adjective, _) = self._two("state", state, form)
        return adverb.replace("~", adjective) if "~" in adverb else f"{adverb} {adjective}"

    def counted(self, attribute: int, form: int = 0) -> tuple[str, str]:
        """``"strong horn"`` and ``"strong horns"``."""
        (adjective, _), (noun, plural) = self._two("attribute", attribute, form)
        return f"{adjective} {noun}", f"{adjective} {plural}"

    def things(self, attribute: int, amount: int, form: int = 0) -> str:
        """``"1 strong horn"``, ``"2 strong horns"``, ``"no strong horns"``."""
        return f"{amount or 'no'} {self.counted(attribute, form)[amount != 1]}"

    def verb(self, action: int, form: int = 0) -> Verb:
        """Return the verb of an action; its participle is empty where it has no passive."""
        return self._variants["action"][int(self.terms["action"][action])][form]

    def change(self, operator: int, verb: int, form: int = 0) -> Verb:
        """Return a verb of change."""
        return self._variants["change"][operator][verb][form]

    def place(self, environment: int, form: int = 0) -> Place:
        """Return a place with the small words that go with it."""
        return self._variants["environment"][int(self.terms["environment"][environment])][form]

    def at(self, environment: int, form: int = 0) -> str:
        """``"on the bridge"``."""
        place = self.place(environment, form)
        return f"{place.preposition} {place.article} {place.name}"

    def enter(self, environment: int, form: int = 0) -> Verb:
        """Return the forms of ``"step onto the bridge"``."""
        place = self.place(environment, form)
        base, *rest = place.goal.split(" ")
        tail = " ".join([*rest, place.article, place.name])
        return Verb(*(f"{verb} {tail}" for verb in vars(load_vocabulary().goal_verbs[base]).values()))

    def event(self, operator: int, verb: int, attribute: int, amount: int, who: str) -> str:
        """``"Lose_Strong_fin(A, 1)"``."""
        return f"{self.changes[operator][verb]}_{self.symbols['attribute'][attribute]}({who}, {amount})"


all_names = cache(Names)
"""Return the names of the whole vocabulary; the same object on every call."""


@cache
def _load_variants() -> dict[str, Any]:
    """Read all names of every word, verb and place, the usual one first."""
    words = load_vocabulary()
    plurals = {one.split(" ", 1)[1]: many.split(" ", 1)[1] for one, many in words.plural_of.items()}
    several: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for kind, word, variant, plural in read_rows("variants.tsv"):
        usual = (word, plurals[word] if kind == "attribute_noun" else "")
        several.setdefault(kind, {}).setdefault(word, [usual]).append((variant, plural))
    verbs, places = dict[str, list[Verb]](), dict[str, list[Place]]()
    for word, *parts in read_rows("verb_variants.tsv"):
        verbs.setdefault(word, []).append(Verb(*parts))
    for word, *parts in read_rows("place_variants.tsv"):
        places.setdefault(word, []).append(Place(*parts))
    pairs = {
        "entity": ("entity_adjective", "entity_noun"),
        "attribute": ("attribute_adjective", "attribute_noun"),
        "state": ("state_adverb", "state_adjective"),
    }
    return {
        **{kind: tuple([*several[half].values()] for half in halves) for kind, halves in pairs.items()},
        "action": [[verb, *verbs[verb.base]] for verb in words.actions],
        "change": [[[verb, *verbs[verb.base]] for verb in change] for change in words.change_verbs.values()],
        "environment": [[place, *places[place.name]] for place in words.environments],
    }


@cache
def name_words() -> frozenset[str]:
    """Return the words that names are made of, without those that join them."""
    variants = _load_variants()
    pairs = chain(*(half for kind in ("entity", "attribute", "state") for half in variants[kind]))
    texts = [text for several in pairs for name in several for text in name]
    texts += [place.name for several in variants["environment"] for place in several]
    verbs = chain(variants["action"], *variants["change"])
    texts += [form for several in verbs for verb in several for form in vars(verb).values()]
    return frozenset(re.findall(r"[a-z]+", " ".join(texts).lower())) - _JOINING


@cache
def names_of(kind: str) -> dict[str, str]:
    """Return every name of every term of a kind, and the usual one; attributes have one name and ``plural`` another."""
    words, names = load_vocabulary(), all_names()
    tables: dict[str, tuple[Sequence[str], Callable[[int, int], str]]] = {
        "entity": (words.entities, names.kind),
        "state": (words.states, names.mood),
        "place": (names.environment, lambda i, form: names.place(i, form).name),
        "attribute": (words.attributes, lambda i, form: names.counted(i, form)[0]),
        "plural": ([*words.plural_of.values()], lambda i, form: names.counted(i, form)[1]),
    }
    terms, name = tables[kind]
    several = range(FORMS if kind == "place" else FORMS * FORMS)
    return {name(i, form): usual for i, usual in enumerate(terms) for form in several}


@cache
def other_names() -> dict[str, tuple[str, ...]]:
    """Return the other names of every term and form of a verb by its usual one, as letters with single spaces."""
    others: dict[str, list[str]] = {}
    for kind in ("entity", "state", "place", "attribute", "plural"):
        for name, usual in names_of(kind).items():
            others.setdefault(usual, []).extend([name] * (name != usual))
    variants = _load_variants()
    for verb, *synonyms in chain(variants["action"], *variants["change"]):
        for part, usual in vars(verb).items():
            # What stands behind an object, "cuts it short", is not looked for.
            phrases = [getattr(other, part).split(" ~")[0] for other in synonyms]
            others.setdefault(usual, []).extend(phrase for phrase in phrases if phrase)
    return {
        usual: tuple(re.sub("[^a-z]+", " ", name).strip() for name in several)
        for usual, several in others.items()
    }
