"""Checks of distinct sub-questions: the answer under growing rule pools (C9), the steps, and that every rule is needed.

Sub-questions come in batches; a batch shares its pool of 10,000 rules and one clingo program per pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..spec import OPERATORS
from ..text import Fact, parse_facts, parse_query
from ..world import Ints, symbol
from .asp import AspSolver
from .cones import Cones
from .executor import Derivation, execute, lowest_counts
from .index import RuleIndex
from .mentions import unmentioned
from .report import Findings
from .rulebase import RuleBase
from .scan import GivenStep, SubQuestion

POOL_SIZE = 10_000
CONE_BATCH = 250
"""Sub-questions that share a cone: the fewer, the smaller it is, the more often rules are read."""
_FILLERS = 8
"""Sets of rules that fill up pools. Few, because clingo keeps every symbol it ever saw."""
_ANSWER_TYPE = {"has": "count", "in": "environment", "state": "state", "state_of_count": "state"}


class AnswerChecker:
    """Runs every check on batches of sub-questions of one world, by ``"executor"``, ``"clingo"`` or both."""

    def __init__(self, base: RuleBase, solvers: Sequence[str]) -> None:
        self.base, self.index, self._cones = base, RuleIndex(base), Cones(base)
        self.solver = AspSolver(base) if "clingo" in solvers else None
        self.executor = "executor" in solvers
        size = min(POOL_SIZE, len(base))
        draws = [
            np.random.default_rng(seed).choice(len(base), size, replace=False) for seed in range(_FILLERS)
        ]
        self._fillers = [base.id[rows].tolist() for rows in draws]

    def check(self, batch: Sequence[SubQuestion], in_paper: Sequence[bool], number: int) -> Findings:
        """Check one batch.

        Parameters
        ----------
        batch : sequence of SubQuestion
            About a thousand; sorted by query, or the cones overlap less.
        in_paper : sequence of bool
            Which of them occur in an evaluation split of the first world, whose rules are the paper's.
        number : int
            Batch number; chooses what fills up the pool.
        """
        findings = Findings()
        known = [
            asked
            for asked, papers in zip(batch, in_paper, strict=True)
            if _readable(asked, findings) and self._gold_exists(asked, papers, findings)
        ]
        # A dict keeps the order, so the gold rules come first.
        gold = [rule_id for asked in known for rule_id in asked.rule_ids]
        pool = list(dict.fromkeys([*gold, *self._fillers[number % _FILLERS]]))[:POOL_SIZE]
        if self.executor:
            rules = self.index.only(frozenset(pool))
            for asked in known:
                self._derive(asked, rules, findings)
        if self.solver:
            self._second_opinion(self.solver, known, self.base.find(pool), findings)
        return findings

    def _gold_exists(self, asked: SubQuestion, in_paper: bool, findings: Findings) -> bool:
        check, rows = findings["gold_rules"], self.base.find(asked.rule_ids)
        check.checked += 1
        for rule_id, row in zip(asked.rule_ids, rows.tolist(), strict=True):
            if row < 0:
                check.fail(
                    f"{asked.found_in}: the gold rule {rule_id} is not in the rule table of {asked.world_id}"
                )
                return False
            if in_paper and not self.base.in_paper[row]:
                check.fail(f"{asked.found_in}: the gold rule {rule_id} is not in the paper's subset")
                break
        if not len(rows):
            check.fail(f"{asked.found_in}: no gold rule of {asked.world_id}")
        return len(rows) > 0

    def _derive(self, asked: SubQuestion, pool: RuleIndex, findings: Findings) -> None:
        """Run the executor on all three pools, then check the proof."""
        facts, query = parse_facts(asked.facts), parse_query(asked.query)
        pools = {"gold": self.index.only(asked.rule_ids), "pool": pool, "full": self.index}
        for name, rules in pools.items():
            check = findings[f"C9_{name}_executor"]
            check.checked += 1
            try:
                proof = execute(facts, query, rules)
            except ValueError as error:
                check.fail(f"{asked.found_in}: {error}")
                continue
            if proof.answer != asked.answer:
                check.fail(_disagree(asked, proof.answer))
            elif name != "gold" and set(proof.rule_ids) != set(asked.rule_ids):
                check.fail(f"{asked.found_in}: follows from rules {proof.rule_ids}, gold is {asked.rule_ids}")
            if name == "gold":
                self._check_steps(asked, proof, findings)
                findings["needed"].checked += len(asked.rule_ids)
                for rule_id in asked.rule_ids:
                    rest = self.index.only([other for other in asked.rule_ids if other != rule_id])
                    if execute(facts, query, rest).answer == asked.answer:
                        without = f"the answer is {asked.answer!r} without the gold rule {rule_id} too"
                        findings["needed"].fail(f"{asked.found_in}: {without}")
        findings["C6"].checked += 1
        for attribute, count in lowest_counts(facts, query, self.index).items():
            if count < 0:
                findings["C6"].fail(f"{asked.found_in}: {asked.facts}: {attribute!r} could fall to {count}")

    def _check_steps(self, asked: SubQuestion, proof: Derivation, findings: Findings) -> None:
        steps, texts = findings["steps"], findings["step_texts"]
        steps.checked += len(asked.steps)
        texts.checked += len(asked.steps)
        if proof.rule_ids != asked.rule_ids:
            found = f"the derivation uses rules {proof.rule_ids}, the steps say {asked.rule_ids}"
            steps.fail(f"{asked.found_in}: {found}")
            return
        concluded = {firing.rule_id: firing.fact for firing in proof.firings}
        before = list(parse_facts(asked.facts))
        for number, step in enumerate(asked.steps, start=1):
            facts = [concluded[rule_id] for rule_id in step.rule_ids]
            where = f"{asked.found_in}, step {number}"
            try:
                problem = _step_problem(asked, step, facts, before, number == len(asked.steps))
            except ValueError as error:
                problem = str(error)
            if problem:
                steps.fail(f"{where}: {problem}")
            if missing := unmentioned(step.nl, [fact for fact in facts if fact.kind != "act"]):
                texts.fail(f"{where}: {missing} is not in {step.nl!r}")
            before += facts

    def _second_opinion(
        self, solver: AspSolver, known: Sequence[SubQuestion], pool: Ints, findings: Findings
    ) -> None:
        """Run clingo on all three pools."""
        for name, size in (("gold", len(known)), ("pool", len(known)), ("full", CONE_BATCH)):
            check = findings[f"C9_{name}_clingo"]
            check.checked += len(known)
            for start in range(0, len(known), max(1, size)):
                part = known[start : start + size]
                scopes = [(asked.facts, asked.query) for asked in part]
                try:
                    if name == "gold":
                        pools = [self.base.find(asked.rule_ids) for asked in part]
                    else:
                        pools = [pool if name == "pool" else self._cones.rows(scopes)]
                    found = solver.answers(scopes, pools)
                except ValueError as error:
                    check.fail_rows(part, lambda _, error=error: str(error))
                    continue
                for asked, answers in zip(part, found, strict=True):
                    if answers != (asked.answer,):
                        check.fail(_disagree(asked, " or ".join(answers) or None))


def _readable(asked: SubQuestion, findings: Findings) -> bool:
    """Check that facts and query parse, and that the type of the answer fits."""
    check = findings["scopes"]
    check.checked += 1
    try:
        parse_facts(asked.facts)
        wanted = _ANSWER_TYPE[parse_query(asked.query).kind]
    except ValueError as error:
        check.fail(f"{asked.found_in}: {error}")
        return False
    if asked.answer_type != wanted:
        kind = f"answer type {asked.answer_type!r} for {asked.query}, expected {wanted!r}"
        check.fail(f"{asked.found_in}: {kind}")
    return True


def _disagree(asked: SubQuestion, answer: str | None) -> str:
    gold = f"the answer is {answer!r}, gold says {asked.answer!r}"
    return f"{asked.found_in}: {asked.facts}, {asked.query}: {gold}"


def _step_problem(
    asked: SubQuestion, step: GivenStep, facts: list[Fact], before: list[Fact], last: bool
) -> str:
    """Compare one step's FOL and state to what its rules conclude; return what is wrong, or nothing.

    The FOL is one ``premise => conclusion`` per rule and, if the step changes the queried attribute, the sum.
    """
    if not facts:
        return "it has no rules"
    query, pieces = parse_query(asked.query), step.fol.split("; ")
    adds_up = last and query.kind == "has" and facts[0].kind == "change"
    total = pieces.pop() if adds_up else ""
    if len(pieces) != len(facts):
        return f"{step.fol!r} has {len(pieces)} inferences, its rules make {len(facts)}"
    for piece, fact in zip(pieces, facts, strict=True):
        premise, arrow, conclusion = piece.partition(" => ")
        if not arrow or parse_facts(conclusion) != (fact,):
            return f"{piece!r} should conclude {_spell(fact)}"
        if not {*parse_facts(premise)} <= {*before}:
            return f"{piece!r} starts from something that does not hold"
    state = facts[0]
    if adds_up:
        initial = next((f.number for f in (*facts, *before) if f.kind == "has" and f.term == query.term), "")
        sign = "+" if state.operator == OPERATORS[1] else "-"
        change = f"{initial} {sign} {state.number or 0}"
        wanted = f"Has({query.who}, {symbol(query.term)}, {change} = {asked.answer})"
        if total != wanted:
            return f"{total!r} should be {wanted}"
        state = Fact("has", query.who, query.term, number=int(asked.answer))
    if parse_facts(step.state) != (state,):
        return f"the state is {step.state!r}, expected {_spell(state)}"
    return ""


def _spell(fact: Fact) -> str:
    number = "" if fact.number is None else f" {fact.number}"
    operator = f"{fact.operator} " if fact.operator else ""
    return f"{fact.who}: {fact.kind} {operator}{fact.term}{number}"
