"""The names of one world's terms, ready to be looked up by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .forms import load_forms
from .streams import Ints
from .vocabulary import Place, Verb, load_vocabulary, symbol


class Names:
    """Term names of a world by index: plain, plural, FOL symbol, verb forms, places.

    ``terms`` has for each kind of term the vocabulary index of every one; ``lexicon`` has the change verbs by operator,
    ``changes`` their symbols; ``halves`` keeps the halves of rules that have been rendered.
    """

    def __init__(self, terms: Mapping[str, Ints]) -> None:
        words, self.terms, self.forms = load_vocabulary(), terms, load_forms()
        self.entity = [words.entities[i] for i in terms["entity"].tolist()]
        self.attribute = [words.attributes[i] for i in terms["attribute"].tolist()]
        self.action = [words.actions[i].base for i in terms["action"].tolist()]
        self.environment = [words.environments[i].name for i in terms["environment"].tolist()]
        self.state = [words.states[i] for i in terms["state"].tolist()]
        self.symbols = {
            kind: [symbol(name) for name in getattr(self, kind)]
            for kind in ("entity", "attribute", "action", "environment", "state")
        }
        self.lexicon = (words.minus, words.plus)
        self.changes = tuple([symbol(verb.base) for verb in verbs] for verbs in self.lexicon)
        self.halves: dict[Any, dict[tuple[int, ...], tuple[str, str]]] = {}

    def kind(self, entity: int, form: int = 0) -> str:
        """``"tiny cat"``, or another name of it (`forms.Forms`)."""
        return self.forms.entity(int(self.terms["entity"][entity]), form)

    def mood(self, state: int, form: int = 0) -> str:
        """``"deeply hungry"``."""
        return self.forms.state(int(self.terms["state"][state]), form)

    def plural_of(self, attribute: int, form: int = 0) -> str:
        """``"strong horns"``."""
        return self.forms.attribute(int(self.terms["attribute"][attribute]), form)[1]

    def things(self, attribute: int, amount: int, form: int = 0) -> str:
        """``"1 strong horn"``, ``"2 strong horns"``, ``"no strong horns"``."""
        names = self.forms.attribute(int(self.terms["attribute"][attribute]), form)
        return f"{amount or 'no'} {names[amount != 1]}"

    def verb(self, action: int, form: int = 0) -> Verb:
        """Return the verb of an action."""
        return self.forms.action(int(self.terms["action"][action]), form)

    def change(self, operator: int, verb: int, form: int = 0) -> Verb:
        """Return a verb of change."""
        return self.forms.change(operator, verb, form)

    def place(self, environment: int, form: int = 0) -> Place:
        """Return a place with its small words."""
        return self.forms.place(int(self.terms["environment"][environment]), form)

    def at(self, environment: int, form: int = 0) -> str:
        """``"on the bridge"``."""
        place = self.place(environment, form)
        return f"{place.preposition} {place.article} {place.name}"

    def enter(self, environment: int, form: int = 0) -> Verb:
        """Return the forms of ``"step onto the bridge"``."""
        return load_vocabulary().entering(self.place(environment, form))

    def event(self, operator: int, verb: int, attribute: int, amount: int, who: str) -> str:
        """``"Lose_Strong_fin(A, 1)"``."""
        return f"{self.changes[operator][verb]}_{self.symbols['attribute'][attribute]}({who}, {amount})"
