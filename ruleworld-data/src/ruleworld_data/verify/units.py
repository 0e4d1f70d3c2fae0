"""Checks of distinct sub-questions: the answer under growing rule pools (C9), the steps, and that every rule is needed.

Sub-questions come in batches; a batch shares its pool of 10,000 rules and one clingo program per pool.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..text.parser import Fact, parse_facts, parse_query
from ..text.rulebase import NAMED_CODES, Ints, RuleBase
from .asp import AspSolver
from .cones import Cones, Parsed, Pools
from .executor import Derivation, execute, lowest_counts
from .report import Findings
from .rule_index import RuleIndex
from .text import names_things
from .unit import Unit

CONE_BATCH = 250
"""Sub-questions that share a cone: the fewer, the smaller it is, the more often rules are read."""
_ANSWER_TYPE = {"has": "count", "in": "environment", "state": "state"}
_SUM = re.compile(r"Has\((\w), (\w+), (\d+) ([+-]) (\d+) = (\d+)\)")


class UnitChecker:
    """Runs every check on batches of sub-questions of one world.

    Parameters
    ----------
    base : RuleBase
        All rules of the world.
    paper_ids : ndarray
        Sorted ids of the rules in the paper's subset.
    solvers : sequence of str
        ``"executor"``, ``"clingo"`` or both.
    """

    def __init__(self, base: RuleBase, paper_ids: Ints, solvers: Sequence[str]) -> None:
        self.base, self.index = base, RuleIndex(base)
        self.paper_ids = frozenset(paper_ids.tolist())
        self.solver = AspSolver(base) if "clingo" in solvers else None
        self.executor = "executor" in solvers
        # As wide as the ids that are looked up, or numpy converts all of them each time; and a last one that is no id.
        self._sorted_ids = np.append(np.sort(base.id).astype(np.int64), -1)
        self._cones, self._pools = Cones(base), Pools(base)

    def check(self, units: Sequence[Unit], evaluation: Sequence[bool], number: int) -> Findings:
        """Check one batch.

        Parameters
        ----------
        units : sequence of Unit
            About a thousand; sorted by query, or the cones overlap less.
        evaluation : sequence of bool
            Which of them occur in an evaluation split of the first world.
        number : int
            Batch number; chooses what fills up the pool.
        """
        findings = Findings()
        readable = [parsed for unit in units if (parsed := self._read(unit, findings))]
        findings["gold_rules"].checked += len(readable)
        in_paper = {id(unit): flag for unit, flag in zip(units, evaluation, strict=True)}
        known = [item for item in readable if self._gold_exists(item.unit, in_paper[id(item.unit)], findings)]
        gold = {rule_id for item in known for rule_id in item.unit.rule_ids}
        pool = self._pools.draw(gold, number)
        if self.executor:
            for parsed in known:
                self._derive(parsed, pool, findings)
        if self.solver:
            self._second_opinion(self.solver, known, np.array(sorted(pool), dtype=np.int64), findings)
        return findings

    def _read(self, unit: Unit, findings: Findings) -> Parsed | None:
        check = findings["scopes"]
        check.checked += 1
        try:
            parsed = Parsed(unit, parse_facts(unit.facts), parse_query(unit.query))
        except ValueError as error:
            check.fail(f"{unit.found_in}: {error}")
            return None
        wanted = _ANSWER_TYPE[parsed.query.kind]
        if unit.answer_type != wanted:
            check.fail(
                f"{unit.found_in}: answer type {unit.answer_type!r} for {unit.query}, expected {wanted!r}"
            )
        return parsed

    def _gold_exists(self, unit: Unit, in_paper: bool, findings: Findings) -> bool:
        ids = np.array(unit.rule_ids, dtype=np.int64)
        spot = np.searchsorted(self._sorted_ids[:-1], ids)
        missing = ids[self._sorted_ids[spot] != ids].tolist()
        if missing or not unit.rule_ids:
            what = f"the gold rule {missing[0]} is not in the rule table" if missing else "no gold rule"
            findings["gold_rules"].fail(f"{unit.found_in}: {what} of {unit.world_id}")
            return False
        if in_paper and not self.paper_ids.issuperset(unit.rule_ids):
            outside = next(rule_id for rule_id in unit.rule_ids if rule_id not in self.paper_ids)
            findings["gold_rules"].fail(
                f"{unit.found_in}: the gold rule {outside} is not in the paper's subset"
            )
        return True

    def _derive(self, parsed: Parsed, pool: frozenset[int], findings: Findings) -> None:
        """Run the executor on all three pools, then check the proof."""
        unit = parsed.unit
        proofs = {}
        for name, rules in (
            ("gold", self.index.only(unit.rule_ids)),
            ("pool", self.index.only(pool)),
            ("full", self.index),
        ):
            check = findings[f"C9_{name}_executor"]
            check.checked += 1
            try:
                proof = proofs[name] = execute(parsed.facts, parsed.query, rules)
            except ValueError as error:
                check.fail(f"{unit.found_in}: {error}")
                continue
            if proof.answer != unit.answer:
                check.fail(_disagree(unit, proof.answer))
            elif name != "gold" and set(proof.rule_ids) != set(unit.rule_ids):
                check.fail(f"{unit.found_in}: follows from rules {proof.rule_ids}, gold is {unit.rule_ids}")
        findings["C6"].checked += 1
        for attribute, count in lowest_counts(parsed.facts, parsed.query, self.index).items():
            if count < 0:
                findings["C6"].fail(f"{unit.found_in}: {unit.facts}: {attribute!r} could fall to {count}")
        if "gold" in proofs:
            self._steps(parsed, proofs["gold"], findings)
            self._needed(parsed, findings)

    def _needed(self, parsed: Parsed, findings: Findings) -> None:
        unit, check = parsed.unit, findings["needed"]
        check.checked += len(unit.rule_ids)
        for rule_id in unit.rule_ids:
            rest = self.index.only([other for other in unit.rule_ids if other != rule_id])
            if execute(parsed.facts, parsed.query, rest).answer == unit.answer:
                check.fail(
                    f"{unit.found_in}: the answer is {unit.answer!r} without the gold rule {rule_id} too"
                )

    def _steps(self, parsed: Parsed, proof: Derivation, findings: Findings) -> None:
        unit = parsed.unit
        findings["steps"].checked += len(unit.steps)
        findings["step_texts"].checked += len(unit.steps)
        if proof.rule_ids != unit.rule_ids:
            found = f"the derivation uses rules {proof.rule_ids}, the steps say {unit.rule_ids}"
            findings["steps"].fail(f"{unit.found_in}: {found}")
            return
        concluded = {firing.rule_id: firing.fact for firing in proof.firings}
        before: list[Fact] = list(parsed.facts)
        for number, step in enumerate(unit.steps, start=1):
            facts = [concluded[rule_id] for rule_id in step.rule_ids]
            last = number == len(unit.steps)
            try:
                problem = _step_problem(parsed, step.fol, step.state, facts, before, last)
            except ValueError as error:
                problem = str(error)
            if problem:
                findings["steps"].fail(f"{unit.found_in}, step {number}: {problem}")
            if missing := names_things(step.nl, [fact for fact in facts if fact.kind != "act"]):
                findings["step_texts"].fail(
                    f"{unit.found_in}, step {number}: {missing} is not in {step.nl!r}"
                )
            before += facts

    def _second_opinion(
        self, solver: AspSolver, known: Sequence[Parsed], pool: Ints, findings: Findings
    ) -> None:
        """Run clingo on all three pools."""
        for name, solve in (
            (
                "gold",
                lambda: solver.answers(
                    _scopes(known), own_rows=[solver.rows(k.unit.rule_ids) for k in known]
                ),
            ),
            ("pool", lambda: solver.answers(_scopes(known), solver.rows(pool))),
            ("full", lambda: self._in_cones(solver, known)),
        ):
            check = findings[f"C9_{name}_clingo"]
            check.checked += len(known)
            try:
                found = solve()
            except ValueError as error:
                check.add(len(known), [str(error)])
                continue
            for item, answers in zip(known, found, strict=True):
                if answers != (item.unit.answer,):
                    check.fail(_disagree(item.unit, " or ".join(answers) or None))

    def _in_cones(self, solver: AspSolver, known: Sequence[Parsed]) -> list[tuple[str, ...]]:
        found = []
        for start in range(0, len(known), CONE_BATCH):
            part = known[start : start + CONE_BATCH]
            found += solver.answers(_scopes(part), self._cones.rows(part))
        return found


def _scopes(known: Sequence[Parsed]) -> list[tuple[str, str]]:
    return [(item.unit.facts, item.unit.query) for item in known]


def _disagree(unit: Unit, answer: str | None) -> str:
    return f"{unit.found_in}: {unit.facts}, {unit.query}: the answer is {answer!r}, gold says {unit.answer!r}"


def _step_problem(
    parsed: Parsed, fol: str, state: str, facts: list[Fact], before: list[Fact], last: bool
) -> str:
    """Compare one step's FOL and state to what its rules conclude; return what is wrong, or nothing.

    The FOL is one ``premise => conclusion`` per rule and, if the step changes the queried attribute, the sum.
    """
    query, answer = parsed.query, parsed.unit.answer
    if not facts:
        return "it has no rules"
    pieces = fol.split("; ")
    adds_up = last and query.kind == "has" and facts[0].kind == "change"
    total = pieces.pop() if adds_up else ""
    if len(pieces) != len(facts):
        return f"{fol!r} has {len(pieces)} inferences, its rules make {len(facts)}"
    for piece, fact in zip(pieces, facts, strict=True):
        premise, arrow, conclusion = piece.partition(" => ")
        if not arrow or parse_facts(conclusion) != (fact,):
            return f"{piece!r} should conclude {_spell(fact)}"
        if parse_facts(premise)[0] not in before:
            return f"{piece!r} starts from something that does not hold"
    if adds_up:
        match = _SUM.fullmatch(total)
        start = [fact for fact in (*facts, *before) if fact.kind == "has" and fact.term == query.term]
        delta = facts[0].number or 0
        sign = "+" if facts[0].operator == NAMED_CODES["operator"][1] else "-"
        name = query.term[0].upper() + query.term[1:].replace(" ", "_")
        wanted = (query.who, name, str(start[0].number) if start else "", sign, str(delta), answer)
        if match is None or match.groups() != wanted:
            who, name, initial, sign, change, result = wanted
            return f"{total!r} should be Has({who}, {name}, {initial} {sign} {change} = {result})"
        facts = [Fact("has", query.who, query.term, None, None, int(answer))]
    if parse_facts(state) != (facts[0],):
        return f"the state is {state!r}, expected {_spell(facts[0])}"
    return ""


def _spell(fact: Fact) -> str:
    number = "" if fact.number is None else f" {fact.number}"
    operator = f"{fact.operator} " if fact.operator else ""
    return f"{fact.who}: {fact.kind} {operator}{fact.term}{number}"
