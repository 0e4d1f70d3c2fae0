"""The second solver: clingo, on rules, facts and queries parsed from the shipped rows.

`world.lp` states the semantics; this module writes parsed parts as facts and reads the answers. It shares the
parser with `executor` and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from typing import Any

import numpy as np

from ..text import Fact, Query, parse_facts, parse_query
from ..world import Ints
from .rulebase import RuleBase, Terms

BATCH = 1000
"""Scopes per program: the measured best."""
_LIMIT = 2**31
_RULE_COLUMNS = {
    "entity2attr": ("premise", "conclusion", "delta"),
    "attrchange2attr": ("premise", "sign", "conclusion", "delta"),
    "action2env": ("premise", "conclusion"),
    "action2attr": ("premise", "mark", "conclusion", "delta"),
    "action2state": ("premise", "mark", "conclusion"),
    "env2state": ("premise", "conclusion"),
    "state2attr": ("premise", "conclusion", "delta"),
    "place_state2attr": ("premise", "state", "conclusion", "delta"),
    "count2state": ("premise", "sign", "threshold", "conclusion"),
}
"""Arguments of each rule predicate, after pool and rule id."""


class AspSolver:
    """Answers scopes with clingo.

    Parameters
    ----------
    base : RuleBase
        Parsed rules.

    Raises
    ------
    ImportError
        If clingo is not installed; the message says what to type.
    ValueError
        If attribute changes are circular: the program would not end.
    """

    def __init__(self, base: RuleBase) -> None:
        import_clingo()
        self.base = base
        changes = base.of_type("attrchange2attr")
        try:
            self._growth = _growth(changes)
        except CycleError:
            raise ValueError("attribute changes are circular; clingo would not end (see check C3)") from None

    def answers(
        self, scopes: Sequence[tuple[str, str]], pools: Sequence[Ints] | None = None
    ) -> list[tuple[str, ...]]:
        """Answer scopes in one program.

        Parameters
        ----------
        scopes : sequence of (facts, query)
            Texts as shipped.
        pools : sequence of ndarray, optional
            Rows of the rules that may be used: one entry for all scopes or one per scope; all rules by default.

        Returns
        -------
        list of tuple of str
            Every value the query has, per scope: one for a sound question.

        Raises
        ------
        ValueError
            If a text does not parse, a row is -1 or a number could exceed clingo's 32 bits.
        """
        if not scopes:
            return []
        pools = [np.arange(len(self.base))] if pools is None else pools
        rows = np.concatenate(pools)
        if (rows < 0).any():
            raise ValueError("a pool names a rule that is not in the rule base")
        writer = _Writer(self.base.take(rows), self._growth)
        lines = list(writer.rules(np.repeat(np.arange(len(pools)), [len(own) for own in pools])))
        for number, (facts, query) in enumerate(scopes):
            lines.extend(writer.scope(number, number % len(pools), parse_facts(facts), parse_query(query)))
        found: list[set[str]] = [set() for _ in scopes]
        for name, (scope, value) in _run(lines):
            found[scope].add(str(value) if name == "count" else writer.terms.names[value])
        return [tuple(sorted(values)) for values in found]


def _growth(changes: RuleBase) -> int:
    """Return the largest factor by which a chain of attribute changes multiplies."""
    causes: dict[int, dict[int, int]] = defaultdict(dict)
    for trigger, target, amount in zip(
        changes.premise.tolist(), changes.conclusion.tolist(), changes.amount.tolist(), strict=True
    ):
        causes[target][trigger] = max(amount, causes[target].get(trigger, 1))
    most: dict[int, int] = {}
    for term in TopologicalSorter(causes).static_order():
        most[term] = max((most[cause] * amount for cause, amount in causes.get(term, {}).items()), default=1)
    return max(most.values(), default=1)


def import_clingo() -> Any:
    """Import clingo, or say how to get it."""
    try:
        import clingo
    except ImportError:
        raise ImportError(
            'the clingo check needs the package clingo; type: pip install "ruleworld-data[solver]" '
            "(or verify with the executor alone)"
        ) from None
    return clingo


class _Writer:
    """Writes parsed parts as facts; terms of scopes that no rule knows get numbers of their own."""

    def __init__(self, rules: RuleBase, growth: int) -> None:
        self._rules, self._growth = rules, growth
        self.terms = Terms(rules.terms.names)
        self._largest = int(rules.amount.max(initial=1))

    def rules(self, pools: Ints) -> Iterator[str]:
        """Yield one fact per rule; ``pools`` tells the pool of each."""
        part = self._rules
        columns = {
            "premise": part.premise,
            "mark": part.mark,
            "sign": np.where(part.mark == 0, -1, 1),
            "conclusion": part.conclusion,
            "delta": part.delta,
            "state": part.state,
            "threshold": part.threshold,
        }
        for rule_type, names in _RULE_COLUMNS.items():
            own = part.rows_of(rule_type)
            arguments = [column[own].tolist() for column in (pools, part.id, *(columns[n] for n in names))]
            template = f"{rule_type}({','.join(['%d'] * len(arguments))})."
            yield from map(template.__mod__, zip(*arguments, strict=True))

    def scope(self, number: int, pool: int, facts: tuple[Fact, ...], query: Query) -> Iterator[str]:
        """Yield the facts of one scope."""
        yield f"scope({number},{pool})."
        for fact in facts:
            yield self._fact(number, fact)
        who = "xy".index(query.who)
        if query.kind == "has":
            yield f"ask_count({number},{who},{self.terms[query.term]})."
        elif query.kind == "in":
            yield f"ask_place({number},{who})."
        else:
            cause = "count" if query.kind == "state_of_count" else "action"
            cause = "place" if query.term == "in" else f"{cause}({self.terms[query.term]})"
            yield f"ask_state({number},{who},{cause})."

    def _fact(self, scope: int, fact: Fact) -> str:
        who, term = "xy".index(fact.who), self.terms[fact.term]
        if fact.kind == "act":
            return f"act({scope},{term},{who},{'xy'.index(fact.other or '')})."
        if fact.number is None:
            return f"{'at' if fact.kind == 'in' else 'is'}({scope},{who},{term})."
        # Changes multiply along a chain, and clingo's integers wrap silently at 32 bits.
        self._largest = max(self._largest, fact.number)
        if self._largest * self._growth * (len(self._rules) + 10) >= _LIMIT:
            raise ValueError(
                f"the number {fact.number} may overflow clingo's 32-bit integers; use the executor alone"
            )
        if fact.kind == "has":
            return f"has({scope},{who},{term},{fact.number})."
        return f"change({scope},{who},{term},{-fact.number if fact.operator == 'minus' else fact.number})."


def _run(lines: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Run the program with the facts and yield every shown atom."""
    clingo = import_clingo()
    control = clingo.Control(["--warn=none"])
    control.add("base", [], resources.files(__package__).joinpath("world.lp").read_text(encoding="utf-8"))
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        for model in handle:
            for atom in model.symbols(shown=True):
                scope, value = atom.arguments
                yield atom.name, (scope.number, value.number)
