"""The words of RuleWorld: terms, verb forms, places and the pairs that common sense would link.

The words live in ``vocab/`` as one plain file per list, so they can be read and reviewed without code.
Two-word terms are products of an adjective list and a noun list and are ordered adjective-major: the
index of a term is ``adjective * len(nouns) + noun``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

import numpy as np

from ..spec import OPERATORS

_TERM = re.compile(r"[a-z]+(?: [a-z]+)*")
_VERB_COLUMNS = ("base", "third", "past", "gerund", "participle")
_DENIED_KINDS = ("env_state", "action_state", "action_env")


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
    """An environment and the small words that go with it.

    Attributes
    ----------
    name : str
        The plain term, "starship deck".
    preposition, article : str
        As in "A is on the starship deck".
    """

    name: str
    preposition: str
    article: str


@dataclass(frozen=True)
class Vocabulary:
    """All terms of RuleWorld, in the order that gives each its index.

    Attributes
    ----------
    entities : tuple of str
        960 kinds of creature, "tiny cat".
    attributes, attribute_plurals : tuple of str
        4,096 countable things a creature can have, "strong horn" and "strong horns".
    actions : tuple of Verb
        100 transitive verbs.
    environments : tuple of Place
        100 places.
    states : tuple of str
        1,664 states, "deeply hungry".
    minus, plus : tuple of Verb
        The closed lexicon of verbs that take away or add.
    denied : tuple of (str, str, str)
        Rows (kind, left, right) of word pairs that a reader could link without any rule. Kinds:
        ``env_state`` (a word of a place name, a state adjective), ``action_state`` (a verb, a state
        adjective) and ``action_env`` (a verb, a place name).
    """

    entities: tuple[str, ...]
    attributes: tuple[str, ...]
    attribute_plurals: tuple[str, ...]
    actions: tuple[Verb, ...]
    environments: tuple[Place, ...]
    states: tuple[str, ...]
    minus: tuple[Verb, ...]
    plus: tuple[Verb, ...]
    denied: tuple[tuple[str, str, str], ...]

    @cached_property
    def plural_of(self) -> dict[str, str]:
        """Plural of each attribute."""
        return dict(zip(self.attributes, self.attribute_plurals, strict=True))

    @property
    def change_verbs(self) -> dict[str, tuple[Verb, ...]]:
        """Change verbs by operator."""
        return dict(zip(OPERATORS, (self.minus, self.plus), strict=True))

    def denied_mask(self, kind: str) -> np.ndarray:
        """Return which terms of one kind common sense would expect with which of another.

        Parameters
        ----------
        kind : {"env_state", "action_state", "action_env"}

        Returns
        -------
        numpy.ndarray
            Boolean, one row per place or action, one column per state or place; True where the pair is denied.
        """
        places = [place.name for place in self.environments]
        left = (
            [set(name.split()) for name in places]
            if kind == "env_state"
            else [{v.base} for v in self.actions]
        )
        # The adverb of a state does not change what a reader expects.
        right = places if kind == "action_env" else [state.rsplit(" ", 1)[1] for state in self.states]
        mask = np.zeros((len(left), len(right)), dtype=bool)
        for row_kind, word, key in self.denied:
            if row_kind == kind:
                mask |= np.outer([word in words for words in left], [key == other for other in right])
        return mask


def symbol(term: str) -> str:
    """Return the logic symbol of a plain term: "Tiny_cat" of "tiny cat"."""
    return term[:1].upper() + term[1:].replace(" ", "_")


def term(symbol: str) -> str:
    """Return the plain term of a logic symbol; the inverse of `symbol`."""
    return symbol[:1].lower() + symbol[1:].replace("_", " ")


def article(term: str) -> str:
    """Return the indefinite article of a term of this vocabulary, "a" or "an".

    The first letter decides. The word lists hold no word for which that is wrong, such as "unicorn"
    or "hour".
    """
    return "an" if term[:1] in "aeiou" else "a"


@lru_cache(maxsize=1)
def load_vocabulary() -> Vocabulary:
    """Read the vocabulary that ships with the package.

    Returns
    -------
    Vocabulary
        The same object on every call.

    Raises
    ------
    ValueError
        If a file is malformed; the message names the file and the line.
    """
    return _read(resources.files(__package__) / "vocab")


def _read(folder: Traversable) -> Vocabulary:
    """Read the word lists in `folder`."""

    def words(name: str) -> list[str]:
        return [cells[0] for _, cells in _lines(folder / f"{name}.txt", 1)]

    nouns = [cells for _, cells in _rows(folder / "attribute_nouns.tsv", "singular", "plural")]
    adjectives, state_adjectives = words("attribute_adjectives"), words("state_adjectives")
    place_rows = _rows(folder / "environments.tsv", "name", "preposition", "article")
    places = tuple(Place(*cells) for _, cells in place_rows)
    actions = tuple(Verb(*cells) for _, cells in _rows(folder / "actions.tsv", *_VERB_COLUMNS))
    change = _change_verbs(folder / "change_verbs.tsv")
    return Vocabulary(
        entities=_product(words("entity_adjectives"), words("entity_nouns")),
        attributes=_product(adjectives, [singular for singular, _ in nouns]),
        attribute_plurals=_product(adjectives, [plural for _, plural in nouns]),
        actions=actions,
        environments=places,
        states=_product(words("state_adverbs"), state_adjectives),
        minus=change["minus"],
        plus=change["plus"],
        denied=_denied(folder / "denied.tsv", actions, places, state_adjectives),
    )


def _product(first: list[str], second: list[str]) -> tuple[str, ...]:
    """Join every word of `first` with every word of `second`, first-major."""
    return tuple(f"{left} {right}" for left in first for right in second)


def _change_verbs(path: Traversable) -> dict[str, tuple[Verb, ...]]:
    """Read the verbs of each operator."""
    found: dict[str, tuple[Verb, ...]] = dict.fromkeys(OPERATORS, ())
    for number, (operator, *forms) in _rows(path, "operator", *_VERB_COLUMNS):
        if operator not in found:
            raise _error(path, number, f"operator {operator!r}; expected one of {', '.join(OPERATORS)}")
        found[operator] += (Verb(*forms),)
    return found


def _denied(
    path: Traversable, actions: tuple[Verb, ...], places: tuple[Place, ...], adjectives: list[str]
) -> tuple[tuple[str, str, str], ...]:
    """Read the denied pairs; a word outside the lists is an error, since such a row would deny nothing."""
    verbs, names = {verb.base for verb in actions}, {place.name for place in places}
    name_words = {word for name in names for word in name.split()}
    known = dict(
        zip(
            _DENIED_KINDS,
            ((name_words, set(adjectives)), (verbs, set(adjectives)), (verbs, names)),
            strict=True,
        )
    )
    rows = []
    for number, (kind, left, right) in _rows(path, "kind", "left", "right"):
        if kind not in known:
            raise _error(path, number, f"kind {kind!r}; expected one of {', '.join(_DENIED_KINDS)}")
        for word, allowed in zip((left, right), known[kind], strict=True):
            if word not in allowed:
                raise _error(
                    path, number, f"{word!r} is not in the lists of kind {kind!r}; correct or delete it"
                )
        rows.append((kind, left, right))
    return tuple(rows)


def _rows(path: Traversable, *header: str) -> list[tuple[int, list[str]]]:
    """Read a tab-separated file with the given header as (line number, cells)."""
    rows = list(_lines(path, len(header)))
    if not rows or tuple(rows[0][1]) != header:
        raise _error(path, 1, f"expected the header {chr(9).join(header)!r}")
    return rows[1:]


def _lines(path: Traversable, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of every line, checked for width, spelling and repetition."""
    seen: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) != width:
            raise _error(path, number, f"{len(cells)} cells in {line!r}; expected {width}, separated by tabs")
        if width == 1 and " " in line:
            raise _error(path, number, f"{line!r}; expected a single word")
        # The kinds of denied.tsv are identifiers, not terms, hence the underscore.
        for cell in cells:
            if not _TERM.fullmatch(cell) and cell not in _DENIED_KINDS:
                raise _error(path, number, f"{cell!r}; expected lower-case letters and single spaces")
        if line in seen:
            raise _error(path, number, f"{line!r} repeats line {seen[line]}; delete one")
        seen[line] = number
        yield number, cells


def _error(path: Traversable, number: int, message: str) -> ValueError:
    """Build the error for one line of a vocabulary file."""
    return ValueError(f"vocab/{path.name}, line {number}: {message}")
