"""Why an answer is wrong: its steps compared with the gold proof, as in the paper's case study.

`diagnose` walks the proof of the first wrong sub-question rule by rule and stops at the first rule that the answer did
not apply. It reads first-order logic and English alike, follows fixed rules and asks no model.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ruleworld_data.scoring import same_answer
from ruleworld_data.world import load_vocabulary, term

ERROR_CLASSES = {
    "correct": "every sub-question is answered rightly",
    "no_answer": "nothing to compare: the outcome says why",
    "format": "no box, or another number of answers than asked",
    "retrieval_miss": "the first rule that is not applied was not retrieved",
    "rule_omission": "a rule at hand is not applied; the chain stops early",
    "incorrect_use": "a rule is applied with a wrong amount, or the steps are right and the result is not",
    "operator_misalignment": "plus for minus, or a trigger not recognised under another verb of its operator",
    "unexplained": "a wrong answer without steps, whose rules were at hand",
}
"""Every class and what it means, in the order of the legend."""

_BOX = re.compile(r"\[?answer\]?:?|\\boxed\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", re.IGNORECASE)
_STEP = re.compile(r"\[step\s*\d+\]", re.IGNORECASE)
_EFFECT = re.compile(r"(?:([A-Z][a-z]+)_\w+\(\w+, \d+\)|\S[^=;]*) => ([A-Z][a-z]+)_(\w+)\(\w+, (\d+)\)")


class Diagnosis(NamedTuple):
    """One of `ERROR_CLASSES`, the place of the first wrong sub-question, and the id of its first rule not applied."""

    error: str
    answer: int | None = None
    rule: int | None = None


def diagnose(
    sample: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], rules: Mapping[int, Mapping[str, Any]]
) -> Diagnosis | None:
    """Classify one sample; None if it failed or its method does not answer.

    ``steps`` are the question's gold steps, ``rules`` the rows of the rule table for their rules, by id.
    """
    outcome = sample.get("outcome", "ok")
    if sample["error"] is not None or (sample["answers"] is None and outcome == "ok"):
        return None
    answers, gold = sample["answers"] or [], sample["gold_answers"]
    if not answers and outcome not in ("ok", "refused_format"):
        return Diagnosis("no_answer")
    if len(answers) != len(gold):
        return Diagnosis("format")
    wrong = [not same_answer(given, right) for given, right in zip(answers, gold, strict=True)]
    if not any(wrong):
        return Diagnosis("correct")
    first = wrong.index(True)
    proof = list(steps) if len(gold) == 1 else [steps[first]]
    text = _steps_text(sample["output"] or "", first if len(gold) > 1 else None, len(steps))
    has_steps = re.search(r"[a-z]{2,}", text) is not None
    searches = sample["retrieved"]
    for step in proof:
        for rule in step["rule_ids"]:
            error = _first_fault(text, step["fol"], rules[rule]) if has_steps else "unexplained"
            missed = searches is not None and not any(rule in ranked for ranked in searches)
            if error is not None and missed:
                return Diagnosis("retrieval_miss", first, rule)
            if error is not None and has_steps:
                return Diagnosis(error, first, rule)
    # Every rule was applied, and the answer is wrong all the same.
    return Diagnosis("incorrect_use" if has_steps else "unexplained", first)


def _first_fault(text: str, step: str, rule: Mapping[str, Any]) -> str | None:
    """Return the error class of one gold rule, None if the text applies it."""
    kind = rule["type"]
    if kind == "entity2attr":
        return None if _states_count(text, rule["attribute"], rule["amount"]) else "rule_omission"
    if rule["operator"] is None:
        concluded = rule["environment"] if kind == "action2env" else rule["state"]
        return None if re.search(rf"\b{re.escape(concluded)}\b", text) else "rule_omission"
    amount, another_verb = _effect(step, rule)
    claims = _changes(text, rule["attribute"])
    if (rule["operator"], amount) in claims:
        return None
    if any(operator == rule["operator"] for operator, _ in claims):
        return "incorrect_use"
    # The opposite change, or silence on a rule whose trigger is another verb ("get" where the rule says "gain").
    return "operator_misalignment" if claims or another_verb else "rule_omission"


def _effect(step: str, rule: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the amount of a rule's change in a gold step, and whether another verb than the rule's triggers it."""
    changes = {term(symbol): (amount, trigger) for trigger, _, symbol, amount in _EFFECT.findall(step)}
    amount, trigger = changes[rule["attribute"]]
    if rule["type"] != "attrchange2attr":
        return int(amount), False
    return int(amount), trigger.lower() != rule["premise_fol"].partition("_")[0].lower()


def _steps_text(output: str, part: int | None, num_steps: int) -> str:
    """Return what the answer says before its box, in plain lower-case words; one step of it if steps are marked."""
    marked = _STEP.split(output)
    if part is not None and len(marked) == num_steps + 1:
        output = marked[part + 1]
    text = _BOX.sub(" ", _STEP.sub(" ", output)).replace("_", " ").lower()
    return " ".join(re.sub(r"[*`$×]", lambda m: " x " if m[0] == "×" else " ", text).split())


def _changes(text: str, attribute: str) -> set[tuple[str, int | None]]:
    """Return the changes of an attribute that a text concludes: operator and amount (None: not said).

    An amount may be a product, "3 x 3 = 9": its last number counts.
    """
    verbs = _operators()
    changes = set()
    pattern = (
        rf"\b({'|'.join(verbs)})\s+(?:([\dx=+. -]*\d)\s+)?(?:{attribute}|{load_vocabulary().plural_of[attribute]})\b"
        r"(?:\s*\(\s*\w+\s*,([^)]*)\))?"
    )
    for verb, before, after in re.findall(pattern, text):
        numbers = re.findall(r"\d+", before or after)
        changes.add((verbs[verb], int(numbers[-1]) if numbers else None))
    return changes


def _states_count(text: str, attribute: str, count: int) -> bool:
    """Say whether a text states how many of an attribute there are at first, or calculates with that number."""
    forms = f"{attribute}|{load_vocabulary().plural_of[attribute]}"
    patterns = (
        rf"\b{count}\s+(?:{forms})\b",
        rf"\b(?:{forms})\s*(?:,|:|=|is)\s*{count}\b",
        rf"\b{count}\s*[-+−]\s*\d",
    )
    return any(re.search(pattern, text) for pattern in patterns)


@lru_cache(maxsize=1)
def _operators() -> dict[str, str]:
    """Every form of every change verb -> its operator."""
    return {
        form: operator
        for operator, verbs in load_vocabulary().change_verbs.items()
        for verb in verbs
        for form in vars(verb).values()
    }
