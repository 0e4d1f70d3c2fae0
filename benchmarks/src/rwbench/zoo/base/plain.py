"""Rule worlds in plain English: house rules of made-up places, and questions whose answers follow from them.

A domain (``plain_domains.toml``) says what can be said of a hotel's guests or a bakery's cakes; a world draws rules
between such facts, and a question states some and asks for what follows. Values are arbitrary, so a model has to find
and read the rules. Rule books that models are tested on are of none of these domains.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

SHE = "Anna Carla Dilek Edith Greta Hanna Irina Jelena Kaija Leila Mina Noor Olga Paula Rosa Sofia Tessa Uma Vera Wanda"
HE = "Adam Bruno Cyril Diego Emil Felix Goran Henrik Igor Jonas Karim Lukas Marco Nikolai Oscar Pavel Rafael Stefan"
SURNAMES = (
    "Abano Bergqvist Castell Dvorak Eklund Farkas Gallo Hoxha Ivarsen Jansen Kovac Lindqvist Moreau Nakata Oduya "
    "Petrov Quist Rossi Santos Takala Urban Vidal Weller Yilmaz Zeman"
).split()
SLOTS: dict[str, Sequence[str]] = {
    "colour": "red blue green yellow white black grey brown orange purple pink silver golden turquoise beige".split(),
    "number": [str(n) for n in range(10, 100)],
    "big": [str(n) for n in range(100, 1000, 10)],
    "small": [str(n) for n in range(2, 13)],
    "person": [f"{title} {name}" for title in ("Ms", "Mr") for name in SURNAMES],
    "name": SURNAMES,
    "time": [f"{hour}:{minute:02}" for hour in range(7, 22) for minute in range(0, 60, 10)],
    "weekday": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "month": (
        "January February March April May June July August September October November December"
    ).split(),
    "letter": list("ABCDEFGH"),
    "city": "Turin Ghent Bergen Porto Lviv Graz Malmo Tartu Lyon Split Cork Izmir Oulu Bilbao Gdansk".split(),
}
"""Values of the slots that facts of any domain may have."""
SPEAKERS = ("s", "he", "him", "his", "amount")
TRIES = 60


@dataclass(frozen=True)
class PlainFact:
    """Something that may be said of a domain's subject, with at most one slot.

    Attributes
    ----------
    role : str
        ``start`` (only ever a premise), ``middle`` or ``end`` (only ever a conclusion).
    rule : str
        As rules say it.
    said, ask : tuple of str
        As a question states it, and asks for its slot.
    answer : str
        What is answered.
    over : bool or None
        Of a fact with a limit, whether what is said lies above it or below; None: no limit.
    limit : tuple of int
        Least and largest limit.
    """

    role: str
    rule: str
    said: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    answer: str = ""
    over: bool | None = None
    limit: tuple[int, ...] = ()

    @property
    def slot(self) -> str | None:
        """Name of the slot; None: there is none."""
        return next((name for name in re.findall(r"{(\w+)}", self.rule) if name not in SPEAKERS), None)


@dataclass(frozen=True)
class Domain:
    """What rules of one sort of place are about; without ``things`` the subject is a person."""

    name: str
    subject: str
    things: tuple[str, ...]
    slots: Mapping[str, Sequence[str]]
    facts: tuple[PlainFact, ...]

    def values(self, fact: PlainFact) -> Sequence[str | None]:
        """Return what may stand in a fact's slot."""
        if fact.slot is None:
            return [None]
        if fact.slot == "limit":
            return [str(n) for n in range(fact.limit[0], fact.limit[-1] + 1)]
        return self.slots[fact.slot] if fact.slot in self.slots else SLOTS[fact.slot]


@lru_cache(maxsize=1)
def domains() -> tuple[Domain, ...]:
    """Return all domains."""
    text = (files("rwbench.zoo.base") / "plain_domains.toml").read_text(encoding="utf-8")
    return tuple(
        Domain(
            each["name"],
            each["subject"],
            tuple(each["things"]),
            each.get("slots", {}),
            tuple(_fact(fact) for fact in each["fact"]),
        )
        for each in tomllib.loads(text)["domain"]
    )


def _fact(said: Mapping[str, Any]) -> PlainFact:
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in said.items()}
    return PlainFact(**values)


HELD_OUT = ("railway workshop", "dance contest", "film studio")
"""Domains of validation, which nothing is trained on."""


class Said(NamedTuple):
    """A fact with its value."""

    fact: PlainFact
    value: str | None


class Speaker(NamedTuple):
    """Whom a text is about, as it says so."""

    s: str
    he: str
    him: str
    his: str

    def say(self, text: str, value: str | None = None, **more: str) -> str:
        """Return a template filled in; its slot, whatever its name, gets the value."""
        known = self._asdict() | more
        return re.sub(r"{(\w+)}", lambda found: str(known.get(found[1], value)), text)


@dataclass
class PlainWorld:
    """Rules of one domain.

    Attributes
    ----------
    domain : Domain
    rules : list of (Said, Said)
        Premise and conclusion. A premise has one conclusion of a fact at most, and conclusions come later in an order
        of the facts than premises, so that nothing contradicts itself.
    """

    domain: Domain
    rules: list[tuple[Said, Said]]
    _from: dict[Said, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, (premise, _) in enumerate(self.rules):
            self._from.setdefault(premise, []).append(number)

    @property
    def texts(self) -> list[str]:
        """The rules as texts."""
        return [f"If {self.premise(rule)}, {self.conclusion(rule)}." for rule in range(len(self.rules))]

    def premise(self, rule: int) -> str:
        """Return the premise of a rule as its text has it."""
        fact, value = self.rules[rule][0]
        return _subject(self.domain).say(fact.rule, value)

    def conclusion(self, rule: int) -> str:
        """Return the conclusion of a rule as its text has it."""
        fact, value = self.rules[rule][1]
        return _subject(self.domain).say(fact.rule, value)

    def alike(self, rule: int, other: int) -> bool:
        """Return whether two rules have one premise, or say something of the same sort."""
        (premise, then), (its, follows) = self.rules[rule], self.rules[other]
        return premise == its or then.fact is follows.fact

    def question(self, draw: random.Random, hops: int, parts: int = 1) -> dict[str, Any] | None:
        """Draw a question of some steps, or of two parts with a step each; None if there seems to be none.

        Returns
        -------
        dict
            ``question``, ``steps`` (``nl``, ``rule_ids``: numbers of rules), ``answers``, ``gold_rule_ids`` and
            ``subtask`` (single_rule, multi_rule or multi_hop), as the benchmark's questions have them.
        """
        for _ in range(TRIES):
            ways = [self._way(draw, hops if parts == 1 else 1) for _ in range(parts)]
            if all(ways) and self._only([way for way in ways if way]):
                return self._ask(draw, [way for way in ways if way])
        return None

    def any_question(self, draw: random.Random) -> dict[str, Any] | None:
        """Draw a question of one step to four, or a fourth of the time of two parts; None as in `question`."""
        hops = draw.choice((1, 2, 2, 3, 3, 4))
        return self.question(draw, hops, 2 if draw.random() < 0.25 else 1)

    def _way(self, draw: random.Random, hops: int) -> list[int] | None:
        way = [draw.randrange(len(self.rules))]
        while len(way) < hops:
            after = self._from.get(self.rules[way[-1]][1])
            if not after:
                return None
            way.append(draw.choice(after))
        given, asked = self.rules[way[0]][0].fact, self.rules[way[-1]][1].fact
        return way if given.said and asked.ask else None

    def _only(self, ways: list[list[int]]) -> bool:
        """Return whether from what is stated one value follows for each thing asked, by these rules alone."""
        given = list(dict.fromkeys(self.rules[way[0]][0] for way in ways))
        if len({id(each.fact) for each in given}) < len(given):
            return False
        derived: dict[Said, list[int]] = {}
        todo = list(given)
        while todo:
            for rule in self._from.get(todo.pop(), ()):
                then = self.rules[rule][1]
                derived.setdefault(then, []).append(rule)
                if len(derived[then]) == 1 and then not in given:
                    todo.append(then)
        stated = {id(each.fact) for each in given}
        asked = [self.rules[way[-1]][1].fact for way in ways]
        if len({id(fact) for fact in asked}) < len(ways) or any(id(fact) in stated for fact in asked):
            return False
        alone = all(sum(then.fact is fact for then in derived) == 1 for fact in asked)
        return alone and all(derived[self.rules[rule][1]] == [rule] for way in ways for rule in way)

    def _ask(self, draw: random.Random, ways: list[list[int]]) -> dict[str, Any]:
        who = _someone(self.domain, draw)
        amounts: dict[Said, str] = {}
        stated = []
        for given in dict.fromkeys(self.rules[way[0]][0] for way in ways):
            fact, value = given
            if fact.over is not None:
                limit = int(str(value))
                amounts[given] = str(
                    draw.randint(limit + 1, 2 * limit + 3)
                    if fact.over
                    else draw.randint(1, max(1, limit - 1))
                )
            text = fact.said[0] if draw.random() < 0.4 else draw.choice(fact.said)
            stated.append(who.say(text, value, amount=amounts.get(given, "")))
        named = any(who.s in each for each in stated)
        speaker = who if named else Speaker(who.s, who.s, who.s, f"{who.s}'s")  # no pronoun without a name
        asks, steps, answers = [], [], []
        for way in ways:
            for rule in way:
                premise, then = self.rules[rule]
                since = who.say(premise.fact.rule, premise.value)
                if premise in amounts:
                    since = who.say(premise.fact.said[0], amount=amounts[premise])
                    since += f", {'above' if premise.fact.over else 'below'} {premise.value}"
                text = _sentence(f"{since}, so {who.say(then.fact.rule, then.value)}.")
                steps.append({"nl": text, "fol": "", "rule_ids": [rule]})
            fact, value = self.rules[way[-1]][1]
            ask = speaker.say(draw.choice(fact.ask))
            asks.append(ask)
            answers.append(_short(who.say(fact.answer, value), ask))
        if len(stated) > 1 and draw.random() < 0.5:
            stated = [" and ".join(stated)]
        if len(asks) > 1 and draw.random() < 0.5:
            asks = [asks[0].rstrip("?") + ", and " + asks[1][0].lower() + asks[1][1:]]
        return {
            "question": " ".join([*(_sentence(f"{each}.") for each in stated), *asks]),
            "steps": steps,
            "answers": answers,
            "gold_rule_ids": sorted({rule for way in ways for rule in way}),
            "subtask": "multi_rule" if len(ways) > 1 else "single_rule" if len(ways[0]) == 1 else "multi_hop",
        }


def plain_world(draw: random.Random, domain: Domain, rules: int) -> PlainWorld:
    """Draw a world of some rules (fewer, where a domain has no more to say)."""
    order = [fact for fact in domain.facts if fact.role == "start"]
    middle = [fact for fact in domain.facts if fact.role == "middle"]
    order += draw.sample(middle, len(middle))
    order += [fact for fact in domain.facts if fact.role == "end"]
    place = {id(fact): at for at, fact in enumerate(order)}
    most = max(2, rules // 12)
    there = {
        id(fact): draw.sample(
            domain.values(fact), min(len(domain.values(fact)), 1 if fact.over is not None else most)
        )
        for fact in order
        if fact.role != "end"
    }
    found: dict[tuple[Said, int], tuple[Said, Said]] = {}
    reached: list[Said] = []
    for _ in range(20 * rules):
        if len(found) >= rules:
            break
        if reached and draw.random() < 0.5:
            premise = draw.choice(reached)
        else:
            fact = draw.choice([each for each in order if each.role != "end"])
            premise = Said(fact, draw.choice(there[id(fact)]))
        fact = draw.choice([each for each in order[place[id(premise.fact)] + 1 :] if each.role != "start"])
        values = there[id(fact)] if fact.role == "middle" else domain.values(fact)
        then = Said(fact, draw.choice(list(values)))
        if (premise, id(fact)) not in found:
            found[premise, id(fact)] = premise, then
            if fact.role == "middle":
                reached.append(then)
    return PlainWorld(domain, list(found.values()))


def plain_questions(
    key: str, held_out: bool, count: int, rules: int = 300
) -> tuple[dict[str, tuple[str, str]], list[dict[str, Any]]]:
    """Draw one large world a domain, with questions; no two of its rules contradict each other.

    Parameters
    ----------
    key : str
        Names the draw.
    held_out : bool
        Take the domains of validation, or the others.
    count : int
        Questions of all domains together.
    rules : int
        Of a domain, at most.

    Returns
    -------
    rules : dict
        Text and conclusion of each rule by its id.
    questions : list of dict
        As `PlainWorld.question` returns them, with those ids.
    """
    chosen = [each for each in domains() if (each.name in HELD_OUT) == held_out] if count else []
    texts: dict[str, tuple[str, str]] = {}
    rows: list[dict[str, Any]] = []
    for number, domain in enumerate(chosen):
        draw = random.Random(f"plain/{key}/{domain.name}")
        world, first = plain_world(draw, domain, rules), f"plain-{domain.name.replace(' ', '-')}-"
        texts |= {f"{first}{i}": (text, world.conclusion(i)) for i, text in enumerate(world.texts)}
        wanted = len(rows) + (count - len(rows)) // (len(chosen) - number)
        for _ in range(3 * count):
            if len(rows) == wanted:
                break
            if row := world.any_question(draw):
                steps = [
                    each | {"rule_ids": [f"{first}{i}" for i in each["rule_ids"]]} for each in row["steps"]
                ]
                rows.append(row | {"steps": steps})
    return texts, rows


def _subject(domain: Domain) -> Speaker:
    """Return the subject as rules name it."""
    name = f"the {domain.subject}"
    return Speaker(name, "it", "it", "its") if domain.things else Speaker(name, "they", "them", "their")


def _someone(domain: Domain, draw: random.Random) -> Speaker:
    """Return somebody or something that a question is about."""
    if domain.things:
        thing = draw.choice(domain.things)
        return Speaker("the " + thing.split(" ", 1)[1], "it", "it", "its")
    if draw.random() < 0.5:
        return Speaker(draw.choice(SHE.split()), "she", "her", "her")
    return Speaker(draw.choice(HE.split()), "he", "him", "his")


def _short(answer: str, ask: str) -> str:
    """Return an answer as one gives it: a number alone to "how many", and no article."""
    number = re.search(r"\d+", answer)
    return number[0] if number and "how many" in ask.lower() else answer.removeprefix("the ")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
