"""One unit written down: what its question states, and what follows from it, rule by rule.

A scene has a subject ``x`` and, where the question starts with an action, another creature ``y``. `Scene.fire` applies
one rule and records a step: rule ids, English, FOL, and what holds after it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..spec import ROLES, UNKNOWN, VERSION
from ..text.fol import AND, COMPARED, INSTEAD
from ..world import Names, article, with_object
from ..world.arrays import PLUS
from .wording import load_templates

Hop = dict[str, int]
"""The id and typed parts of one rule."""


class Step(NamedTuple):
    """One step of a proof: the rules that fire, in English and in FOL, and what holds after it."""

    rule_ids: list[int]
    nl: str
    fol: str
    state: str


class Scene:
    """A unit being written.

    ``facts`` is what the question states, in FOL, first the subject's kind or its stated initial value; ``start``,
    ``ask`` and ``slots`` choose and fill the question's template; ``query`` and ``answer`` stand after the last step.
    ``changed``: the question says that the count it asks for changes.
    """

    def __init__(
        self,
        names: Names,
        start: str,
        subject: int,
        stated: tuple[int, int] | None,
        forms: Mapping[str, int] = MappingProxyType({}),
        version: str = VERSION,
        *,
        changed: bool = False,
    ) -> None:
        self.names, self.symbols, self.start, self.forms = names, names.symbols, start, forms
        self.texts = load_templates(version)
        if stated is None:
            self.who = names.kind(subject, self._form("subject"))
            a_who = f"{article(self.who)} {self.who}"
            self.facts = [f"{self.symbols['entity'][subject]}(x)"]
        else:
            attribute, count = stated
            things = f"{count} {names.counted(attribute, self._form('stated'))[1]}"
            self.who, a_who = "creature", self.texts["phrases"]["stated"].format(things=things)
            self.facts = [self._has(attribute, count)]
        again = f"the {self.who}" if start == "action" else "it"
        self.slots = {"X": a_who, "X_capital": _capital(a_who), "S": again, "each": "", "chain": ""}
        self.steps: list[Step] = []
        self.premise = self.stated = self.cause = ("", "")
        self.place, self.state = ("", ""), ""
        self.ask, self.query, self.answer, self.amount = "count", "", "", 1
        self.changed = changed

    def begin(self, hop: Hop, amount: int, pick: int, other: int) -> None:
        """State what the question starts with: what triggers its first rule.

        ``amount`` is the units of a change, ``pick`` chooses its verb, ``other`` is the kind of an action's other
        creature.
        """
        names, symbols, who = self.names, self.symbols, f"the {self.who}"
        if self.start == "change":
            operator, attribute = hop["trigger_operator"], hop["trigger_attribute"]
            verb = pick % len(names.lexicon[operator])
            form = names.change(operator, verb, self._form("verb"))
            things = names.things(attribute, amount, self._form("trigger"))
            self.slots |= {"loses": form.third, "lost": form.past, "things": things}
            self.slots["each"] = self.texts["phrases"]["each"] if amount > 1 else ""
            self.amount = amount
            fol = names.event(operator, verb, attribute, amount, "x")
            self._state_fact(f"{who} {form.third} {things}", fol)
        elif self.start == "environment":
            place, worded = hop["environment"], (hop["environment"], self._form("environment"))
            entering = names.enter(*worded)
            self.slots |= {"at_place": names.at(*worded), "enters": entering.third, "entered": entering.past}
            self._state_fact(f"{who} is {names.at(*worded)}", self._in(place))
            self.place = self.premise
        elif self.start == "state":
            state = self.slots["state"] = names.mood(hop["state"], self._form("state"))
            self._state_fact(f"{who} is {state}", f"{symbols['state'][hop['state']]}(x)")
        elif self.start == "action":
            self.start = ROLES[hop.get("role", ROLES.index("target"))]  # only a target enters an environment
            act = names.verb(hop["action"], self._form("action"))
            the_other = names.kind(other, self._form("other"))
            particle = self.texts["particles"].get(act.base, "")
            a_name = f"{article(the_other)} {the_other}"
            self.slots |= {"Y": a_name, "Y_capital": _capital(a_name)}
            for slot, object_ in (("X", self.slots["X"]), ("Y", a_name), ("it", "it")):
                self.slots[f"does_{slot}"] = _done_to(object_, act.third, particle)
                self.slots[f"did_{slot}"] = _done_to(object_, act.past, particle)
            self.slots["done"] = f"{act.participle.replace(' ~', '')} {particle}".strip()
            self.facts.append(f"{symbols['entity'][other]}(y)")
            symbol = symbols["action"][hop["action"]]
            if self.start == "actor":
                self._state_fact(f"{who} {with_object(act.third, f'the {the_other}')}", f"{symbol}(x, y)")
            else:
                self._state_fact(f"the {the_other} {with_object(act.third, who)}", f"{symbol}(y, x)")

    def _state_fact(self, nl: str, fol: str) -> None:
        self.facts.append(fol)
        self.premise = self.stated = (nl, fol)

    def _form(self, name: str) -> int:
        """Return which name the question has for a thing."""
        return self.forms.get(name, 0)

    # What follows, rule by rule.

    def fire(self, rule_type: str, hop: Hop) -> None:
        """Apply one rule of the given type."""
        # Where chains branch and meet again, a rule need not follow from the step before it.
        if rule_type.startswith("action"):
            self.premise = self.stated
        elif rule_type == "env2state":
            self.premise = self.place
        if rule_type == "entity2attr":
            self._read_count(hop)
        elif rule_type == "action2env":
            self._enter_place(hop)
        elif rule_type == "action2state":
            self._reach_state(hop, f"State(x, ?, {self.symbols['action'][hop['action']]})", "state_of_action")
        elif rule_type == "env2state":
            self._reach_state(
                hop, "State(x, ?, In)", "state_of_arrival" if self.steps else "state_of_environment"
            )
        elif rule_type == "count2state":  # a count that a rule has just told
            (nl, fol), word = self.premise, COMPARED[hop["trigger_operator"]].lower()
            self.premise = (f"{nl}, {word} than {hop['threshold']}", fol)
            attribute = self.symbols["attribute"][hop["trigger_attribute"]]
            self._reach_state(hop, f"State(x, ?, Has, {attribute})", "state_of_count")
        elif rule_type == "place_state2attr":
            atom = f"{self.symbols['state'][hop['state']]}(x)"
            self.premise = (f"{self.place[0]} and is {self.state}", f"{self.place[1]}{AND}{atom}")
            self._change(hop, per_unit=False)
        else:
            self._change(hop, per_unit=rule_type == "attrchange2attr")

    def _read_count(self, hop: Hop) -> None:
        attribute, count = hop["attribute"], hop["amount"]
        has = self._has(attribute, count)
        things = self.names.things(attribute, count, hop.get("attribute_form", 0))
        nl = f"{self.slots['X_capital']} has {things}."
        self.steps.append(Step([hop["id"]], nl, f"{self.facts[0]} => {has}", has))
        self.premise = (f"the {self.who} has {things}", has)
        self._ask_count(attribute, count)

    def _enter_place(self, hop: Hop) -> None:
        place, worded = hop["environment"], (hop["environment"], hop.get("environment_form", 0))
        arrival = f"{self._subject()} {self.names.enter(*worded).third}"
        event = f"Enter(x, {self.symbols['environment'][place]})"
        self._step(hop, arrival, event, f"the {self.who} is {self.names.at(*worded)}", self._in(place))
        self.place = self.premise
        self.ask, self.query, self.answer = "environment", "In(x, ?)", self.names.environment[place]

    def _reach_state(self, hop: Hop, query: str, ask: str) -> None:
        state = self.names.mood(hop["state"], hop.get("state_form", 0))
        fact = f"{self.symbols['state'][hop['state']]}(x)"
        self._step(hop, f"{self._subject()} is {state}", fact, f"the {self.who} is {state}")
        self.state = state
        self.ask, self.query, self.answer = ask, query, self.names.state[hop["state"]]

    def _change(self, hop: Hop, *, per_unit: bool) -> None:
        """Change an attribute; a trigger is linear, each unit of the change that fires it has the rule's effect."""
        total = hop["amount"] * (self.amount if per_unit else 1)
        form = self.names.change(hop["operator"], hop["verb"], hop.get("verb_form", 0)).third
        things = self.names.things(hop["attribute"], total, hop.get("attribute_form", 0))
        effect = f"{self._subject()} {form} {things}"
        if per_unit:
            effect = f"it {form} {self.amount} x {hop['amount']} = {things}"
        event = self.names.event(hop["operator"], hop["verb"], hop["attribute"], total, "x")
        self._step(hop, effect, event, f"the {self.who} {form} {things}")
        self.amount = total

    def set_aside(self, rule: Hop, exceptions: Sequence[Hop]) -> None:
        """Let exceptions take the place of the last step's rule, each with one condition more than the one before."""
        (nl, atoms), step, holds = self.cause, self.steps[-1], set[str]()
        text, fols, event = f"{_capital(nl)}, so it would {self._does(rule, 'base')}", [step.fol], step.state
        for number, hop in enumerate(exceptions):
            guards = {}
            if (kind := hop["entity"]) >= 0:
                named = self.names.kind(kind, hop.get("entity_form", 0))
                guards[f"{self.symbols['entity'][kind]}(x)"] = f"for {article(named)} {named}"
            if (place := hop["environment"]) >= 0:
                guards[self._in(place)] = self.names.at(place, hop.get("environment_form", 0))
            (new,) = guards.keys() - holds
            holds |= guards.keys()
            last, instead = number == len(exceptions) - 1, " instead" if hop["amount"] else ""
            does = self._does(hop, "third") if last else f"would {self._does(hop, 'base')}"
            aside = "Yet that exception" if number else "But that rule"
            text += f". {aside} does not hold {guards[new]}, so it {does}{instead}"
            event = self.names.event(hop["operator"], hop["verb"], hop["attribute"], hop["amount"], "x")
            fols.append(f"{AND.join([atoms, *guards])} => {INSTEAD}{event}")
            self.amount, self.premise = hop["amount"], (f"the {self.who} {does}", event)
        ids = [*step.rule_ids, *(hop["id"] for hop in exceptions)]
        self.steps[-1] = Step(ids, f"{text}.", "; ".join(fols), event)

    def _does(self, hop: Hop, form: str) -> str:
        """Return what a rule changes, by a form of its verb: "loses 2 strong horns"."""
        verb = self.names.change(hop["operator"], hop["verb"], hop.get("verb_form", 0))
        things = self.names.things(hop["attribute"], hop["amount"], hop.get("attribute_form", 0))
        return f"{getattr(verb, form)} {things}"

    def _subject(self) -> str:
        """Name the subject in a step's conclusion: "it", where the premise is about nobody else."""
        alone = self.premise != self.stated or self.start not in ROLES
        return "it" if alone else f"the {self.who}"

    def _step(self, hop: Hop, effect: str, event: str, premise: str, state: str = "") -> None:
        """Write one step: what follows from the premise, and what the next one starts from."""
        nl, fol = self.cause = self.premise
        self.steps.append(
            Step([hop["id"]], f"{_capital(nl)}, so {effect}.", f"{fol} => {event}", state or event)
        )
        self.premise = (premise, state or event)

    def conclude(self, last: Hop, initial: int, giver: int | None) -> None:
        """Close the last step with the arithmetic of the final value; ``giver`` is the rule of the initial value."""
        attribute, plus = last["attribute"], last["operator"] == PLUS
        final = initial + self.amount if plus else initial - self.amount
        sum_ = f"{initial} {'+' if plus else '-'} {self.amount} = {final}"
        ids, nl, fol, _ = self.steps[-1]
        if giver is None:
            nl += f" It had {initial}: {sum_}."
        else:
            ids = [*ids, giver]
            things = self.names.things(attribute, initial, self._form("giver"))
            nl += f" {self.slots['X_capital']} has {things}: {sum_}."
            fol += f"; {self.facts[0]} => {self._has(attribute, initial)}"
        fol += f"; {self._has(attribute, sum_)}"
        self.steps[-1] = Step(ids, nl, fol, self._has(attribute, final))
        self._ask_count(attribute, final)
        if self.start == "kind":
            self.ask = "outcome"

    def give_up(self, attribute: int, initial: int | None, giver: int) -> None:
        """Close with what no rule says: how many of an attribute there are at first, or what changes their number."""
        plural = self.names.counted(attribute, self._form("asked"))[1]
        unknown = self._has(attribute, UNKNOWN).replace("Has", "Changed")
        if initial is None:
            ids, nl, fol, state = self.steps.pop()
            nl += f" No rule says how many {plural} {self.slots['X']} has at first, so "
            fol += f"; {unknown}"
        else:
            ids, state = [giver], self._has(attribute, initial)
            nl = f"{_capital(self.premise[0])}, but no rule says how that changes the number of {plural}"
            things = self.names.things(attribute, initial, self._form("giver"))
            nl += f". {self.slots['X_capital']} has {things} at first; "
            fol = f"{self.facts[0]} => {state}; {unknown}"
        self.steps.append(Step(ids, f"{nl}how many it has then is unknown.", fol, state))
        self._ask_count(attribute, UNKNOWN)

    def _ask_count(self, attribute: int, answer: int | str) -> None:
        self.slots["plural"] = self.names.counted(attribute, self._form("asked"))[1]
        self.ask, self.query, self.answer = "count", self._has(attribute, "?"), str(answer)
        if self.changed:
            self.ask, self.query = "changed", self.query.replace("Has", "Changed")

    def _has(self, attribute: int, value: int | str) -> str:
        return f"Has(x, {self.symbols['attribute'][attribute]}, {value})"

    def _in(self, place: int) -> str:
        return f"{self.symbols['environment'][place]}(x)"


def _done_to(who: str, form: str, particle: str) -> str:
    """Return a verb with its object and particle: "ties up a tiny cat", but "ties it up"."""
    if not particle:
        return with_object(form, who)
    return f"{form} it {particle}" if who == "it" else f"{form} {particle} {who}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
