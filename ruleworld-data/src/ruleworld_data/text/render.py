"""Rules as text: FOL and English, rendered column-wise.

A rule's text is a premise and a conclusion, and few distinct ones exist: 960 premises ``A is a tiny cat`` serve
1.9 million rules. So each distinct half is rendered once, in Python, and joined by Arrow.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..io.schema import RULE_SCHEMA
from ..spec import OPERATORS, ROLES
from ..world import Ints, Names, RuleBlock
from .fol import COMPARED

_FEW = 2**24
"""Possible keys of a half that are worth a table of their own."""
_EFFECT = ("operator", "verb", "attribute", "amount")
_CHANGE = "{who} will {lose} {things}", "{Lose}_{Attribute}({who}, {amount})"
_ACT = "A {acts} B", "{Action}(A, B)"
_PREMISES = {
    "entity2attr": (("entity",), ("A is {a_kind}", "{Entity}(A)")),
    "attrchange2attr": (
        ("trigger_operator", "trigger_verb", "trigger_attribute"),
        ("A {loses} {thing}", "{Loses}_{Trigger}(A, 1)"),
    ),
    "action2env": (("action",), _ACT),
    "action2attr": (("action",), _ACT),
    "action2state": (("action",), _ACT),
    "env2state": (("environment",), ("A is {at_place}", "{Environment}(A)")),
    "state2attr": (("state",), ("A is {state}", "{State}(A)")),
    "place_state2attr": (
        ("environment", "state"),
        ("A is {at_place} and is {state}", "{Environment}(A) & {State}(A)"),
    ),
    "count2state": (
        ("trigger_attribute", "trigger_operator", "threshold"),
        ("A has {more} than {things}", "{More}_{Trigger}(A, {threshold})"),
    ),
}
_CONCLUSIONS = {
    "entity2attr": (("attribute", "amount"), ("it has {things}", "Has({Attribute}, {amount})")),
    "attrchange2attr": (_EFFECT, _CHANGE),
    "action2env": (("environment",), ("B will {enter_place}", "Enter(B, {Environment})")),
    "action2attr": (("role", *_EFFECT), _CHANGE),
    "action2state": (("role", "state"), ("{who} will be {state}", "{State}({who})")),
    "env2state": (("state",), ("{who} will be {state}", "{State}({who})")),
    "state2attr": (_EFFECT, _CHANGE),
    "place_state2attr": (_EFFECT, _CHANGE),
    "count2state": (("state",), ("{who} will be {state}", "{State}({who})")),
}
"""What each half of a rule of a type says: its parts, and its text in English and FOL."""


def block_table(
    block: RuleBlock,
    names: Names,
    world_id: str,
    in_paper: Ints | None = None,
    schema: pa.Schema = RULE_SCHEMA,
) -> pa.Table:
    """Render a block's rows with the columns of a schema, strings dictionary-encoded where they repeat.

    ``in_paper`` says which rows are in the paper's subset; all of them where it is not given.
    """
    premise_nl, premise_fol = _half(block, names, *_PREMISES[block.type])
    conclusion_nl, conclusion_fol = _half(block, names, *_CONCLUSIONS[block.type])
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
    for name in ("amount", "threshold"):
        there = name in block.columns
        columns[name] = pa.array(block[name].astype(np.int8)) if there else pa.nulls(len(block), pa.int8())
    return pa.table({field.name: columns[field.name] for field in schema})


def _half(
    block: RuleBlock, names: Names, key: tuple[str, ...], templates: tuple[str, str]
) -> tuple[pa.Array, pa.Array]:
    """Render one half of every rule, in English and FOL: each distinct key once."""
    radix = [int(block[name].max()) + 1 if len(block) else 1 for name in key]
    code = np.zeros(len(block), dtype=np.int64)
    for name, size in zip(key, radix, strict=True):
        code = code * size + block[name]
    if np.prod(radix, dtype=np.int64) < _FEW:
        used = np.zeros(int(np.prod(radix)), dtype=bool)
        used[code] = True
        indices, found = (np.cumsum(used, dtype=np.int32) - 1)[code], np.flatnonzero(used)
    else:
        found, inverse = np.unique(code, return_inverse=True)
        indices = inverse.astype(np.int32)
    distinct = [part.tolist() for part in np.unravel_index(found, radix)]
    # The 84,257 conclusions of the whole world come back in each of its shards.
    known, texts = names.halves.setdefault((key, templates), {}), []
    for parts in zip(*distinct, strict=True):
        if parts not in known:
            slots = _slots(names, dict(zip(key, parts, strict=True)))
            known[parts] = templates[0].format_map(slots), templates[1].format_map(slots)
        texts.append(known[parts])
    nl, fol = zip(*texts, strict=True) if texts else ((), ())
    return tuple(
        pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(text, pa.string())) for text in (nl, fol)
    )


def _slots(names: Names, parts: dict[str, int]) -> dict[str, str]:
    """Return the words for the parts of one half."""
    slots = {"who": "AB"[parts.get("role", 0)]}
    for kind in ("entity", "action", "environment", "state", "attribute"):
        if kind in parts:
            slots[kind.capitalize()] = names.symbols[kind][parts[kind]]
    if "state" in parts:
        slots["state"] = names.state[parts["state"]]
    if "entity" in parts:
        slots["a_kind"] = names.an_entity[parts["entity"]]
    elif "action" in parts:
        slots["acts"] = names.verbs[parts["action"]].third
    elif "environment" in parts:
        place = parts["environment"]
        slots |= {"at_place": names.at_place[place], "enter_place": names.entering[place].base}
    elif "threshold" in parts:
        trigger, operator = parts["trigger_attribute"], parts["trigger_operator"]
        slots |= {"more": COMPARED[operator].lower(), "More": COMPARED[operator]}
        slots |= {"things": names.things(trigger, parts["threshold"]), "threshold": str(parts["threshold"])}
        slots["Trigger"] = names.symbols["attribute"][trigger]
    elif "trigger_verb" in parts:
        operator, verb, trigger = (parts[f"trigger_{name}"] for name in ("operator", "verb", "attribute"))
        slots |= {"loses": names.lexicon[operator][verb].third, "Loses": names.changes[operator][verb]}
        slots["thing"] = names.things(trigger, 1)
        slots["Trigger"] = names.symbols["attribute"][trigger]
    elif "amount" in parts:
        slots |= {"things": names.things(parts["attribute"], parts["amount"]), "amount": str(parts["amount"])}
        if "verb" in parts:
            operator, verb = parts["operator"], parts["verb"]
            slots |= {"lose": names.lexicon[operator][verb].base, "Lose": names.changes[operator][verb]}
    return slots


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
    """Encode strings; code -1 is null."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0 if len(codes) and codes.min() < 0 else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def _constant(value: str, rows: int) -> pa.Array:
    return _coded(np.zeros(rows, dtype=np.int32), [value])
