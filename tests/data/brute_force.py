"""A second opinion for the tests: the semantics from the FOL strings alone, and a reading of question texts.

Nothing is imported from the package: rules are parsed with regular expressions, words come from the vocabulary files.

"""

import re
from collections import defaultdict
from pathlib import Path

VOCAB = Path(__file__).parents[2] / "ruleworld-data" / "src" / "ruleworld_data" / "world" / "vocab"
MINUS, PLUS = ("Lose", "Drop"), ("Gain", "Get", "Receive")
ATOM = re.compile(r"(\w+)\(([^()]*)\)")
CHANGE = re.compile(rf"({'|'.join(MINUS + PLUS)})_(\w+)")


def rows(name: str) -> list[list[str]]:
    """Read a vocabulary table without its header."""
    return [line.split("\t") for line in (VOCAB / name).read_text().splitlines()[1:]]


PLURALS = dict(rows("attribute_nouns.tsv"))
VERBS = {row[0]: row for row in rows("actions.tsv")}
CHANGE_VERBS = {row[1]: row[1:] for row in rows("change_verbs.tsv")}
GOAL_VERBS = {row[0]: row for row in rows("goal_verbs.tsv")}
AT_PLACE, ENTER = {}, {}  # "(?:in|at) the train station"; per form "(?:arrives at|enters) the train station"
for _name, _preposition, _article, *_goal in rows("environments.tsv"):
    AT_PLACE.setdefault(_name, set()).add(f"{_preposition} {_article} {_name}")
    _verb, *_rest = (_goal or ["enter"])[0].split()
    for _form in range(3):
        _words = " ".join([GOAL_VERBS[_verb][_form], *_rest, _article, _name])
        ENTER.setdefault((_name, _form), set()).add(_words)


def plain(symbol: str) -> str:
    return (symbol[0].lower() + symbol[1:]).replace("_", " ")


def plural(term: str) -> str:
    adjective, noun = term.split()
    return f"{adjective} {PLURALS[noun]}"


def things(amount: int, term: str) -> str:
    return f"{amount} {term if amount == 1 else plural(term)}"


def parse(atom: str) -> tuple[str, list[str]]:
    """Return name and arguments; of Enter(B, Desert), Desert(A) and Has(Horn, 4) those of In and of whose horns."""
    name, arguments = ATOM.fullmatch(atom).groups()
    arguments = arguments.split(", ")
    if name == "Enter":
        return "In", arguments
    if len(arguments) == 1 and plain(name) in AT_PLACE:
        return "In", [*arguments, name]
    if name == "Has" and len(arguments) == 2:
        return name, ["A", *arguments]
    return name, arguments


def key_of(name: str, arguments: list[str]) -> tuple:
    """What a premise and the fact that triggers it have in common."""
    if change := CHANGE.fullmatch(name):
        return ("plus" if change[1] in PLUS else "minus", change[2])
    return ("In", arguments[1]) if name == "In" else (name, len(arguments))


class BruteForce:
    """Forward chaining over rules given as FOL strings."""

    def __init__(self, rules):
        self.rules, self.joint, self.cuts = defaultdict(list), defaultdict(list), defaultdict(list)
        self.excepted = defaultdict(list)  # by state and attribute: who or where, and what happens then
        for rule in rules:
            premise, conclusion = rule.split(" => ")
            atoms = [parse(atom) for atom in premise.split(" & ")]
            name, arguments = atoms[0]
            if conclusion.startswith("Instead_"):
                change = parse(conclusion.removeprefix("Instead_"))
                self.excepted[name, CHANGE.fullmatch(change[0])[2]].append((atoms[1:], change))
            elif len(atoms) > 1:
                for atom in atoms:
                    self.joint[str(atom)].append((atoms, parse(conclusion)))
            elif compared := re.fullmatch(r"(More|Fewer)_(\w+)", name):
                self.cuts[compared[2]].append((compared[1], int(arguments[1]), parse(conclusion)))
            else:
                self.rules[key_of(name, arguments)].append((arguments, parse(conclusion)))

    def holds(self, facts: str):
        """Return the initial values, net changes and events, places and states (with causes) that follow."""
        initial, net, places, states = defaultdict(set), defaultdict(int), set(), set()
        events, known, fired = [], set(), set()
        todo = [(*parse(fact), "given") for fact in facts.split(" & ")]
        told = {str((who, name, rest)) for name, (who, *rest), _ in todo}
        while todo:
            name, arguments, cause = todo.pop()
            factor, change = 1, CHANGE.fullmatch(name)
            if name == "Has":
                initial[arguments[0], arguments[1]].add(int(arguments[2]))
                for compared, cut, (then, _) in self.cuts[arguments[1]]:
                    if (int(arguments[2]) > cut) if compared == "More" else (int(arguments[2]) < cut):
                        todo.append((then, [arguments[0]], ("Has", arguments[1])))
                continue
            if change:
                factor = int(arguments[1])
                events.append((arguments[0], *key_of(name, arguments), factor))
                net[arguments[0], change[2]] += factor if change[1] in PLUS else -factor
            elif name == "In":
                places.add(tuple(arguments))
            elif len(arguments) == 1:
                states.add((arguments[0], name, cause))
            who, *rest = arguments
            if not change and str((who, name, rest)) in known:  # held for two reasons, it fires once
                continue
            known.add(str((who, name, rest)))
            for atoms, (then, parts) in self.joint[str((name, ["A", *rest]))]:
                all_hold = all(str((who, other, more)) in known for other, (_, *more) in atoms)
                if all_hold and str((who, atoms, then)) not in fired:
                    fired.add(str((who, atoms, then)))
                    todo.append((then, [who, *parts[1:]], "both"))
            for variables, (then, parts) in self.rules[key_of(name, arguments)]:
                bound = {v: a for v, a in zip(variables, arguments, strict=True) if v in "AB"}
                if change_of := CHANGE.fullmatch(then):
                    met = [
                        (guards, change)
                        for guards, change in self.excepted[name, change_of[2]]
                        if all(str((who, guard, more)) in known | told for guard, (_, *more) in guards)
                    ]
                    then, parts = max(met, key=lambda one: len(one[0]), default=((), (then, parts)))[1]
                parts = [bound.get(part, part) for part in parts]
                if CHANGE.fullmatch(then):
                    parts[1] = str(int(parts[1]) * factor)
                todo.append((then, parts, name))
        return initial, net, places, states, events

    def answers(self, facts: str, query: str) -> set[str]:
        """Return every answer that follows; one, if all is well."""
        if compared := re.match(r"(Sum|Difference|Highest|Most)\(", query):
            asked = re.findall(r"Has\((x\d), \w+, \?\)", query)
            counts = [self.answers(facts, part[0]) for part in re.finditer(r"Has\(x\d, \w+, \?\)", query)]
            if any(len(values) != 1 for values in counts):
                return set()
            numbers = [int(*values) for values in counts]
            high = max(numbers)
            winners = [who for who, n in zip(asked, numbers, strict=True) if n == high]
            kinds = {plain(re.search(rf"(\w+)\({who}\)", facts)[1]) for who in winners}
            results = {"Sum": sum(numbers), "Difference": high - min(numbers), "Highest": high}
            return kinds if compared[1] == "Most" else {str(results[compared[1]])}
        initial, net, places, states, events = self.holds(facts)
        name, (who, what, *rest) = parse(query)
        if name == "Changed" and not any(event[0] == who and event[2] == what for event in events):
            return set()
        if name in ("Has", "Changed"):
            return {str(value + net[who, what]) for value in initial[who, what]}
        if name == "In":
            return {plain(place) for someone, place in places if someone == who}
        causes = {rest[0] if len(rest) == 1 else tuple(rest)}
        return {plain(s) for someone, s, cause in states if someone == who and cause in causes}


def misread(text: str, facts: str, query: str) -> str | None:
    """Say what a question or clause fails to tell of its facts and query, or None."""
    atoms = [parse(fact) for fact in facts.split(" & ")]
    who = {}
    for name, arguments in atoms:
        if name == "Has":
            who["x"] = f"a creature with {things(int(arguments[2]), plain(arguments[1]))}"
        elif len(arguments) == 1 and arguments[0] not in who:
            term = plain(name)
            who[arguments[0]] = f"{'an' if term[0] in 'aeiou' else 'a'} {term}"
    phrase = {w: f"(?:{p}|{p[0].upper()}{p[1:]}{'|it' if w == 'x' else ''})" for w, p in who.items()}
    wanted, seen = [rf"\b{p}\b" for p in phrase.values()], set()
    for name, arguments in atoms:
        verb = CHANGE.fullmatch(name)
        if verb:
            forms = CHANGE_VERBS[plain(verb[1])]
            told = things(int(arguments[1]), plain(verb[2]))
            wanted.append(rf"\b{phrase['x']} (?:{forms[1]}|{forms[2]}) {told}\b")
        elif name == "In":
            place = plain(arguments[1])
            there = "|".join(f"{be} {at}" for be in ("is", "was") for at in AT_PLACE[place])
            going = "|".join(ENTER[place, 1] | ENTER[place, 2])
            wanted.append(rf"\b{phrase['x']} (?:{there}|{going})\b")
        elif len(arguments) == 2:
            actor, target = (phrase[a] for a in arguments)
            _, third, past, _, participle = VERBS[plain(name)]
            active, passive = (
                rf"{actor} (?:{third}|{past}) {target}",
                rf"{target} (?:is|was) {participle} by {actor}",
            )
            wanted.append(rf"\b(?:{active}|{passive})\b")
        elif len(arguments) == 1 and arguments[0] in seen:
            wanted.append(rf"\b{phrase['x']} (?:is|was|becomes|became|has become) {plain(name)}\b")
        seen.add(arguments[0])
    name, (_, what, *rest) = parse(query)
    if name == "Has":
        wanted.append(rf"\b(?:[Hh]ow many|[Ww]hat number of) {plural(plain(what))}\b")
    elif name == "Changed":
        wanted.append(rf"\b(?:[Hh]ow many|different number of) {plural(plain(what))}\b")
    elif name == "In":
        wanted.append(r"\b[Ww]hich environment\b")
    elif rest[0] == "Has":
        wanted.append(rf"\b[Ww]hich state .*\b(?:how many|number of its) {plural(plain(rest[1]))}\b")
    else:
        wanted.append(
            r"\b[Ww]hich state .*\benvironment\b"
            if rest[0] == "In"
            else r"\b[Ww]hich state .*the act itself\b"
        )
    return next((pattern for pattern in wanted if not re.search(pattern, text)), None)


def blemish(text: str) -> str | None:
    """Say what is wrong with the English of a text, as far as rules of thumb go, or None."""
    if found := re.search(r"[{}_]|  |\s[,.?;:]|[.?;:,]{2}|\bNone\b|\bnan\b|^\s|\s$", text):
        return f"stray {found[0]!r}"
    if not re.match(r"[A-Z]", text) or text[-1] not in ".?":
        return "no sentence"
    for found in re.finditer(r"(?<![\w'])([Aa]n?) (\w)", text):
        if (found[1].lower() == "an") != (found[2] in "aeiou"):
            return f"article {found[0]!r}"
    for amount, noun in re.findall(r"\b(\d+) [a-z]+ ([a-z]+)\b", text):
        if noun not in (PLURALS if amount == "1" else PLURALS.values()):
            return f"number {amount} ... {noun}"
    return None
