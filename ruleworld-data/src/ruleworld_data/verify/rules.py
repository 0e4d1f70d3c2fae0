"""Checks of the rules: ids, texts, and the constraints C1 to C5, C7 and C8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..io.shards import Shard
from ..spec import ROLES
from ..text.parser import RULE_SHAPES
from ..world import Ints, load_vocabulary
from .mentions import plurals
from .reader import TableReader
from .report import Findings
from .rulebase import ALL_TYPES, TYPE_CODE, RuleBase

_BATCH = 150_000


def read_rules(reader: TableReader, folder: Path, shards: list[Shard], findings: Findings) -> RuleBase:
    """Read the shards of one rule table and check every row."""
    checked = ("rule_ids", "rule_fol", "rule_nl", "rule_texts", "rule_halves", "rule_columns")

    def batches() -> Iterator[pa.RecordBatch]:
        for shard in shards:
            with pq.ParquetFile(folder / shard.path) as file:
                for batch in file.iter_batches(batch_size=_BATCH):
                    for name in checked:
                        findings[name].checked += len(batch)
                    yield batch

    base = reader.read(batches(), findings)
    table, ids = f"rules/{shards[0].split}", findings["rule_ids"]
    ids.fail_rows(_repeats(base.id)[0], lambda row: f"{table}: the id {base.id[row]} occurs twice")
    if len(base.worlds) != 1:
        ids.fail(f"{table}: one world_id expected, got {', '.join(base.worlds)}")
    return base


def check_constraints(base: RuleBase, findings: Findings) -> None:
    """Check C1 to C5, C7 and C8 on one world."""
    for name in ("C1", "C2", "C3", "C4", "C5", "C7", "C8"):
        findings[name].checked += len(base)
    for check in (_functional, _attribute_structure, _routes, _distinct_texts, _terms, _denied):
        check(base, findings)


def check_heldout(first: RuleBase, heldout: RuleBase, findings: Findings) -> None:
    """Check that no rule, text for text, is in both worlds."""
    check = findings["heldout"]
    check.checked += len(heldout)
    for text in ("fol_key", "nl_key"):
        shared = np.isin(getattr(heldout, text), getattr(first, text))
        check.fail_rows(np.flatnonzero(shared), lambda row: f"rule {_name(heldout, row)} is in both worlds")


def _name(base: RuleBase, row: int) -> str:
    rule = base.rule(row)
    parts = {key: value for key, value in vars(rule).items() if value is not None and key != "type"}
    return f"{base.id[row]} ({rule.type}: {', '.join(f'{key} {value}' for key, value in parts.items())})"


def _repeats(key: Ints) -> tuple[Ints, Ints]:
    """Rows whose key occurred before, and the rows of that occurrence."""
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    return order[same + 1], order[same]


def _functional(base: RuleBase, findings: Findings) -> None:
    """C1 and C2: one rule per key, so in particular none that adds and one that takes."""
    size = len(base.terms) + 1
    wide = np.isin(base.type, [TYPE_CODE["entity2attr"], TYPE_CODE["state2attr"]])
    key = np.where(wide, base.keys, base.keys // size * size)  # of the other types any conclusion
    both = base.rows_of("place_state2attr")  # of a place and a state one rule per attribute
    key[both] = -1 - (np.unique(base.keys[both], return_inverse=True)[1] * size + base.state[both])
    later, earlier = _repeats(key)
    before = dict(zip(later.tolist(), earlier.tolist(), strict=True))

    def describe(row: int) -> str:
        return f"rules {_name(base, before[row])} and {_name(base, row)} have the same key"

    findings["C1"].fail_rows(later, describe)
    findings["C2"].fail_rows(later[base.operator[later] + base.operator[earlier] == 1], describe)


def _attribute_structure(base: RuleBase, findings: Findings) -> None:
    """C3 and C4: acyclic; what states and actions change has no driver; one driver per response; thresholds apart."""
    changes = base.of_type("attrchange2attr")
    names = base.terms.names
    try:
        TopologicalSorter(_links(changes)).prepare()
    except CycleError as error:
        loop = " -> ".join(names[code] for code in error.args[1])
        findings["C3"].fail(f"attribute changes run in a circle: {loop}")
    drivers = np.unique(base.conclusion[base.rows_of("state2attr", "action2attr", "place_state2attr")])
    both = np.intersect1d(drivers, changes.conclusion)
    findings["C4"].fail(*(f"{names[code]!r} is a driver and a response" for code in both))
    counted = base.premise[base.rows_of("count2state")]
    moved = np.intersect1d(counted, np.union1d(drivers, changes.conclusion))
    findings["C4"].fail(*(f"{names[code]!r} has a threshold and is changed" for code in moved))
    edges = np.unique(np.stack([changes.conclusion, changes.premise], axis=1), axis=0)
    responses, driver_counts = np.unique(edges[:, 0], return_counts=True)
    for code in responses[driver_counts > 1]:
        rivals = [repr(names[driver]) for driver in edges[edges[:, 0] == code, 1]]
        findings["C4"].fail(f"the response {names[code]!r} has {len(rivals)} drivers: {', '.join(rivals)}")


def _routes(base: RuleBase, findings: Findings) -> None:
    """C5: no attribute is changed along two routes, whatever happens to whom.

    An action changes attributes through its environment's state, through its own, through places and states together,
    and by itself. The counts of a kind do so whatever else happens, so what they change nothing else may change.
    """
    names, state_of = base.terms.names, _links(base.of_type("env2state"))
    led_to = base.conclusion[base.rows_of("env2state", "action2state", "count2state")]
    touched = _links(base.of_type("state2attr"), led_to)
    routes: dict[tuple[int, int], list[tuple[str, set[int]]]] = defaultdict(list)
    states_of: dict[tuple[int, int], set[int]] = defaultdict(set)
    for rule_type, label in (
        ("action2env", "its environment's state"),
        ("action2state", "its own state"),
        ("action2attr", "its own effect"),
    ):
        part = base.of_type(rule_type)
        columns = (part.premise.tolist(), part.mark.tolist(), part.conclusion.tolist())
        for action, role, term in zip(*columns, strict=True):
            states = {"action2env": state_of[term], "action2state": {term}}.get(rule_type, set())
            states_of[action, role] |= states
            reach = set().union(*(touched[state] for state in states)) if states else {term}
            if rule_type == "action2attr" or states:
                routes[action, role].append((label, reach))
    for subject, state, attribute in _conjunctions(base):
        if state in states_of[subject]:
            routes[subject].append(("place and state together", {attribute}))
    for (action, role), ways in routes.items():
        for (other, others), (label, attributes) in combinations(ways, 2):
            if shared := attributes & others:
                findings["C5"].fail(
                    f"{names[action]!r} changes {names[min(shared)]!r} of its {ROLES[role]} by {other} and by {label}"
                    f" ({len(shared)} such attributes)"
                )
    _thresholds(base, touched, findings)


def _thresholds(base: RuleBase, touched: dict[int, set[int]], findings: Findings) -> None:
    """C5 for counts: each threshold attribute has drivers of its own, and never two states."""
    names, cuts = base.terms.names, base.of_type("count2state")
    own: dict[int, set[int]] = defaultdict(set)
    bounds: dict[int, dict[int, int]] = defaultdict(dict)
    columns = (cuts.premise.tolist(), cuts.mark.tolist(), cuts.threshold.tolist(), cuts.conclusion.tolist())
    for attribute, plus, cut, state in zip(*columns, strict=True):
        own[attribute] |= touched[state]
        bounds[attribute][plus] = cut
    for attribute, cut in bounds.items():
        if len(cut) == 2 and cut[0] > cut[1] + 1:
            both = f"more than {cut[1]} and fewer than {cut[0]}"
            findings["C5"].fail(f"{names[attribute]!r}: a count can be {both}, and then has two states")
    changing = base.take(base.rows_of("state2attr", "action2attr", "place_state2attr"))
    by_count = (changing.type == TYPE_CODE["state2attr"]) & np.isin(changing.premise, cuts.conclusion)
    others = set(np.unique(changing.conclusion[~by_count]).tolist()) if own else set()
    for attribute, drivers in own.items():
        if shared := drivers & others:
            findings["C5"].fail(
                f"the count of {names[attribute]!r} changes {names[min(shared)]!r}, and so does something else "
                f"({len(shared)} such attributes)"
            )
        others |= drivers


def _conjunctions(base: RuleBase) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Yield who is led to the place of each conjunctive rule (action and role), its state, and its attribute."""
    both, enters = base.of_type("place_state2attr"), base.of_type("action2env")
    led: dict[int, list[tuple[int, int]]] = defaultdict(list)
    parts = (enters.premise.tolist(), enters.mark.tolist(), enters.conclusion.tolist())
    for action, role, place in zip(*parts, strict=True):
        led[place].append((action, role))
    columns = (both.premise.tolist(), both.state.tolist(), both.conclusion.tolist())
    for place, state, attribute in zip(*columns, strict=True):
        for subject in led[place]:
            yield subject, state, attribute


def _links(part: RuleBase, premises: Ints | None = None) -> dict[int, set[int]]:
    """Return the conclusions of each premise, of some premises or of all."""
    if premises is not None:
        part = part.take(np.flatnonzero(np.isin(part.premise, premises)))
    found: dict[int, set[int]] = defaultdict(set)
    for premise, conclusion in zip(part.premise.tolist(), part.conclusion.tolist(), strict=True):
        found[premise].add(conclusion)
    return found


def _distinct_texts(base: RuleBase, findings: Findings) -> None:
    for text, key in (("FOL", base.fol_key), ("English", base.nl_key)):
        pairs = np.stack(_repeats(key), axis=1)
        findings["C7"].fail_rows(
            pairs,
            lambda pair, text=text: (
                f"rules {base.id[pair[1]]} and {_name(base, pair[0])} have the same {text} text"
            ),
        )


def _terms(base: RuleBase, findings: Findings) -> None:
    """C7: a name stands for one term, in one kind, and no name is part of another or its plural."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for rule_type in ALL_TYPES:
        part, shape = base.of_type(rule_type), RULE_SHAPES[rule_type]
        columns = [(part.premise, shape.premise_column), (part.conclusion, shape.conclusion_column)]
        columns.append((part.state, "state"))
        for codes, kind in columns:
            for term in np.unique(codes[codes >= 0]):
                kinds[base.terms.names[term]].add(kind.removeprefix("trigger_"))
    for name, plural in plurals().items():
        if plural != name and name in base.terms and plural in base.terms:
            findings["C7"].fail(f"{plural!r} is a term and the plural of {name!r}")
    for name, its_kinds in kinds.items():
        if len(its_kinds) > 1:
            findings["C7"].fail(f"{name!r} is used as {' and as '.join(sorted(its_kinds))}")
        words = name.split()
        for start, stop in combinations(range(len(words) + 1), 2):
            if (inner := " ".join(words[start:stop])) != name and inner in kinds:
                findings["C7"].fail(f"the term {inner!r} is part of the term {name!r}")


def _denied(base: RuleBase, findings: Findings) -> None:
    """C8: no rule links a pair of words that readers would link without it."""
    names = base.terms.names
    denied: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for kind, left, right in load_vocabulary().denied:
        denied[kind].add((left, right))
    kinds = {"env2state": "env_state", "action2state": "action_state", "action2env": "action_env"}
    for rule_type, kind in kinds.items():
        for row in base.rows_of(rule_type).tolist():
            premise, conclusion = names[base.premise[row]], names[base.conclusion[row]]
            # The list has words of place names, verbs, and the adjectives of states.
            lefts = premise.split() if kind == "env_state" else [premise]
            right = conclusion if kind == "action_env" else conclusion.rsplit(" ", 1)[-1]
            for left in lefts:
                if (left, right) in denied[kind]:
                    findings["C8"].fail(f"rule {_name(base, row)} is common sense: {left}, {right}")
