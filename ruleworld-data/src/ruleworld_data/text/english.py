"""Read the English halves of rules, in the usual words and in all others that the dial `words` brings.

Written without the renderer: sentence shapes as regular expressions (``shapes.toml``), and every name looked up. A
half has one reading, since no two things share a name.
"""

import re
import tomllib
from functools import cache
from importlib import resources

from ..spec import OPERATORS
from ..world import Verb, article, load_vocabulary
from ..world.forms import FORMS
from ..world.names import all_names, names_of
from .fol import Fact, unreadable

_A = r"(?:A|X|a creature|that creature|a being|the being)"
_B = r"(?:B|Y|another creature|the other creature|some other being|that other being)"
_FORMS = ("base", "third", "gerund", "participle")
_SLOTS = {
    "{things}": r"(?P<number>0|[1-9][0-9]{0,8}) (?P<things>.+)",
    "{none}": r"(?P<number>no) (?P<things>.+)",
    "{more}": r"(?P<more>more than|over|fewer than|under)",
    "{who}": rf"(?P<who>{_B}|{_A})",
    "{A}": _A,
    "{B}": _B,
}


@cache
def _shapes(half: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the shapes of one half of rules, each after the kind of its clause."""
    text = resources.files(__package__).joinpath("shapes.toml").read_text(encoding="utf-8")
    for slot, pattern in _SLOTS.items():
        text = text.replace(slot, pattern)
    return tuple((kind, re.compile(one)) for kind, own in tomllib.loads(text)[half].items() for one in own)


def parse_half_nl(half: str, text: str) -> Fact:
    """Parse a ``"premise"`` or a ``"conclusion"``; a ValueError if it has no reading, or two.

    Premises are ``"A is a tiny cat"`` or ``"a pint-sized feline is what a being is"``, a conclusion is ``"3 glued-on
    lashes will be shed by X"``.
    """
    matches = [(kind, match) for kind, shape in _shapes(half) if (match := shape.fullmatch(text))]
    facts = [_fact(kind, match.groupdict(default="")) for kind, match in matches]
    readings = {fact for fact in facts if fact}
    if len(readings) != 1:
        problem = f"a clause of known names such as 'A is a tiny cat'; it has {len(readings)} readings"
        raise unreadable(half, text, problem)
    return readings.pop()


def _fact(kind: str, parts: dict[str, str]) -> Fact | None:
    """Return what one shape says, if all its names are known."""
    names = _names()
    who = "B" if re.fullmatch(_B, parts.get("who", "")) else "A"
    if kind == "act":
        return _act(parts)
    if "number" in parts:
        return _counted(kind, who, parts)
    if kind == "but":
        return _but(parts)
    found = {slot: getattr(names, slot).get(name) for slot, name in parts.items() if slot != "who"}
    if None in found.values():
        return None
    state = found.pop("state") if kind == "both" else None
    (term,) = found.values()
    return Fact(kind, who, term, state=state)


def _but(parts: dict[str, str]) -> Fact | None:
    """Read a state and who or where is excepted."""
    names = _names()
    state, place = names.state.get(parts["state"]), names.place.get(parts["guard"])
    entity = names.kind.get(parts["kind"] or parts["guard"])
    known = entity and place if parts["kind"] else entity or place
    return Fact("but", "A", state, entity=entity, place=place) if state and known else None


def _counted(kind: str, who: str, parts: dict[str, str]) -> Fact | None:
    """Read a number of things: what one has, what changes, or a threshold."""
    names, number = _names(), int(parts["number"].replace("no", "0"))
    attribute = (names.singular if number == 1 else names.plural).get(parts["things"])
    operator = None
    if kind == "count":
        operator = OPERATORS[parts["more"] in ("more than", "over")]
    elif kind in ("change", "instead"):
        form = next(form for form in _FORMS if parts.get(form))
        operator = names.change[form].get(parts[form])
    if attribute is None or (kind != "has" and operator is None):
        return None
    return Fact(kind, who, attribute, None, operator, number)


def _act(parts: dict[str, str]) -> Fact | None:
    """Read an action: the verb with its object, or the participle alone."""
    form = next(form for form in _FORMS if parts.get(form))
    verb = parts[form]
    if form != "participle":
        match = re.fullmatch(rf"(.+?) {_B}( .+)?", verb)
        if match is None:
            return None
        verb = f"{match[1]} ~{match[2]}" if match[2] else match[1]
    action = _names().action[form].get(verb)
    return Fact("act", "A", action, "B") if action else None


class _Names:
    """Every name of every thing, and which thing it is."""

    def __init__(self) -> None:
        words, names, several = load_vocabulary(), all_names(), range(FORMS)
        self.kind = {f"{article(name)} {name}": usual for name, usual in names_of("entity").items()}
        self.singular, self.state = names_of("attribute"), names_of("state")
        one_of = {plural: singular for singular, plural in words.plural_of.items()}
        self.plural = {name: one_of[usual] for name, usual in names_of("plural").items()}
        places = [(i, form, usual) for i, usual in enumerate(names.environment) for form in several]
        self.place = {names.at(i, form): usual for i, form, usual in places}
        self.goal = {names.enter(i, form).base: usual for i, form, usual in places}
        verbs = [(names.verb(i, form), usual) for i, usual in enumerate(names.action) for form in several]
        changes = [
            (names.change(sign, i, form), operator)
            for sign, operator in enumerate(OPERATORS)
            for i in range(len(names.lexicon[sign]))
            for form in several
        ]
        self.action = _by_form(verbs)
        self.action["participle"] = {
            verb.participle.replace(" ~", ""): usual for verb, usual in verbs if verb.participle
        }
        self.change = _by_form(changes)


def _by_form(verbs: list[tuple[Verb, str]]) -> dict[str, dict[str, str]]:
    return {
        form: {getattr(verb, form): usual for verb, usual in verbs if getattr(verb, form)} for form in _FORMS
    }


_names = cache(_Names)
