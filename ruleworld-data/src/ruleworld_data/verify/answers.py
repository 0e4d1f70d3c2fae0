"""Checks of distinct sub-questions: the answer by the gold rules and by all (C9), the steps, that every rule is needed.

Sub-questions come in batches, and a batch shares its clingo programs. Between the gold rules and all of them no pool
can give another answer: by C5 nothing changes an attribute along two routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby

import numpy as np

from ..io.workers import worker_pool
from ..spec import OPERATORS, UNKNOWN
from ..text import Fact, Query, parse_facts, parse_query, parse_state
from ..text.fol import INSTEAD
from ..world import symbol
from .asp import BATCH, AspSolver
from .executor import Derivation, Firing, execute, fired
from .index import RuleIndex
from .mentions import unmentioned
from .report import Check, Report, StageProgress
from .rulebase import RuleBase
from .scan import GivenStep, Scan, SubQuestion

CONE_BATCH = 250
"""Sub-questions that share a pool: the fewer, the smaller it is, the more often rules are read."""
_WORTH_A_PROCESS = 10
"""Batches that take longer than starting a process."""
_LIFETIME = 100
"""Batches that a process checks before it is replaced."""
_ANSWER_TYPE = {"in": "environment", "state": "state", "state_of_count": "state", "most": "creature"}
_ANSWER_TYPE |= dict.fromkeys(("has", "sum", "difference", "highest"), "count")

Batch = tuple[str, list[tuple[SubQuestion, bool]]]
"""World and sub-questions, each with whether an evaluation split of the first world has it."""
_checkers: dict[str, AnswerChecker] = {}
"""Of this process, by world."""


def check_answers(
    scan: Scan, worlds: Iterable[RuleBase], solvers: Sequence[str], jobs: int, progress: StageProgress
) -> None:
    """Check the sub-questions of a scan by the solvers ``"executor"`` and ``"clingo"``, or one of them."""
    batches, start = _batches(scan), ({base.world_id: base for base in worlds}, solvers)
    results: Iterable[Report]
    with ExitStack() as stack:
        if jobs == 1 or len(batches) < 2 * _WORTH_A_PROCESS:
            _prepare(*start)
            stack.callback(_checkers.clear)
            results = map(_check, batches)
        else:
            # Clingo never frees a symbol, so processes are replaced now and then.
            pool = stack.enter_context(worker_pool(jobs, _prepare, *start, lifetime=_LIFETIME))
            results = pool.map(_check, batches)
        for number, report in enumerate(results, start=1):
            scan.report.merge(report)
            progress("answers", number, len(batches))


def _batches(scan: Scan) -> list[Batch]:
    """Group sub-questions by world and query, so that a batch is about few attributes."""
    batches: list[Batch] = []
    paper = set(scan.of("validation", "test", "mini"))
    ordered = sorted(scan.subquestions, key=lambda known: (known.world_id, known.query))
    for world_id, group in groupby(ordered, key=lambda known: known.world_id):
        own = [(known, known in paper) for known in group]
        batches += [(world_id, own[i : i + BATCH]) for i in range(0, len(own), BATCH)]
    return batches


def _prepare(worlds: Mapping[str, RuleBase], solvers: Sequence[str]) -> None:
    """Index the rules, once per process."""
    _checkers.clear()
    _checkers.update({name: AnswerChecker(base, solvers) for name, base in worlds.items()})


def _check(batch: Batch) -> Report:
    world_id, subquestions = batch
    return _checkers[world_id].check(subquestions)


class AnswerChecker:
    """Runs every check on batches of sub-questions of one world."""

    def __init__(self, base: RuleBase, solvers: Sequence[str]) -> None:
        self.base, self.index = base, RuleIndex(base)
        self._in_paper = base["in_paper"]
        self._guards = (base["entity"] >= 0).astype(np.int8) + (base["place"] >= 0)
        self.solver = AspSolver(base) if "clingo" in solvers else None
        self.executor = "executor" in solvers

    def check(self, batch: Sequence[tuple[SubQuestion, bool]]) -> Report:
        """Check one batch."""
        report = Report()
        known = [
            question
            for question, in_paper in batch
            if _readable(question, report) and self._gold_exists(question, in_paper, report)
        ]
        if self.executor:
            for question in known:
                self._derive(question, report)
        if self.solver:
            self._second_opinion(self.solver, known, report)
        return report

    def _gold_exists(self, question: SubQuestion, in_paper: bool, report: Report) -> bool:
        check, rows = report["gold_rules"], self.base.find(question.rule_ids)
        check.checked += 1
        problem = "" if len(rows) else f"no gold rule of {question.world_id}"
        for rule_id, row in zip(question.rule_ids, rows.tolist(), strict=True):
            if row < 0:
                problem = f"the gold rule {rule_id} is not in the rule table of {question.world_id}"
                break
            if in_paper and not self._in_paper[row]:
                problem = f"the gold rule {rule_id} is not in the paper's subset"
        if problem:
            check.fail(f"{question.source}: {problem}")
        return len(rows) > 0 and bool((rows >= 0).all())

    def _derive(self, question: SubQuestion, report: Report) -> None:
        """Run the executor on both pools, then check the proof."""
        facts, query = parse_facts(question.facts), parse_query(question.query)
        gold = question.rule_ids
        for name, rules in {"gold": self.index.only(gold), "full": self.index}.items():
            check = report[f"C9_{name}_executor"]
            check.checked += 1
            try:
                proof = execute(facts, query, rules)
            except ValueError as error:
                check.fail(f"{question.source}: {error}")
                continue
            if (proof.answer or UNKNOWN) != question.answer:
                check.fail(_disagree(question, proof.answer))
            elif question.answer == UNKNOWN:
                proof = self._steps_taken(question)
            elif name != "gold" and set(proof.rule_ids) != set(gold):
                check.fail(f"{question.source}: follows from rules {proof.rule_ids}, gold is {gold}")
            if name == "gold":
                self._check_steps(question, proof, report)
                if question.answer != UNKNOWN:
                    self._check_needed(gold, facts, query, question.source, report["needed"])

    def _check_needed(
        self, gold: tuple[int, ...], facts: tuple[Fact, ...], query: Query, source: str, check: Check
    ) -> None:
        """Leave out one gold rule at a time; one that is set aside, where nothing sets it aside."""

        def outcome(rules: list[int]) -> object:
            # A comparison may come out as before, but not each of its counts.
            proof = execute(facts, query, self.index.only(rules))
            return proof.counts or proof.answer

        level_of = dict(zip(gold, self._guards[self.base.find(gold)].tolist(), strict=True))
        check.checked += len(gold)
        for level in sorted(set(level_of.values())):
            own = [rule_id for rule_id in gold if level_of[rule_id] <= level]
            whole = outcome(own)
            for left in [rule_id for rule_id in own if level_of[rule_id] == level]:
                if outcome([rule_id for rule_id in own if rule_id != left]) == whole:
                    check.fail(f"{source}: the answer is {whole!r} without the gold rule {left} too")

    def _steps_taken(self, question: SubQuestion) -> Derivation:
        """Return what the gold rules of a question without an answer conclude: those that fire."""
        gold = question.rule_ids
        rules = self.base.rules.iloc[self.base.find(gold)]
        codes = dict.fromkeys([*rules["premise"], *rules["conclusion"]])
        terms = [self.base.terms.names[code] for code in codes]
        facts = fired(question.facts, question.query, self.index.only(gold), terms)
        return Derivation(None, tuple(Firing(rule, facts[rule]) for rule in gold if rule in facts))

    def _check_steps(self, question: SubQuestion, proof: Derivation, report: Report) -> None:
        steps, texts = report["steps"], report["step_texts"]
        steps.checked += len(question.steps)
        texts.checked += len(question.steps)
        if proof.rule_ids != question.rule_ids:
            differ = f"the derivation uses rules {proof.rule_ids}, the steps say {question.rule_ids}"
            steps.fail(f"{question.source}: {differ}")
            return
        concluded = {firing.rule_id: firing.fact for firing in proof.firings}
        before, query = list(parse_facts(question.facts)), parse_query(question.query)
        for number, step in enumerate(question.steps, start=1):
            facts = [concluded[rule_id] for rule_id in step.rule_ids]
            where, last = f"{question.source}, step {number}", number == len(question.steps)
            asked = (query, question.answer) if last else None
            try:
                if query.parts:
                    asked = query.parts[number - 1], proof.counts[number - 1] or ""
                    step = _before_closing(step, query, proof) if last else step
                problem = _step_problem(step, facts, before, asked)
            except ValueError as error:
                problem = str(error)
            if problem:
                steps.fail(f"{where}: {problem}")
            if missing := unmentioned(step.nl, [fact for fact in facts if fact.kind != "act"]):
                texts.fail(f"{where}: {missing} is not in {step.nl!r}")
            before += facts

    def _second_opinion(self, solver: AspSolver, known: Sequence[SubQuestion], report: Report) -> None:
        """Run clingo on both pools."""
        for name, size in (("gold", BATCH), ("full", CONE_BATCH)):
            check = report[f"C9_{name}_clingo"]
            check.checked += len(known)
            for start in range(0, len(known), size):
                part = known[start : start + size]
                scopes = [(question.facts, question.query) for question in part]
                try:
                    if name == "gold":
                        pools = [self.base.find(question.rule_ids) for question in part]
                    else:
                        pools = [solver.relevant(scopes)]
                    values = solver.answers(scopes, pools)
                except ValueError as error:
                    check.fail(*[str(error)] * len(part))
                    continue
                for question, answers in zip(part, values, strict=True):
                    if (answers or (UNKNOWN,)) != (question.answer,):
                        check.fail(_disagree(question, " or ".join(answers) or None))


def _readable(question: SubQuestion, report: Report) -> bool:
    """Check that facts and query parse, and that the type of the answer fits."""
    check = report["scopes"]
    check.checked += 1
    try:
        parse_facts(question.facts)
        wanted = _ANSWER_TYPE[parse_query(question.query).kind]
    except ValueError as error:
        check.fail(f"{question.source}: {error}")
        return False
    if question.answer_type != wanted:
        kind = f"answer type {question.answer_type!r} for {question.query}, expected {wanted!r}"
        check.fail(f"{question.source}: {kind}")
    return True


def _disagree(question: SubQuestion, answer: str | None) -> str:
    gold = f"the answer is {answer!r}, gold says {question.answer!r}"
    return f"{question.source}: {question.facts}, {question.query}: {gold}"


def _before_closing(step: GivenStep, query: Query, proof: Derivation) -> GivenStep:
    """Return a comparison's last step as it is without the operation; `ValueError` if that is wrong."""
    operation, answer = query.kind.capitalize(), symbol(proof.answer or "")
    counts, asked = [count or "" for count in proof.counts], query.parts[-1]
    closing, state = f"; {operation}({', '.join(counts)}) = {answer}", f"{operation}({answer})"
    if not step.fol.endswith(closing) or step.state != state:
        raise ValueError(
            f"{step.fol!r} with the state {step.state!r} should end with {closing!r} and {state!r}"
        )
    if missing := unmentioned(step.nl, [parse_state(state)]):
        raise ValueError(f"{missing} is not in {step.nl!r}")
    count = f"Has({asked.who}, {symbol(asked.term)}, {counts[-1]})"
    return step._replace(fol=step.fol.removesuffix(closing), state=count)


def _step_problem(
    step: GivenStep, facts: list[Fact], before: list[Fact], asked: tuple[Query, str] | None
) -> str:
    """Compare one step's FOL and state to what its rules conclude; return what is wrong, or nothing.

    The FOL is one ``premise => conclusion`` per rule and, if the step changes the attribute that is ``asked`` for (a
    query and its answer), the sum, or that it is unknown.
    """
    if not facts:
        return "it has no rules"
    pieces = step.fol.split("; ")
    unknown = asked is not None and asked[1] == UNKNOWN
    adds_up = asked is not None and asked[0].kind == "has" and facts[0].kind == "change" and not unknown
    total = pieces.pop() if adds_up or unknown else ""
    if len(pieces) != len(facts):
        return f"{step.fol!r} has {len(pieces)} inferences, its rules make {len(facts)}"
    for piece, fact in zip(pieces, facts, strict=True):
        premise, arrow, conclusion = piece.partition(" => ")
        if not arrow or parse_facts(conclusion.removeprefix(INSTEAD)) != (fact,):
            return f"{piece!r} should conclude {_spell(fact)}"
        if not {*parse_facts(premise)} <= {*before}:
            return f"{piece!r} starts from something that does not hold"
    state = [fact for fact in facts if fact.kind == facts[0].kind][-1]  # what sets aside comes last
    if unknown and asked:
        query = asked[0]
        if total != (wanted := f"Changed({query.who}, {symbol(query.term)}, {UNKNOWN})"):
            return f"{total!r} should be {wanted}"
    if adds_up and asked:
        query, answer = asked
        initial = next((f.number for f in (*facts, *before) if f.kind == "has" and f.term == query.term), "")
        sign = "+" if state.operator == OPERATORS[1] else "-"
        change = f"{initial} {sign} {state.number or 0}"
        wanted = f"Has({query.who}, {symbol(query.term)}, {change} = {answer})"
        if total != wanted:
            return f"{total!r} should be {wanted}"
        state = Fact("has", query.who, query.term, number=int(answer))
    if parse_state(step.state) != state:
        return f"the state is {step.state!r}, expected {_spell(state)}"
    return ""


def _spell(fact: Fact) -> str:
    number = "" if fact.number is None else f" {fact.number}"
    operator = f"{fact.operator} " if fact.operator else ""
    return f"{fact.who}: {fact.kind} {operator}{fact.term}{number}"
