"""Rules as text: FOL and English, rendered column-wise.

A rule's text is a premise and a conclusion, and few distinct ones exist: 960 premises ``A is a tiny cat`` serve
1.9 million rules. So each distinct half is rendered once, in Python, and joined by Arrow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..io.schema import RULE_SCHEMA
from ..spec import OPERATORS, ROLES
from ..world import Ints, Names, RuleBlock

Text = tuple[str, str]
"""English and FOL."""


def block_table(block: RuleBlock, names: Names, world_id: str, in_paper: Ints | None = None) -> pa.Table:
    """Render a block's rows with the columns of `RULE_SCHEMA`, strings dictionary-encoded where they repeat.

    ``in_paper`` says which rows are in the paper's subset; all of them where it is not given.
    """
    premise_key, premise, conclusion_key, conclusion = _HALVES[block.type]
    premise_nl, premise_fol = _half(block, premise_key, lambda *key: premise(names, *key))
    conclusion_nl, conclusion_fol = _half(block, conclusion_key, lambda *key: conclusion(names, *key))
    nl = _join("If ", premise_nl, ", ", conclusion_nl, ".")
    fol = _join("", premise_fol, " => ", conclusion_fol, "")
    columns: dict[str, pa.Array] = {
        "id": pa.array(block.ids),
        "type": _constant(block.type, len(block)),
        "nl": nl,
        "fol": fol,
        "premise_nl": premise_nl,
        "conclusion_nl": conclusion_nl,
        "premise_fol": premise_fol,
        "conclusion_fol": conclusion_fol,
        "in_paper": pa.array(np.ones(len(block), bool) if in_paper is None else in_paper),
        "world_id": _constant(world_id, len(block)),
    }
    lists = {
        "entity": names.entity,
        "action": names.action,
        "role": ROLES,
        "environment": names.environment,
        "state": names.state,
        "trigger_attribute": names.attribute,
        "trigger_operator": OPERATORS,
        "attribute": names.attribute,
        "operator": OPERATORS,
    }
    for name, values in lists.items():
        if name in block.columns:
            columns[name] = _coded(block[name], list(values))
        else:
            columns[name] = pa.nulls(len(block), pa.dictionary(pa.int32(), pa.string()))
    columns["amount"] = (
        pa.array(block["amount"].astype(np.int8))
        if "amount" in block.columns
        else pa.nulls(len(block), pa.int8())
    )
    return pa.table({field.name: columns[field.name] for field in RULE_SCHEMA})


def _half(block: RuleBlock, key: tuple[str, ...], render: Callable[..., Text]) -> tuple[pa.Array, pa.Array]:
    """Render one half of every rule: each distinct key once."""
    code = np.zeros(len(block), dtype=np.int64)
    radix: list[int] = []
    for name in key:
        radix.append(int(block[name].max()) + 1 if len(block) else 1)
        code = code * radix[-1] + block[name]
    size = int(np.prod(radix))
    used = np.zeros(size, dtype=bool)
    used[code] = True
    distinct = np.flatnonzero(used)
    rank = np.cumsum(used, dtype=np.int32) - 1
    texts = [render(*parts) for parts in zip(*_unpack(distinct, radix), strict=True)]
    indices = pa.array(rank[code].astype(np.int32))
    return tuple(
        pa.DictionaryArray.from_arrays(indices, pa.array([text[i] for text in texts], pa.string()))
        for i in range(2)
    )


def _unpack(code: Ints, radix: list[int]) -> list[list[int]]:
    parts: list[list[int]] = []
    for size in reversed(radix):
        code, part = np.divmod(code, size)
        parts.append(part.tolist())
    return parts[::-1]


def _join(start: str, premise: pa.Array, middle: str, conclusion: pa.Array, end: str) -> pa.Array:
    return pc.binary_join_element_wise(
        start,
        premise.dictionary.take(premise.indices),
        middle,
        conclusion.dictionary.take(conclusion.indices),
        end,
        "",
    )


def _coded(codes: Ints, values: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values, pa.string()))


def _constant(value: str, rows: int) -> pa.Array:
    return _coded(np.zeros(rows, dtype=np.int32), [value])


def _kind(names: Names, entity: int) -> Text:
    return f"A is {names.an_entity[entity]}", f"{names.symbols['entity'][entity]}(A)"


def _count(names: Names, attribute: int, amount: int) -> Text:
    fol = f"Has(A, {names.symbols['attribute'][attribute]}, {amount})"
    return f"it has {names.things(attribute, amount)}", fol


def _trigger(names: Names, operator: int, verb: int, attribute: int) -> Text:
    form = names.lexicon[operator][verb].third
    return f"A {form} {names.things(attribute, 1)}", names.event(operator, verb, attribute, 1, "A")


def _change(names: Names, operator: int, verb: int, attribute: int, amount: int, who: str = "A") -> Text:
    form = names.lexicon[operator][verb].base
    return (
        f"{who} will {form} {names.things(attribute, amount)}",
        names.event(operator, verb, attribute, amount, who),
    )


def _act(names: Names, action: int) -> Text:
    return f"A {names.verbs[action].third} B", f"{names.symbols['action'][action]}(A, B)"


def _arrival(names: Names, environment: int) -> Text:
    return (
        f"B will enter {names.the_place[environment]}",
        f"In(B, {names.symbols['environment'][environment]})",
    )


def _effect_on(names: Names, role: int, operator: int, verb: int, attribute: int, amount: int) -> Text:
    return _change(names, operator, verb, attribute, amount, "AB"[role])


def _state_of(names: Names, role: int, state: int) -> Text:
    who = "AB"[role]
    return f"{who} will be {names.state[state]}", f"{names.symbols['state'][state]}({who})"


def _place(names: Names, environment: int) -> Text:
    return f"A is {names.at_place[environment]}", f"In(A, {names.symbols['environment'][environment]})"


def _feeling(names: Names, state: int) -> Text:
    return f"A will be {names.state[state]}", f"{names.symbols['state'][state]}(A)"


def _being(names: Names, state: int) -> Text:
    return f"A is {names.state[state]}", f"{names.symbols['state'][state]}(A)"


_EFFECT = ("operator", "verb", "attribute", "amount")
_HALVES: dict[str, tuple[tuple[str, ...], Callable[..., Text], tuple[str, ...], Callable[..., Text]]] = {
    "entity2attr": (("entity",), _kind, ("attribute", "amount"), _count),
    "attrchange2attr": (
        ("trigger_operator", "trigger_verb", "trigger_attribute"),
        _trigger,
        _EFFECT,
        _change,
    ),
    "action2env": (("action",), _act, ("environment",), _arrival),
    "action2attr": (("action",), _act, ("role", *_EFFECT), _effect_on),
    "action2state": (("action",), _act, ("role", "state"), _state_of),
    "env2state": (("environment",), _place, ("state",), _feeling),
    "state2attr": (("state",), _being, _EFFECT, _change),
}
