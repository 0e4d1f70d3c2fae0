"""Checks of distinct sub-questions: the answer under growing rule pools (C9), the steps, and that every rule is needed.

Sub-questions come in batches; a batch shares its pool of 10,000 rules and one clingo program per pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..spec import OPERATORS
from ..text import Fact, parse_facts, parse_query
from ..world import Ints, symbol
from .asp import AspSolver
from .cones import Cones, Pools
from .executor import Derivation, execute, lowest_counts
from .mentions import unmentioned
from .report import Findings
from .rulebase import RuleBase, RuleIndex
from .subquestions import Parsed, SubQuestion

CONE_BATCH = 250
"""Sub-questions that share a cone: the fewer, the smaller it is, the more often rules are read."""
_ANSWER_TYPE = {"has": "count", "in": "environment", "state": "state"}
_SUM = re.compile(r"Has\((\w), (\w+), (\d+) ([+-]) (\d+) = (\d+)\)")


class AnswerChecker:
    """Runs every check on batches of sub-questions of one world.

    Parameters
    ----------
    base : RuleBase
        All rules of the world.
    solvers : sequence of str
        ``"executor"``, ``"clingo"`` or both.
    """

    def __init__(self, base: RuleBase, solvers: Sequence[str]) -> None:
        self.base, self.index = base, RuleIndex(base)
        self.solver = AspSolver(base) if "clingo" in solvers else None
        self.executor = "executor" in solvers
        self._cones, self._pools = Cones(base), Pools(base)

    def check(self, batch: Iterable[SubQuestion], evaluation: Sequence[bool], number: int) -> Findings:
        """Check one batch.

        Parameters
        ----------
        batch : iterable of SubQuestion
            About a thousand; sorted by query, or the cones overlap less.
        evaluation : sequence of bool
            Which of them occur in an evaluation split of the first world.
        number : int
            Batch number; chooses what fills up the pool.
        """
        findings = Findings()
        known = []
        for asked, in_paper in zip(batch, evaluation, strict=True):
            parsed = _read(asked, findings)
            if parsed and self._gold_exists(asked, in_paper, findings):
                known.append(parsed)
        pool = self._pools.draw({rule_id for item in known for rule_id in item.asked.rule_ids}, number)
        if self.executor:
            for parsed in known:
                self._derive(parsed, pool, findings)
        if self.solver:
            self._second_opinion(self.solver, known, pool, findings)
        return findings

    def _gold_exists(self, asked: SubQuestion, in_paper: bool, findings: Findings) -> bool:
        check = findings["gold_rules"]
        check.checked += 1
        rows = self.base.find(asked.rule_ids)
        if not len(rows) or (rows < 0).any():
            missing = [rule_id for rule_id, row in zip(asked.rule_ids, rows.tolist(), strict=True) if row < 0]
            what = f"the gold rule {missing[0]} is not in the rule table" if missing else "no gold rule"
            check.fail(f"{asked.found_in}: {what} of {asked.world_id}")
            return False
        if in_paper and not (paper := self.base.in_paper[rows]).all():
            outside = asked.rule_ids[int(paper.argmin())]
            check.fail(f"{asked.found_in}: the gold rule {outside} is not in the paper's subset")
        return True

    def _derive(self, parsed: Parsed, pool: frozenset[int], findings: Findings) -> None:
        """Run the executor on all three pools, then check the proof."""
        asked = parsed.asked
        proofs = {}
        for name, rules in (
            ("gold", self.index.only(asked.rule_ids)),
            ("pool", self.index.only(pool)),
            ("full", self.index),
        ):
            check = findings[f"C9_{name}_executor"]
            check.checked += 1
            try:
                proof = proofs[name] = execute(parsed.facts, parsed.query, rules)
            except ValueError as error:
                check.fail(f"{asked.found_in}: {error}")
                continue
            if proof.answer != asked.answer:
                check.fail(_disagree(asked, proof.answer))
            elif name != "gold" and set(proof.rule_ids) != set(asked.rule_ids):
                check.fail(f"{asked.found_in}: follows from rules {proof.rule_ids}, gold is {asked.rule_ids}")
        findings["C6"].checked += 1
        for attribute, count in lowest_counts(parsed.facts, parsed.query, self.index).items():
            if count < 0:
                findings["C6"].fail(f"{asked.found_in}: {asked.facts}: {attribute!r} could fall to {count}")
        if "gold" in proofs:
            self._check_steps(parsed, proofs["gold"], findings)
            self._check_needed(parsed, findings)

    def _check_needed(self, parsed: Parsed, findings: Findings) -> None:
        asked, check = parsed.asked, findings["needed"]
        check.checked += len(asked.rule_ids)
        for rule_id in asked.rule_ids:
            rest = self.index.only([other for other in asked.rule_ids if other != rule_id])
            if execute(parsed.facts, parsed.query, rest).answer == asked.answer:
                check.fail(
                    f"{asked.found_in}: the answer is {asked.answer!r} without the gold rule {rule_id} too"
                )

    def _check_steps(self, parsed: Parsed, proof: Derivation, findings: Findings) -> None:
        asked = parsed.asked
        findings["steps"].checked += len(asked.steps)
        findings["step_texts"].checked += len(asked.steps)
        if proof.rule_ids != asked.rule_ids:
            found = f"the derivation uses rules {proof.rule_ids}, the steps say {asked.rule_ids}"
            findings["steps"].fail(f"{asked.found_in}: {found}")
            return
        concluded = {firing.rule_id: firing.fact for firing in proof.firings}
        before: list[Fact] = list(parsed.facts)
        for number, step in enumerate(asked.steps, start=1):
            facts = [concluded[rule_id] for rule_id in step.rule_ids]
            where = f"{asked.found_in}, step {number}"
            try:
                last = number == len(asked.steps)
                problem = _step_problem(parsed, step.fol, step.state, facts, before, last)
            except ValueError as error:
                problem = str(error)
            if problem:
                findings["steps"].fail(f"{where}: {problem}")
            if missing := unmentioned(step.nl, [fact for fact in facts if fact.kind != "act"]):
                findings["step_texts"].fail(f"{where}: {missing} is not in {step.nl!r}")
            before += facts

    def _second_opinion(
        self, solver: AspSolver, known: Sequence[Parsed], pool: frozenset[int], findings: Findings
    ) -> None:
        """Run clingo on all three pools."""

        def rows_of_gold(part: Sequence[Parsed]) -> list[Ints]:
            return [self.base.find(item.asked.rule_ids) for item in part]

        def rows_of_pool(part: Sequence[Parsed]) -> list[Ints]:
            return [self.base.find(sorted(pool))]

        def rows_of_cone(part: Sequence[Parsed]) -> list[Ints]:
            return [self._cones.rows(part)]

        for name, pools, size in (
            ("gold", rows_of_gold, len(known)),
            ("pool", rows_of_pool, len(known)),
            ("full", rows_of_cone, CONE_BATCH),
        ):
            check = findings[f"C9_{name}_clingo"]
            check.checked += len(known)
            for start in range(0, len(known), max(1, size)):
                part = known[start : start + size]
                try:
                    found = solver.answers([item.asked[1:3] for item in part], pools(part))
                except ValueError as error:
                    check.add(len(part), [str(error)])
                    continue
                for item, answers in zip(part, found, strict=True):
                    if answers != (item.asked.answer,):
                        check.fail(_disagree(item.asked, " or ".join(answers) or None))


def _read(asked: SubQuestion, findings: Findings) -> Parsed | None:
    check = findings["scopes"]
    check.checked += 1
    try:
        parsed = Parsed(asked, parse_facts(asked.facts), parse_query(asked.query))
    except ValueError as error:
        check.fail(f"{asked.found_in}: {error}")
        return None
    wanted = _ANSWER_TYPE[parsed.query.kind]
    if asked.answer_type != wanted:
        kind = f"answer type {asked.answer_type!r} for {asked.query}, expected {wanted!r}"
        check.fail(f"{asked.found_in}: {kind}")
    return parsed


def _disagree(asked: SubQuestion, answer: str | None) -> str:
    gold = f"the answer is {answer!r}, gold says {asked.answer!r}"
    return f"{asked.found_in}: {asked.facts}, {asked.query}: {gold}"


def _step_problem(
    parsed: Parsed, fol: str, state: str, facts: list[Fact], before: list[Fact], last: bool
) -> str:
    """Compare one step's FOL and state to what its rules conclude; return what is wrong, or nothing.

    The FOL is one ``premise => conclusion`` per rule and, if the step changes the queried attribute, the sum.
    """
    query, answer = parsed.query, parsed.asked.answer
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
        start = [fact for fact in (*facts, *before) if fact.kind == "has" and fact.term == query.term]
        initial = str(start[0].number) if start else ""
        sign = "+" if facts[0].operator == OPERATORS[1] else "-"
        wanted = (query.who, symbol(query.term), initial, sign, str(facts[0].number or 0), answer)
        match = _SUM.fullmatch(total)
        if match is None or match.groups() != wanted:
            return f"{total!r} should be Has({wanted[0]}, {wanted[1]}, {' '.join(wanted[2:5])} = {answer})"
        facts = [Fact("has", query.who, query.term, number=int(answer))]
    if parse_facts(state) != (facts[0],):
        return f"the state is {state!r}, expected {_spell(facts[0])}"
    return ""


def _spell(fact: Fact) -> str:
    number = "" if fact.number is None else f" {fact.number}"
    operator = f"{fact.operator} " if fact.operator else ""
    return f"{fact.who}: {fact.kind} {operator}{fact.term}{number}"
