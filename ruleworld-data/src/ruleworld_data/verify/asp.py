"""The second solver: clingo, on rules, facts and queries parsed from the shipped rows.

`world.lp` states the semantics; this module writes parsed parts as facts and reads the answers. It shares the
parser with `executor` and nothing else.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from .._lazy import tool
from ..text import Fact, Query, parse_facts, parse_query
from ..world import Ints
from .rulebase import TYPE_CODE, Codes, RuleBase

BATCH = 1000
"""Scopes per program: the measured best."""
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
    "exception": ("premise", "entity", "place", "conclusion", "delta"),
}
"""Arguments of each rule predicate, after pool and rule id."""


class AspSolver:
    """Answers scopes with clingo; an ImportError says how to install it.

    Attribute changes must not be circular (C3), or the program would not end.
    """

    def __init__(self, base: RuleBase) -> None:
        import_clingo()
        self.base = base
        changes = base.of_type("attrchange2attr").groupby(["conclusion", "premise"])["amount"].max()
        self._causes: dict[int, dict[int, int]] = defaultdict(dict)
        """What changes an attribute, and by how much for each unit of its own change."""
        for target, trigger, amount in changes.clip(lower=1).reset_index().to_numpy().tolist():
            self._causes[target][trigger] = amount
        self._growth = _growth(self._causes)
        routes = [TYPE_CODE[name] for name in ("action2env", "action2state", "env2state", "count2state")]
        self._routes = np.isin(base["type"], routes)
        self._counted = base.of_type("count2state")["premise"].unique().tolist()

    def answers(
        self, scopes: Sequence[tuple[str, str]], pools: Sequence[Ints] | None = None
    ) -> list[tuple[str, ...]]:
        """Answer scopes, facts and query as shipped, in one program: every value of a query, one for a sound question.

        ``pools`` has rows of the rules that may be used, one entry for all scopes or one per scope; all rules by
        default. A ValueError if a text does not parse or a number could exceed clingo's 32 bits.
        """
        if not scopes:
            return []
        pools = [np.arange(len(self.base))] if pools is None else pools
        rows = np.concatenate(pools)
        if (rows < 0).any():  # which would count from the end
            raise ValueError("a pool names a rule that is not in the rule base")
        rules = self.base.rules.iloc[rows].assign(
            pool=np.repeat(range(len(pools)), [len(own) for own in pools])
        )
        lines, terms, parsed = list(_rules(rules)), Codes(self.base.terms.names), list[tuple[Fact, ...]]()
        for number, (facts, query) in enumerate(scopes):
            parsed.append(parse_facts(facts))
            lines.append(f"scope({number},{number % len(pools)}).")
            lines += [_fact(number, fact, terms) for fact in parsed[-1]]
            asked = parse_query(query)
            lines += [f"compare({number},{asked.kind})."] if asked.parts else []
            lines += [_query(number, part, terms) for part in asked.counts]
        self._check_size(rules, [fact.number or 0 for facts in parsed for fact in facts])
        values: list[set[str]] = [set() for _ in scopes]
        for name, scope, value in _run(lines):
            values[scope].add(str(value) if name == "count" else terms.names[value])
        return [tuple(sorted(own)) for own in values]

    def relevant(self, scopes: Sequence[tuple[str, str]]) -> Ints:
        """Return the rows of every rule that could bear on any of the scopes, without the executor's index.

        All rules that conclude about a place or a state, and of the others those about the attributes that are asked
        for, that have thresholds, or whose change can change one of these.
        """
        asked = [part for _, query in scopes for part in parse_query(query).counts]
        todo = [self.base.terms.get(part.term, -1) for part in asked] + self._counted
        attributes = set[int]()
        while todo:
            if (code := todo.pop()) not in attributes:
                attributes.add(code)
                todo += self._causes.get(code, ())
        return np.flatnonzero(self._routes | np.isin(self.base["conclusion"], [*attributes]))

    def _check_size(self, rules: pd.DataFrame, stated: list[int]) -> None:
        """Changes multiply along a chain, and clingo's integers wrap silently at 32 bits."""
        largest = max(stated + rules["amount"].tolist(), default=1)
        if largest * self._growth * (len(rules) + 10) >= 2**31:
            raise ValueError(
                f"the number {largest} may overflow clingo's 32-bit integers; use the executor alone"
            )


def _growth(causes: Mapping[int, Mapping[int, int]]) -> int:
    """Return the largest factor by which a chain of attribute changes multiplies."""
    most: dict[int, int] = {}
    for term in TopologicalSorter(causes).static_order():
        most[term] = max((most[cause] * amount for cause, amount in causes.get(term, {}).items()), default=1)
    return max(most.values(), default=1)


def import_clingo() -> Any:
    """Import clingo, or say how to get it."""
    with tool("clingo", "solver"):
        import clingo
    return clingo


def _rules(rules: pd.DataFrame) -> Iterator[str]:
    """Yield one fact per rule."""
    rules = rules.assign(
        sign=np.where(rules["mark"] == 0, -1, 1),
        delta=np.where(rules["operator"] == 0, -rules["amount"], rules["amount"]),
    )
    for rule_type, names in _RULE_COLUMNS.items():
        own = rules[(rules["type"] == TYPE_CODE[rule_type]).to_numpy()]
        template = f"{rule_type}({','.join(['%d'] * (len(names) + 2))})."
        yield from map(template.__mod__, own[["pool", "id", *names]].itertuples(index=False, name=None))


def _fact(scope: int, fact: Fact, terms: Codes) -> str:
    """Write one fact; a term that no rule knows gets a number of its own."""
    who, term = _individual(fact.who), terms[fact.term]
    if fact.kind == "act":
        return f"act({scope},{term},{who},{_individual(fact.other or '')})."
    if fact.number is None:
        return f"{'at' if fact.kind == 'in' else 'is'}({scope},{who},{term})."
    number = -fact.number if fact.operator == "minus" else fact.number
    return f"{fact.kind}({scope},{who},{term},{number})."


def _individual(name: str) -> int:
    """Number individuals: x and y are 0 and 1, x1 and y1 are 2 and 3, and so on."""
    return 2 * int(name[1:] or 0) + "xy".index(name[0])


def _query(scope: int, query: Query, terms: Codes) -> str:
    who = _individual(query.who)
    if query.kind == "has":
        condition = f" must_change({scope})." if query.changed else ""
        return f"ask_count({scope},{who},{terms[query.term]}).{condition}"
    if query.kind == "in":
        return f"ask_place({scope},{who})."
    cause = "count" if query.kind == "state_of_count" else "action"
    cause = "place" if query.term == "in" else f"{cause}({terms[query.term]})"
    return f"ask_state({scope},{who},{cause})."


def _run(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Run the program with the facts and yield every shown atom: its name, scope and value."""
    clingo = import_clingo()
    control = clingo.Control(["--warn=none"])
    control.add("base", [], resources.files(__package__).joinpath("world.lp").read_text(encoding="utf-8"))
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        for model in handle:
            for atom in model.symbols(shown=True):
                scope, value = atom.arguments
                yield atom.name, scope.number, value.number
