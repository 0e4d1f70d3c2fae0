"""The words of RuleWorld: terms, verb forms, places and the pairs that common sense would link.

The words live in ``vocab/`` as one plain file per list, so they can be read and reviewed without code.
Two-word terms are products of an adjective list and a noun list and are ordered adjective-major: the
index of a term is ``adjective * len(nouns) + noun``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

import numpy as np

_TERM = re.compile(r"[a-z]+(?: [a-z]+)*")
_VERB_COLUMNS = ("base", "third", "past", "gerund", "participle")
_DENIED_KINDS = ("env_state", "action_state", "action_env")
_OPERATORS = ("minus", "plus")


@dataclass(frozen=True)
class Verb:
    """A verb in the five forms the templates need.

    Attributes
    ----------
    base, third, past, gerund, participle : str
        "chase", "chases", "chased", "chasing", "chased".
    """

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
    preposition : str
        Used in "A is on the starship deck".
    article : str
        Used in "A will enter the starship deck".
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

    def denied_env_state(self) -> np.ndarray:
        """Say which states common sense would expect in which places.

        Returns
        -------
        numpy.ndarray
            Boolean, (environments, states); True where the pair is forbidden.
        """
        names = [set(place.name.split()) for place in self.environments]
        return self._forbidden("env_state", names, self._state_adjectives())

    def denied_action_state(self) -> np.ndarray:
        """Say which states common sense would expect of the parties to which actions.

        Returns
        -------
        numpy.ndarray
            Boolean, (actions, states); True where the pair is forbidden.
        """
        verbs = [{verb.base} for verb in self.actions]
        return self._forbidden("action_state", verbs, self._state_adjectives())

    def denied_action_env(self) -> np.ndarray:
        """Say which places common sense would expect of which actions.

        Returns
        -------
        numpy.ndarray
            Boolean, (actions, environments); True where the pair is forbidden.
        """
        names = [place.name for place in self.environments]
        return self._forbidden("action_env", [{verb.base} for verb in self.actions], names)

    def _state_adjectives(self) -> list[str]:
        """Return the adjective of every state: the adverb does not change what a reader expects."""
        return [state.rsplit(" ", 1)[1] for state in self.states]

    def _forbidden(self, kind: str, left: list[set[str]], right: list[str]) -> np.ndarray:
        """Spread the word pairs of one kind over the term indices."""
        columns: dict[str, list[int]] = {}
        for index, key in enumerate(right):
            columns.setdefault(key, []).append(index)
        forbidden = np.zeros((len(left), len(right)), dtype=bool)
        for row_kind, word, key in self.denied:
            if row_kind == kind:
                for row, words in enumerate(left):
                    if word in words:
                        forbidden[row, columns[key]] = True
        return forbidden


def symbol(term: str) -> str:
    """Return the logic symbol of a plain term.

    Parameters
    ----------
    term : str
        Lower-case words separated by single spaces, "tiny cat".

    Returns
    -------
    str
        "Tiny_cat".
    """
    return term[:1].upper() + term[1:].replace(" ", "_")


def term(symbol: str) -> str:
    """Return the plain term of a logic symbol; the inverse of `symbol`.

    Parameters
    ----------
    symbol : str
        "Tiny_cat".

    Returns
    -------
    str
        "tiny cat".
    """
    return symbol[:1].lower() + symbol[1:].replace("_", " ")


def article(term: str) -> str:
    """Return the indefinite article of a term of this vocabulary.

    The first letter decides. The word lists hold no word for which that is wrong, such as "unicorn"
    or "hour".

    Parameters
    ----------
    term : str
        "elderly fox".

    Returns
    -------
    str
        "a" or "an".
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
    nouns = [row for _, row in _rows(folder / "attribute_nouns.tsv", ("singular", "plural"))]
    adjectives = _words(folder / "attribute_adjectives.txt")
    place_columns = ("name", "preposition", "article")
    places = tuple(Place(*row) for _, row in _rows(folder / "environments.tsv", place_columns))
    actions = tuple(Verb(*row) for _, row in _rows(folder / "actions.tsv", _VERB_COLUMNS))
    state_adjectives = _words(folder / "state_adjectives.txt")
    change = _change_verbs(folder / "change_verbs.tsv")
    return Vocabulary(
        entities=_product(_words(folder / "entity_adjectives.txt"), _words(folder / "entity_nouns.txt")),
        attributes=_product(adjectives, [singular for singular, _ in nouns]),
        attribute_plurals=_product(adjectives, [plural for _, plural in nouns]),
        actions=actions,
        environments=places,
        states=_product(_words(folder / "state_adverbs.txt"), state_adjectives),
        minus=change["minus"],
        plus=change["plus"],
        denied=_denied(folder / "denied.tsv", actions, places, state_adjectives),
    )


def _product(first: list[str], second: list[str]) -> tuple[str, ...]:
    """Join every word of `first` with every word of `second`, first-major."""
    return tuple(f"{left} {right}" for left in first for right in second)


def _change_verbs(path: Traversable) -> dict[str, tuple[Verb, ...]]:
    """Read the verbs of each operator."""
    found: dict[str, list[Verb]] = {operator: [] for operator in _OPERATORS}
    for number, row in _rows(path, ("operator", *_VERB_COLUMNS)):
        if row[0] not in found:
            raise _error(path, number, f"operator {row[0]!r}; expected one of {', '.join(_OPERATORS)}")
        found[row[0]].append(Verb(*row[1:]))
    return {operator: tuple(verbs) for operator, verbs in found.items()}


def _denied(
    path: Traversable, actions: tuple[Verb, ...], places: tuple[Place, ...], adjectives: list[str]
) -> tuple[tuple[str, str, str], ...]:
    """Read the denied pairs; a word outside the lists is an error, since such a row would deny nothing."""
    verbs = {verb.base for verb in actions}
    names = {place.name for place in places}
    name_words = {word for name in names for word in name.split()}
    known = {
        "env_state": (name_words, set(adjectives)),
        "action_state": (verbs, set(adjectives)),
        "action_env": (verbs, names),
    }
    rows = []
    for number, row in _rows(path, ("kind", "left", "right")):
        kind, left, right = row
        if kind not in known:
            raise _error(path, number, f"kind {kind!r}; expected one of {', '.join(_DENIED_KINDS)}")
        for word, allowed in zip((left, right), known[kind], strict=True):
            if word not in allowed:
                raise _error(
                    path, number, f"{word!r} is not in the lists of kind {kind!r}; correct or delete it"
                )
        rows.append((kind, left, right))
    return tuple(rows)


def _words(path: Traversable) -> list[str]:
    """Read a file of one word per line."""
    words = [row[0] for _, row in _split(path, 1)]
    for number, word in enumerate(words, start=1):
        if " " in word:
            raise _error(path, number, f"{word!r}; expected a single word")
    return words


def _rows(path: Traversable, header: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Read a tab-separated file with the given header as (line number, cells)."""
    rows = list(_split(path, len(header)))
    if not rows or tuple(rows[0][1]) != header:
        raise _error(path, 1, f"expected the header {chr(9).join(header)!r}")
    return rows[1:]


def _split(path: Traversable, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of every line, checked for width, spelling and repetition."""
    seen: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) != width:
            raise _error(path, number, f"{len(cells)} cells in {line!r}; expected {width}, separated by tabs")
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
