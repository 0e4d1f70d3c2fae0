"""Rules as text: FOL and English, rendered column-wise.

A rule's text is a premise and a conclusion, and few distinct ones exist: 960 premises ``A is a tiny cat`` serve
1.9 million rules. So each distinct half is rendered once, in Python, and joined by Arrow.
"""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .._lazy import read_toml
from ..io.schema import RULE_SCHEMA
from ..spec import OPERATORS, ROLES, VERSION, VERSIONS
from ..world import Ints, Names, RuleBlock, World, article, with_object
from .fol import AND, COMPARED

_FEW = 2**24
"""Possible keys of a half that are worth a table of their own."""
_PASSIVE = ("{lost}", "lost"), ("{acted}", "acted")
_OVER = "under", "over"
JOINS = ("If ", ", ", "."), ("Whenever ", ", ", "."), ("Suppose that ", "; then ", "."), ("", " once ", ".")
"""How premise and conclusion make a sentence; in the last one the conclusion stands first."""
MENTIONS = (
    (("A", "A"), ("B", "B")),
    (("a creature", "that creature"), ("another creature", "the other creature")),
    (("a being", "the being"), ("some other being", "that other being")),
    (("X", "X"), ("Y", "Y")),
)
"""What the two individuals of a rule are called at first, and again."""

Half = tuple[tuple[str, ...], tuple[str, ...], str]
"""What one half of the rules of a type says: its parts, and its text in English and FOL."""


@cache
def _halves(half: str, version: str) -> dict[str, Half]:
    """Return one half of every rule type, as ``frames.toml`` has it."""
    texts = read_toml(__package__, "frames.toml")
    says = texts[half] | texts.get(f"{half} of {version}", {})
    return {
        name: (tuple(parts.split()), tuple(texts["frames"][frames]), fol)
        for name, (parts, frames, fol) in says.items()
    }


def block_table(
    block: RuleBlock,
    world: World,
    in_paper: Ints | None = None,
    schema: pa.Schema = RULE_SCHEMA,
    version: str = VERSION,
) -> pa.Table:
    """Render a block's rows with the columns of a schema, strings dictionary-encoded where they repeat.

    ``in_paper`` says which rows are in the paper's subset; all of them where it is not given.
    """
    worded = block.columns | _wording(block, world.forms(block), version)
    (premise_nl, premise_fol), (conclusion_nl, conclusion_fol) = (
        _half(worded, world.names, half, *_halves(half, version)[block.type])
        for half in ("premise", "conclusion")
    )
    nl = _sentences(premise_nl, conclusion_nl, worded.get("join"))
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
        "world_id": _constant(world.world_id, len(block)),
    }
    names = world.names
    lists = {name: getattr(names, name) for name in ("entity", "action", "environment", "state", "attribute")}
    lists |= {"role": ROLES, "operator": OPERATORS}
    lists |= {"trigger_attribute": names.attribute, "trigger_operator": OPERATORS}
    for name, values in lists.items():
        if name in block.columns:
            columns[name] = _coded(block[name], list(values))
        else:
            columns[name] = pa.nulls(len(block), pa.dictionary(pa.int32(), pa.string()))
    for name in ("amount", "threshold"):
        there = name in block.columns
        columns[name] = pa.array(block[name].astype(np.int8)) if there else pa.nulls(len(block), pa.int8())
    return pa.table({field.name: columns[field.name] for field in schema})


def _wording(block: RuleBlock, forms: dict[str, Ints], version: str) -> dict[str, Ints]:
    """Return the columns of forms, with the frames that do not go together changed."""
    if not forms:
        return {}
    forms = dict(forms)
    forms["late"] = forms["join"] == len(JOINS) - 1
    # "another creature ... once a creature chases it" would name them in no order, and of "a creature chases another
    # creature, that creature" nobody knows which: data 1.1 has the latter
    if block.type.startswith("action"):
        letters = np.array([0, 0, 3, 3])[forms["mention"]]
        unclear = forms["late"] | (version != VERSIONS[0])
        forms["mention"] = np.where(unclear, letters, forms["mention"])
    if block.type == "entity2attr":  # "it" cannot stand before what it is
        forms["conclusion_frame"] = np.maximum(forms["conclusion_frame"], forms["late"])
    return forms


def _half(
    columns: dict[str, Ints],
    names: Names,
    half: str,
    parts: tuple[str, ...],
    frames: tuple[str, ...],
    formula: str,
) -> tuple[pa.Array, pa.Array]:
    """Render one half of every rule, in English and FOL: each distinct key once."""
    worded = (f"{half}_frame", "mention", "late", *(f"{name}_form" for name in parts))
    key = (*parts, *(name for name in worded if name in columns))
    rows = len(columns[key[0]])
    # -1 in a column: an exception for any kind, or in any place.
    first = [int(name in ("entity", "environment") and rows and columns[name].min() < 0) for name in key]
    radix = [int(columns[name].max()) + 1 + low if rows else 1 for name, low in zip(key, first, strict=True)]
    code = np.zeros(rows, dtype=np.int64)
    for name, size, low in zip(key, radix, first, strict=True):
        code = code * size + columns[name] + low
    if np.prod(radix, dtype=np.float64) < _FEW:
        used = np.zeros(int(np.prod(radix)), dtype=bool)
        used[code] = True
        indices, distinct_codes = (np.cumsum(used, dtype=np.int32) - 1)[code], np.flatnonzero(used)
    else:
        distinct_codes, inverse = np.unique(code, return_inverse=True)
        indices = inverse.astype(np.int32)
    parted = zip(np.unravel_index(distinct_codes, radix), first, strict=True)
    distinct = [(part - low).tolist() for part, low in parted]
    # The 84,257 conclusions of the whole world come back in each of its shards.
    known, rendered = names.halves.setdefault((key, frames, formula), {}), []
    for values in zip(*distinct, strict=True):
        if values not in known:
            slots = _slots(names, dict(zip(key, values, strict=True)), half)
            known[values] = _frame(frames, slots), formula.format_map(slots)
        rendered.append(known[values])
    nl, fol = zip(*rendered, strict=True) if rendered else ((), ())
    return tuple(
        pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(text, pa.string())) for text in (nl, fol)
    )


def _frame(frames: tuple[str, ...], slots: dict[str, str]) -> str:
    """Fill the frame that was drawn; the usual one where it is passive and the verb has no passive."""
    frame = frames[int(slots["frame"])]
    if any(slot in frame and not slots[name] for slot, name in _PASSIVE):
        frame = frames[0]
    return frame.format_map(slots)


def _slots(names: Names, parts: dict[str, int], half: str) -> dict[str, str]:
    """Return the words for the parts of one half."""

    def form(name: str) -> int:
        return parts.get(f"{name}_form", 0)

    again = (half == "premise") == bool(parts.get("late", 0))
    individuals = [mention[again] for mention in MENTIONS[parts.get("mention", 0)]]
    role = parts.get("role", 0)
    slots = {"frame": str(parts.get(f"{half}_frame", 0)), "role": "AB"[role], "it": "it"}
    slots |= {"A": individuals[0], "B": individuals[1], "who": individuals[role]}
    for kind in ("entity", "action", "environment", "state", "attribute"):
        if kind in parts:
            slots[kind.capitalize()] = names.symbols[kind][parts[kind]]
    if "state" in parts:
        slots["state"] = names.mood(parts["state"], form("state"))
    if {"entity", "state"} <= parts.keys():
        guards = {}
        if parts["entity"] >= 0:
            kind = names.kind(parts["entity"], form("entity"))
            guards[slots["Entity"]] = f"{article(kind)} {kind}"
        if parts["environment"] >= 0:
            guards[slots["Environment"]] = names.at(parts["environment"], form("environment"))
        *more, slots["guard"] = guards.values()
        slots["general"] = " and is ".join([slots["state"], *more])
        slots["Guards"] = "".join(f"{AND}{symbol}(A)" for symbol in guards)
    elif "entity" in parts:
        creature = names.kind(parts["entity"], form("entity"))
        slots["a_kind"] = f"{article(creature)} {creature}"
    elif "action" in parts:
        act = names.verb(parts["action"], form("action"))
        slots["act_B"] = with_object(act.base, individuals[1])
        slots["acts_B"] = with_object(act.third, individuals[1])
        slots["acted"] = act.participle.replace(" ~", "")
    elif "environment" in parts:
        place = parts["environment"], form("environment")
        slots |= {"at_place": names.at(*place), "enter_place": names.enter(*place).base}
        if half == "conclusion":
            slots["who"] = individuals[1]  # only a target enters a place
    elif "threshold" in parts:
        trigger, operator = parts["trigger_attribute"], parts["trigger_operator"]
        slots |= {"more": COMPARED[operator].lower(), "More": COMPARED[operator], "over": _OVER[operator]}
        slots["things"] = names.things(trigger, parts["threshold"], form("trigger_attribute"))
        slots["threshold"] = str(parts["threshold"])
        slots["Trigger"] = names.symbols["attribute"][trigger]
    elif "trigger_verb" in parts:
        operator, verb, trigger = (parts[f"trigger_{name}"] for name in ("operator", "verb", "attribute"))
        lose = names.change(operator, verb, form("trigger_verb"))
        slots |= {"lose": lose.base, "loses": lose.third, "lost": lose.participle}
        slots["Loses"] = names.changes[operator][verb]
        slots["thing"] = names.things(trigger, 1, form("trigger_attribute"))
        slots["Trigger"] = names.symbols["attribute"][trigger]
    elif "amount" in parts:
        slots |= {"things": names.things(parts["attribute"], parts["amount"], form("attribute"))}
        slots |= {"amount": str(parts["amount"]), "instead": " instead" if parts["amount"] else ""}
        if "verb" in parts:
            operator, verb = parts["operator"], parts["verb"]
            lose = names.change(operator, verb, form("verb"))
            slots |= {"lose": lose.base, "losing": lose.gerund, "lost": lose.participle}
            slots["Lose"] = names.changes[operator][verb]
    return slots


def _sentences(premise: pa.Array, conclusion: pa.Array, join: Ints | None) -> pa.Array:
    """Join halves to sentences."""
    if join is None:
        start, middle, end = JOINS[0]
        return _join(start, premise, middle, conclusion, end)
    sentences = []
    for start, middle, end in JOINS:
        first, second = (premise, conclusion) if start else (conclusion, premise)
        sentences.append(_join(start, first, middle, second, end))
    sentences[-1] = pc.binary_join_element_wise(
        pc.utf8_upper(pc.utf8_slice_codeunits(sentences[-1], 0, 1)),
        pc.utf8_slice_codeunits(sentences[-1], 1),
        "",
    )
    return pc.choose(pa.array(join), *sentences)


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
