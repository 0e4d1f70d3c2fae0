"""Rule books in plain English, and questions whose answers follow from them or from no rule at all.

A domain (``plain_domains.toml``) says what can be said of a hotel's guests or a bakery's cakes. A world draws rules
between such facts and words them as people do (`wording.py`); a question states some facts and asks what follows.
Values are arbitrary, so a model has to find and read the rules. What follows is decided by `PlainWorld.follow`. Rule
books that models are tested on are of none of these domains.
"""

import pathlib
import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

HELD_OUT = ("railway workshop", "dance contest", "film studio")  # of validation: nothing is trained on them
DATA = tomllib.loads(pathlib.Path(__file__).with_name("plain_domains.toml").read_text(encoding="utf-8"))
SURNAMES = DATA["surnames"].split()
VALUES: dict[str, Sequence[str]] = {
    **{name: words.split() for name, words in DATA["values"].items()},
    "number": [str(n) for n in range(10, 100)],
    "big": [str(n) for n in range(100, 1000, 10)],
    "small": [str(n) for n in range(2, 13)],
    "person": [f"{title} {name}" for title in ("Ms", "Mr") for name in SURNAMES],
    "name": SURNAMES,
    "time": [f"{hour}:{minute:02}" for hour in range(7, 22) for minute in range(0, 60, 10)],
}
PRONOUNS = ("s", "he", "him", "his")
BAND = re.compile(r"(more|less|fewer) than {limit}")
TRIES = 60
UNKNOWN = "unknown"
NO_RULE = "No rule says so."


@dataclass(frozen=True, eq=False)
class Fact:
    """What may be said of a domain's subject; a slot in its texts stands for one of some values."""

    role: str  # start: only ever a premise; end: only ever a conclusion; or middle
    rule: str  # as rules say it
    said: Sequence[str] = ()  # as a question states it
    ask: Sequence[str] = ()  # as a question asks for its value
    answer: str = ""
    over: bool | None = None  # of a fact with a limit: whether a stated amount lies above it
    values: Sequence[str | None] = (None,)
    slot: str = ""


class Domain(NamedTuple):
    """What rules of one sort of place are about; without ``things`` the subject is a person."""

    name: str
    subject: str
    things: Sequence[str]
    facts: Sequence[Fact]


class Claim(NamedTuple):
    """A fact with a value; of an amount a limit, or a band ("at most 3", "4 to 9", "more than 9")."""

    fact: Fact
    value: str | None

    @property
    def limits(self) -> tuple[int, int]:
        """Return the least and the largest amount that it is true of."""
        numbers = [int(n) for n in re.findall(r"\d+", str(self.value))]
        if len(numbers) > 1:
            return numbers[0], numbers[1]
        if str(self.value).startswith("at most"):
            return 1, numbers[0]
        over = self.fact.over or "more" in str(self.value)
        return (numbers[0] + 1, 2 * numbers[0] + 3) if over else (1, max(1, numbers[0] - 1))


Path = list[tuple[int, "Claim"]]  # numbers of rules, each with what it concludes


class Rule(NamedTuple):
    """If all premises hold and no exception is stated, all conclusions hold."""

    premises: tuple[Claim, ...]
    then: tuple[Claim, ...]
    unless: Claim | None = None


def _fact(entry: dict[str, Any], values: dict[str, Sequence[str]]) -> Fact:
    fields = {name: value for name, value in entry.items() if name != "limit"}
    for slot in re.findall(r"{(\w+)}", entry["rule"]):
        if slot == "limit":
            fields |= {
                "values": [str(n) for n in range(entry["limit"][0], entry["limit"][1] + 1)],
                "slot": slot,
            }
        elif slot not in PRONOUNS:
            fields |= {"values": values.get(slot) or VALUES[slot], "slot": slot}
    return Fact(**fields)


DOMAINS = [
    Domain(d["name"], d["subject"], d["things"], [_fact(entry, d.get("slots", {})) for entry in d["fact"]])
    for d in DATA["domain"]
]


def fill(template: str, subject: Sequence[str], value: str | None = None, amount: str = "") -> str:
    """Fill in a template: names of the subject (`PRONOUNS`), an amount, and the value for any other slot."""
    if value and not value.isdigit():
        template = BAND.sub(lambda _: value, template)
    words = dict(zip(PRONOUNS, subject, strict=True), amount=amount)
    return re.sub(r"{(\w+)}", lambda slot: str(words.get(slot[1], value)), template)


def sentence(text: str) -> str:
    """Return a text with a capital at its start."""
    return text[0].upper() + text[1:]


class PlainWorld:
    """Rules of one domain that do not contradict each other, and some more of the kind that its book lacks."""

    def __init__(
        self, domain: Domain, rules: Sequence[Rule], texts: Sequence[str], absent: Sequence[Rule] = ()
    ):
        self.domain, self.rules, self.texts, self.absent = domain, rules, texts, absent
        self.everything = [*rules, *absent]
        self.rules_from: dict[Claim, list[int]] = defaultdict(list)
        for number, rule in enumerate(self.everything):
            for premise in rule.premises:
                self.rules_from[premise].append(number)
        name = f"the {domain.subject}"
        subject = (name, "it", "it", "its") if domain.things else (name, "they", "them", "their")
        clauses = [
            [[fill(c.fact.rule, subject, c.value) for c in side] for side in rule[:2]] for rule in rules
        ]
        self.premises, self.conclusions = ([" and ".join(rule[i]) for rule in clauses] for i in (0, 1))

    def alike(self, rule: int, other: int) -> bool:
        """Return whether two rules share a premise, or conclude something of the same sort."""
        one, its = self.rules[rule], self.rules[other]
        facts = {claim.fact for claim in one.then}
        return bool({*one.premises} & {*its.premises}) or any(claim.fact in facts for claim in its.then)

    def follow(self, given: Iterable[Claim]) -> dict[Claim, list[int]]:
        """Return what follows from what is stated, and from which rules; the book says nothing else."""
        stated, fired = set(given), set()
        known, todo = set(stated), [*stated]
        derived: dict[Claim, list[int]] = defaultdict(list)
        while todo:
            for number in self.rules_from.get(todo.pop(), ()):
                rule = self.everything[number]
                if number in fired or number >= len(self.rules) or rule.unless in stated:
                    continue
                if known.issuperset(rule.premises):
                    fired.add(number)
                    for claim in rule.then:
                        derived[claim].append(number)
                        todo += [] if claim in known else [claim]
                        known.add(claim)
        return derived

    def question(self, draw: random.Random, hops: int, kind: str = "chain") -> dict[str, Any] | None:
        """Draw a question, or return None if there seems to be none.

        It is a row as the benchmark's questions are; its rule ids are numbers of rules. A *chain* has so many steps;
        *parts* are two things that are asked of one or of two; *compare* asks for the sum or the difference of two
        numbers; *exception* states what a rule on the way excepts; *unknown* lacks a rule on the way.
        """
        for _ in range(TRIES):
            paths = [self._path(draw, hops, kind) for _ in range(2 if kind in ("parts", "compare") else 1)]
            if all(paths) and (row := self._ask(draw, paths, kind)):
                return row
        return None

    def _path(self, draw: random.Random, hops: int, kind: str) -> Path:
        """Return rules that lead on from each other with what each concludes; nothing where a draw ends too early."""
        reach = len(self.everything) if kind == "unknown" else len(self.rules)
        path: Path = []
        following: Sequence[int] = range(reach)
        while len(path) < hops:
            number = draw.choice(following)
            path.append((number, draw.choice(self.everything[number].then)))
            following = [n for n in self.rules_from.get(path[-1][1], ()) if n < reach]
            if not following and len(path) < hops:  # the end of a chain: go back to where another way is left
                return self._before(draw, path, hops, reach)
        return path

    def _before(self, draw: random.Random, path: Path, hops: int, reach: int) -> Path:
        """Return a path of so many steps with that end, or nothing where there is none."""
        while len(path) < hops:
            wanted = self.everything[path[0][0]].premises[0]
            leading = [n for n in range(reach) if wanted in self.everything[n].then]
            if not leading:
                return []
            path = [(draw.choice(leading), wanted), *path]
        return path

    def _given(self, path: Path, kind: str) -> list[Claim]:
        """Return what must be stated for a path: all premises that no rule of it concludes."""
        rules = [self.everything[n] for n, _ in path]
        then = {claim for rule in rules for claim in rule.then}
        given = [claim for rule in rules for claim in rule.premises if claim not in then]
        excepted = [rule.unless for rule in rules if rule.unless] if kind == "exception" else []
        return list(dict.fromkeys([*given, *excepted[:1]]))

    def _ask(self, draw: random.Random, paths: list[Path], kind: str) -> dict[str, Any] | None:
        """Return the question about some paths if every thing asked has one answer, or none where none is due."""
        wanted = [path[-1][1].fact for path in paths]
        given = [self._given(path, kind) for path in paths]
        if any(not claim.fact.said for claims in given for claim in claims):
            return None
        apart = kind == "compare" or (kind == "parts" and draw.random() < 0.5)
        if not apart:
            given = [list(dict.fromkeys(claim for claims in given for claim in claims))] * len(paths)
        stated = [claim.fact for claim in given[0]]
        odd = len(set(stated)) < len(stated) or {*stated} & {*wanted}
        odd = odd or (kind == "compare" and (len({*wanted}) > 1 or "{" not in wanted[0].answer))
        odd = odd or (not apart and len({*wanted}) < len(wanted))
        if odd or (apart and any("{s}" not in " ".join(c.fact.said) for claims in given for c in claims)):
            return None
        proofs = [self._proof(claims, fact) for claims, fact in zip(given, wanted, strict=True)]
        if kind == "unknown":
            both = zip(paths, proofs, strict=True)
            proofs = [self._until(path, given[0], wanted[0], proof) for path, proof in both]
        excepted = any(self.everything[n].unless in given[0] for n, _ in paths[0])
        unproved = [] in proofs and kind in ("chain", "parts", "compare")
        if None in proofs or unproved or (kind == "exception" and not excepted):
            return None
        return self._row(draw, given, list(zip(proofs, wanted, strict=True)), kind, apart)

    def _proof(self, given: Sequence[Claim], wanted: Fact) -> Path | None:
        """Return rules, each with what it concludes, that lead to the one value of a fact: nothing if none does.

        None where the value or the way to it is not the only one.
        """
        derived = self.follow(given)
        found = [claim for claim in derived if claim.fact is wanted]
        if len(found) > 1:
            return None
        proof: Path = []
        todo, needed = list(found), set(found)
        while todo:
            claim = todo.pop()
            if len(derived[claim]) > 1 or claim in given:
                return None
            proof.insert(0, (derived[claim][0], claim))
            more = [p for p in self.rules[derived[claim][0]].premises if p not in given and p not in needed]
            todo += more
            needed.update(more)
        return proof

    def _until(self, path: Any, given: Any, wanted: Fact, proof: Any) -> Any:
        """Return the steps of a path up to the rule that the book lacks; None if it lacks none or there is another."""
        steps = list(takewhile(lambda step: step[0] < len(self.rules), path))
        alone = all(self.follow(given)[claim] == [number] for number, claim in steps)
        return steps if proof == [] and len(steps) < len(path) and alone else None

    def _row(
        self, draw: random.Random, given: Any, proofs: Any, kind: str, apart: bool
    ) -> dict[str, Any] | None:
        """Word a question and its answer in steps."""
        people = [_someone(self.domain, draw) for _ in range(1 + apart)]
        if apart and people[0][0] == people[1][0]:
            return None
        people = people if apart else people * len(proofs)
        steps, asks, answers, stated = [], [], [], []
        for number, (who, claims, (proof, wanted)) in enumerate(zip(people, given, proofs, strict=True)):
            amounts = {c: str(draw.randint(*c.limits)) for c in claims if c.fact.over is not None}
            if apart or not number:
                for claim in draw.sample(claims, len(claims)):
                    texts = [said for said in claim.fact.said if "{s}" in said or not apart]
                    text = texts[0] if draw.random() < 0.4 else draw.choice(texts)
                    stated.append(fill(text, who, claim.value, amounts.get(claim, "")))
            steps += [_step(self.rules[rule], rule, who, then, amounts) for rule, then in proof]
            named = any(who[0] in text for text in stated) and not apart
            asks.append(_question(draw, wanted, who if named else (*[who[0]] * 3, f"{who[0]}'s"), apart))
            then = next((claim for _, claim in reversed(proof) if claim.fact is wanted), None)
            answers.append(_answer(asks[-1], fill(wanted.answer, who, then.value)) if then else UNKNOWN)
            if then is None:
                steps.append({"nl": NO_RULE, "fol": "", "rule_ids": []})
        if kind == "compare":
            if (last := _compared(draw, answers, people)) is None:
                return None
            asks.append(last[0])
            steps.append({"nl": last[1], "fol": "", "rule_ids": []})
            answers = [last[2]]
        elif len(asks) > 1 and draw.random() < 0.5:
            asks = [asks[0].rstrip("?") + ", and " + asks[1][0].lower() + asks[1][1:]]
        if len(stated) > 1 and draw.random() < 0.5:
            stated = [f"{', '.join(stated[:-1])} and {stated[-1]}"]
        return {
            "question": " ".join([*(sentence(f"{text}.") for text in stated), *asks]),
            "steps": steps,
            "answers": answers,
            "gold_rule_ids": sorted({rule for proof, _ in proofs for rule, _ in proof}),
            "subtask": kind,
        }


def _step(rule: Rule, number: int, who: Any, then: Claim, amounts: dict[Claim, str]) -> dict[str, Any]:
    since = []
    for premise in rule.premises:
        said = fill(premise.fact.rule, who, premise.value)
        if premise in amounts:
            value = str(premise.value)
            if value.isdigit():
                value = f"{'above' if premise.fact.over else 'below'} {value}"
            value = f"between {value.replace(' to ', ' and ')}" if " to " in value else value
            said = f"{fill(premise.fact.said[0], who, amount=amounts[premise])}, {value}"
        since.append(said)
    text = f"{' and '.join(since)}, so {fill(then.fact.rule, who, then.value)}."
    return {"nl": sentence(text), "fol": "", "rule_ids": [number]}


def _question(draw: random.Random, wanted: Fact, who: Sequence[str], apart: bool) -> str:
    ask = draw.choice(wanted.ask)
    text = fill(ask, who)
    if apart and "{s}" not in ask and "{h" not in ask:
        text = f"In the case of {who[0]}, {text[0].lower()}{text[1:]}"
    return text


def _answer(ask: str, answer: str) -> str:
    number = re.search(r"\d[\d,.:]*", answer) if "how many" in ask.lower() else None
    return number[0] if number else answer.removeprefix("the ")


def _compared(draw: random.Random, answers: Sequence[str], people: Any) -> tuple[str, str, str] | None:
    """Return what is asked of two numbers, the step that says it, and its answer."""
    found = [re.fullmatch(r"\D*?(\d+)(\D*)", answer) for answer in answers]
    if not all(found) or found[0][2] != found[1][2] or found[0][1] == found[1][1]:
        return None
    one, two = (int(match[1]) for match in found)
    most, least = max(one, two), min(one, two)
    who = people[0][0] if one > two else people[1][0]
    total, more = f"{one} and {two} are {one + two} together.", f"{most} is {most - least} more than {least}."
    return draw.choice(
        [
            ("How much is that together?", total, str(one + two)),
            ("What do the two numbers add up to?", total, str(one + two)),
            ("How large is the difference?", more, str(most - least)),
            (
                "For which of the two is the number higher?",
                f"{most} is more than {least}.",
                who.removeprefix("the "),
            ),
        ]
    )


def _someone(domain: Domain, draw: random.Random) -> Sequence[str]:
    """Return somebody or something that a question is about, with pronouns."""
    if domain.things:
        return "the " + draw.choice(domain.things).split(" ", 1)[1], "it", "it", "its"
    if draw.random() < 0.5:
        return draw.choice(DATA["she"].split()), "she", "her", "her"
    return draw.choice(DATA["he"].split()), "he", "him", "his"
