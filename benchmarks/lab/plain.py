"""Worlds in plain English: house rules of made-up places, and questions whose answers follow from them.

A domain (``plain_domains.toml``) says what can be said of a hotel's guests or a bakery's cakes. A world draws rules
between such facts; a question states some facts and asks what follows. Values are arbitrary, so a model has to find and
read the rules. Rule books that models are tested on are of none of these domains.
"""

import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

HELD_OUT = ("railway workshop", "dance contest", "film studio")  # of validation: nothing is trained on them
DATA = tomllib.loads(Path(__file__).with_name("plain_domains.toml").read_text(encoding="utf-8"))
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
TRIES = 60


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


class Domain(NamedTuple):
    """What rules of one sort of place are about; without ``things`` the subject is a person."""

    name: str
    subject: str
    things: Sequence[str]
    facts: Sequence[Fact]


class Claim(NamedTuple):
    """A fact with a value."""

    fact: Fact
    value: str | None


def _fact(entry: dict[str, Any], values: dict[str, Sequence[str]]) -> Fact:
    fields = {name: value for name, value in entry.items() if name != "limit"}
    for slot in re.findall(r"{(\w+)}", entry["rule"]):
        if slot == "limit":
            fields["values"] = [str(n) for n in range(entry["limit"][0], entry["limit"][1] + 1)]
        elif slot not in PRONOUNS:
            fields["values"] = values.get(slot) or VALUES[slot]
    return Fact(**fields)


DOMAINS = [
    Domain(d["name"], d["subject"], d["things"], [_fact(entry, d.get("slots", {})) for entry in d["fact"]])
    for d in DATA["domain"]
]


def fill(template: str, subject: Sequence[str], value: str | None = None, amount: str = "") -> str:
    """Fill in a template: names of the subject (`PRONOUNS`), an amount, and the value for any other slot."""
    words = dict(zip(PRONOUNS, subject, strict=True), amount=amount)
    return re.sub(r"{(\w+)}", lambda slot: str(words.get(slot[1], value)), template)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


class PlainWorld:
    """Rules of one domain: pairs of a premise and a conclusion, of which no two contradict each other."""

    def __init__(self, domain: Domain, rules: Sequence[tuple[Claim, Claim]]) -> None:
        self.domain, self.rules = domain, rules
        self.rules_from: dict[Claim, list[int]] = defaultdict(list)
        for number, (premise, _) in enumerate(rules):
            self.rules_from[premise].append(number)
        name = f"the {domain.subject}"
        subject = (name, "it", "it", "its") if domain.things else (name, "they", "them", "their")
        clauses = [[fill(claim.fact.rule, subject, claim.value) for claim in rule] for rule in rules]
        self.conclusions = [conclusion for _, conclusion in clauses]
        self.texts = [f"If {premise}, {conclusion}." for premise, conclusion in clauses]

    def question(self, draw: random.Random, hops: int, parts: int = 1) -> dict[str, Any] | None:
        """Draw a question of some steps, or of two parts with a step each; None if there seems to be none.

        It is a row as the benchmark's questions are; its rule ids are numbers of rules.
        """
        for _ in range(TRIES):
            paths = [self._path(draw, hops if parts == 1 else 1) for _ in range(parts)]
            if all(paths) and self._one_answer(paths):
                return self._ask(draw, paths)
        return None

    def _path(self, draw: random.Random, hops: int) -> list[int]:
        """Return rules that lead on from each other, or nothing where a draw ends too early."""
        path = [draw.randrange(len(self.rules))]
        while len(path) < hops:
            following = self.rules_from.get(self.rules[path[-1]][1])
            if not following:
                return []
            path.append(draw.choice(following))
        given, wanted = self.rules[path[0]][0].fact, self.rules[path[-1]][1].fact
        return path if given.said and wanted.ask else []

    def _one_answer(self, paths: list[list[int]]) -> bool:
        """Return whether from what is stated one value follows for each thing asked, by these rules alone."""
        given = list(dict.fromkeys(self.rules[path[0]][0] for path in paths))
        derived: dict[Claim, list[int]] = defaultdict(list)
        todo = list(given)
        while todo:
            for rule in self.rules_from.get(todo.pop(), ()):
                then = self.rules[rule][1]
                derived[then].append(rule)
                if len(derived[then]) == 1 and then not in given:
                    todo.append(then)
        stated = [claim.fact for claim in given]
        wanted = [self.rules[path[-1]][1].fact for path in paths]
        different = len({*stated, *wanted}) == len(stated) + len(paths)
        unique = all(sum(then.fact is fact for then in derived) == 1 for fact in wanted)
        return (
            different
            and unique
            and all(derived[self.rules[rule][1]] == [rule] for path in paths for rule in path)
        )

    def _ask(self, draw: random.Random, paths: list[list[int]]) -> dict[str, Any]:
        who = _someone(self.domain, draw)
        amounts: dict[Claim, str] = {}
        stated = []
        for claim in dict.fromkeys(self.rules[path[0]][0] for path in paths):
            fact, value = claim
            if fact.over is not None:
                limit = int(str(value))
                low, high = (limit + 1, 2 * limit + 3) if fact.over else (1, max(1, limit - 1))
                amounts[claim] = str(draw.randint(low, high))
            text = fact.said[0] if draw.random() < 0.4 else draw.choice(fact.said)
            stated.append(fill(text, who, value, amounts.get(claim, "")))
        name = who[0]
        pronouns = who if any(name in text for text in stated) else (name, name, name, f"{name}'s")
        asks, steps, answers = [], [], []
        for path in paths:
            for rule in path:
                premise, then = self.rules[rule]
                since = fill(premise.fact.rule, who, premise.value)
                if premise in amounts:
                    since = fill(premise.fact.said[0], who, amount=amounts[premise])
                    since += f", {'above' if premise.fact.over else 'below'} {premise.value}"
                text = _sentence(f"{since}, so {fill(then.fact.rule, who, then.value)}.")
                steps.append({"nl": text, "fol": "", "rule_ids": [rule]})
            fact, value = self.rules[path[-1]][1]
            asks.append(fill(draw.choice(fact.ask), pronouns))
            answer = fill(fact.answer, who, value)
            number = re.search(r"\d+", answer) if "how many" in asks[-1].lower() else None
            answers.append(number[0] if number else answer.removeprefix("the "))
        if len(stated) > 1 and draw.random() < 0.5:
            stated = [" and ".join(stated)]
        if len(asks) > 1 and draw.random() < 0.5:
            asks = [asks[0].rstrip("?") + ", and " + asks[1][0].lower() + asks[1][1:]]
        kind = "multi_rule" if len(paths) > 1 else "single_rule" if len(paths[0]) == 1 else "multi_hop"
        return {
            "question": " ".join([*(_sentence(f"{text}.") for text in stated), *asks]),
            "steps": steps,
            "answers": answers,
            "gold_rule_ids": sorted({rule for path in paths for rule in path}),
            "subtask": kind,
        }


def _someone(domain: Domain, draw: random.Random) -> Sequence[str]:
    """Return somebody or something that a question is about, with pronouns."""
    if domain.things:
        return "the " + draw.choice(domain.things).split(" ", 1)[1], "it", "it", "its"
    if draw.random() < 0.5:
        return draw.choice(DATA["she"].split()), "she", "her", "her"
    return draw.choice(DATA["he"].split()), "he", "him", "his"


def plain_world(draw: random.Random, domain: Domain, rules: int) -> PlainWorld:
    """Draw a world of some rules (fewer, where a domain has no more to say)."""
    starts, middles, ends = (
        [f for f in domain.facts if f.role == role] for role in ("start", "middle", "end")
    )
    order = [*starts, *draw.sample(middles, len(middles)), *ends]
    most = max(2, rules // 12)
    sizes = {
        fact: min(len(fact.values), most if fact.over is None else 1) for fact in order if fact.role != "end"
    }
    values = {fact: draw.sample(fact.values, size) for fact, size in sizes.items()}
    drawn: dict[tuple[Claim, Fact], tuple[Claim, Claim]] = {}
    reached: list[Claim] = []
    for _ in range(20 * rules):
        if len(drawn) >= rules:
            break
        if reached and draw.random() < 0.5:
            premise = draw.choice(reached)
        else:
            fact = draw.choice([*values])
            premise = Claim(fact, draw.choice(values[fact]))
        later = order[order.index(premise.fact) + 1 :]
        fact = draw.choice([fact for fact in later if fact.role != "start"])
        then = Claim(fact, draw.choice(values.get(fact, fact.values)))
        if (premise, fact) not in drawn:
            drawn[premise, fact] = premise, then
            if fact.role == "middle":
                reached.append(then)
    return PlainWorld(domain, list(drawn.values()))


def plain_questions(key: str, held_out: bool, count: int) -> tuple[dict[str, tuple[str, str]], list[Any]]:
    """Draw one large world a domain; return text and conclusion of each rule by id, and questions on all of them."""
    domains = [domain for domain in DOMAINS if (domain.name in HELD_OUT) == held_out] if count else []
    rules: dict[str, tuple[str, str]] = {}
    rows: list[dict[str, Any]] = []
    for number, domain in enumerate(domains):
        draw = random.Random(f"plain/{key}/{domain.name}")
        world = plain_world(draw, domain, 300)
        ids = [f"plain-{domain.name.replace(' ', '-')}-{i}" for i in range(len(world.rules))]
        rules |= zip(ids, zip(world.texts, world.conclusions, strict=True), strict=True)
        # Of one step to four, or a fourth of the time of two parts.
        shapes = ((draw.choice((1, 2, 2, 3, 3, 4)), 1 + (draw.random() < 0.25)) for _ in range(3 * count))
        drawn = (world.question(draw, *shape) for shape in shapes)
        for row in islice(filter(None, drawn), (count - len(rows)) // (len(domains) - number)):
            steps = [step | {"rule_ids": [ids[i] for i in step["rule_ids"]]} for step in row["steps"]]
            rows.append(row | {"steps": steps})
    return rules, rows
