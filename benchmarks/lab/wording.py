"""Draw plain worlds, and word their rules as people do: not only "If ..., ...", but notices and schedules."""

import random
import re
from itertools import islice
from typing import Any

from plain import BAND, DATA, DOMAINS, HELD_OUT, Claim, Domain, Fact, PlainWorld, Rule, fill, sentence

SHAPES = DATA["wording"]
PLAIN_FRAME = 0.25  # share of rules that are worded "If ..., ..."
KINDS = (("chain", 1), ("chain", 2), ("chain", 3), ("chain", 3), ("chain", 4), ("parts", 1), ("parts", 2))
MORE_KINDS = (*(("unknown", hops) for hops in (1, 2, 3)), ("exception", 1), ("exception", 2), ("compare", 1))


def _widened(draw: random.Random, fact: Fact, value: str | None) -> str | None:
    """Return a value of several words in place of one, or a longer number."""
    if value is None or fact.over is not None:
        return value
    if fact.slot == "colour":
        return f"{draw.choice(SHAPES['shades'])} {value}"
    if fact.slot == "person":
        title, surname = value.split()
        return f"{title} {draw.choice(DATA['she' if title == 'Ms' else 'he'].split())} {surname}"
    if fact.slot == "big":
        return f"{draw.randint(1000, 9990):,}"
    if fact.slot == "letter":
        return f"{value}{draw.randint(2, 30)}"
    if fact.slot in ("weekday", "month", "name", "number", "small", "time") or not value[0].isupper():
        return value
    return f"{draw.choice(SHAPES['places'])} {value}"


def _values(draw: random.Random, fact: Fact, most: int, wide: bool) -> list[str | None]:
    """Draw the values that a world has of a fact; of an amount one limit, or bands that do not overlap."""
    if fact.over is not None:
        if wide and BAND.search(fact.rule) and len(fact.values) > 4:
            low, high = sorted(int(str(v)) for v in draw.sample(fact.values[1:], 2))
            return (
                [f"at most {low}", f"{low + 1} to {high}", f"more than {high}"]
                if high > low + 1
                else [str(low)]
            )
        return [draw.choice(fact.values)]
    values = draw.sample(fact.values, min(len(fact.values), most))
    if not wide or fact.values == (None,):
        return values
    return list(
        dict.fromkeys(value if draw.random() < 0.4 else _widened(draw, fact, value) for value in values)
    )


def plain_world(draw: random.Random, domain: Domain, rules: int, absent: float = 0.0) -> PlainWorld:
    """Draw a world of some rules (fewer, where a domain has no more to say), and that share more which it lacks.

    It has exceptions, two premises or two conclusions in some rules, bands of amounts and longer values.
    """
    starts, middles, ends = (
        [f for f in domain.facts if f.role == role] for role in ("start", "middle", "end")
    )
    order = [*starts, *draw.sample(middles, len(middles)), *ends]
    wide = draw.random() < 0.6
    values = {fact: _values(draw, fact, max(2, rules // 12), wide) for fact in order}
    sources = [fact for fact in order if fact.role != "end"]
    bare = [Claim(fact, None) for fact in starts if fact.values == (None,)]
    drawn: dict[tuple[Claim, Fact], Rule] = {}
    reached: list[Claim] = []
    total = round(rules / (1 - absent))
    for _ in range(20 * total):
        if len(drawn) >= total:
            break
        if reached and draw.random() < 0.6:
            premise = draw.choice(reached)
        else:
            fact = draw.choice(sources)
            premise = Claim(fact, draw.choice(values[fact]))
        later = [fact for fact in order[order.index(premise.fact) + 1 :] if fact.role != "start"]
        fact = draw.choice(later[:2] if draw.random() < 0.4 else later)  # small steps make long chains
        then = Claim(
            fact, draw.choice(values[fact] if fact.role == "middle" else [*values[fact], *fact.values])
        )
        if (premise, fact) in drawn:
            continue
        rule = Rule((premise,), (then,))
        free = [claim for claim in bare if claim != premise]
        chance = draw.random() if free else 1.0
        if chance < 0.12:
            rule = Rule((premise,), (then,), draw.choice(free))
        elif chance < 0.18:
            rule = Rule((premise, draw.choice(free)), (then,))
        elif chance < 0.26 and len(later) > 1:
            other = draw.choice([each for each in later if each is not fact])
            if (premise, other) not in drawn:
                rule = Rule((premise,), (then, Claim(other, draw.choice(values[other]))))
                drawn[premise, other] = rule
        drawn[premise, fact] = rule
        if rule.unless and draw.random() < 0.6:  # what holds instead
            instead = [value for value in values[fact] if value != then.value]
            if instead:
                drawn[rule.unless, fact] = Rule((premise, rule.unless), (Claim(fact, draw.choice(instead)),))
        reached += [claim for claim in rule.then if claim.fact.role == "middle"]
    every = list(dict.fromkeys(drawn.values()))
    draw.shuffle(every)
    kept = every[: round(len(every) * (1 - absent))]
    texts = list({word_rule(draw, domain, rule): rule for rule in kept}.items())
    return PlainWorld(
        domain, [r for _, r in texts], [t for t, _ in texts], every[len(kept) :] if absent else ()
    )


def word_rule(draw: random.Random, domain: Domain, rule: Rule) -> str:
    """Return the text of a rule in one of many forms."""
    subject = f"the {domain.subject}"
    names = (subject, "it", "it", "its") if domain.things else (subject, "they", "them", "their")
    premises, then = ([fill(c.fact.rule, names, c.value) for c in side] for side in rule[:2])
    p, c = " and ".join(premises), " and ".join(then)
    ends = draw.choice(SHAPES["unless"]) if rule.unless else ""
    if draw.random() < PLAIN_FRAME:
        text = f"If {p}, {c}."
    elif p.startswith(f"{subject} ") and draw.random() < 0.25:  # about anyone who, or about any thing that
        about = f"{draw.choice(('Any', 'Every', 'A'))} {domain.subject} {'that' if domain.things else 'who'}"
        about = re.sub(r"^A (?=[aeiou])", "An ", f"{about} {p.removeprefix(subject + ' ')}")
        alone = c.startswith(f"{subject} ") and len(rule.then) == len(rule.premises) == 1
        text = f"{about} {c.removeprefix(subject + ' ')}." if alone else f"{about}: {c}."
    elif len(rule.premises) == 1 and (label := _label(rule.premises[0])) and draw.random() < 0.4:
        text = f"{sentence(label)}: {c}."  # a line of a schedule
    else:
        text = draw.choice(SHAPES["frames"]).format(p=p, c=c, P=sentence(p), C=sentence(c))
    if rule.unless:
        text = text.removesuffix(".") + ends.format(q=fill(rule.unless.fact.rule, names))
    return text


def _label(premise: Claim) -> str:
    """Return what a schedule calls a premise, as "register C"; nothing where its value alone would stand there."""
    fact = premise.fact
    named = fact.role == "middle" and re.search(r"[a-z]{3}", re.sub(r"{\w+}|^the ", "", fact.answer))
    return fill(fact.answer, ("", "", "", ""), premise.value).removeprefix("the ") if named else ""


def ask(draw: random.Random, world: PlainWorld, kinds: Any) -> dict[str, Any] | None:
    """Draw a question of some kind; None if there seems to be none."""
    kind, hops = draw.choice(kinds)
    return world.question(draw, hops, kind)


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
        drawn = (ask(draw, world, KINDS) for _ in range(4 * count))
        for row in islice(filter(None, drawn), (count - len(rows)) // (len(domains) - number)):
            steps = [step | {"rule_ids": [ids[i] for i in step["rule_ids"]]} for step in row["steps"]]
            rows.append(row | {"steps": steps})
    return rules, rows
