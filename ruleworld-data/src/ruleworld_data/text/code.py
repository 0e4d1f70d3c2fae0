"""Rules as one line of Python each: a third form beside logic and English, written from the logic, never executed.

``if a.attacks(b): b.place = "bridge"``. Verbs are as in the logic (`lose` and `drop` mean the same). Lines are read
back by walking the syntax tree over the few shapes that rules have.
"""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ..spec import OPERATORS, VERSIONS
from ..world.vocabulary import load_vocabulary, term
from .fol import AND, Fact, parse_atom, unreadable
from .parser import FOL_ARROW, ParsedRule, halves_fol, join_halves

LONGEST = 300
"""Characters of a line that is looked at; rules have at most about 170."""
_PLAIN = re.compile(r'[a-z0-9 ."=<>()\[\],:]+')
_NAME = re.compile(r"[a-z]+(?: [a-z]+)*")
_SUM = re.compile(r"Has\((\w), (\w+), (\d+ [+-] \d+) = (\d+)\)")
_SIGNS = dict(zip(OPERATORS, "<>", strict=True))


def code_of(table: pa.Table, version: str | None = None) -> pa.Array:
    """Write the rules, or the steps of the questions, of a table as code.

    Parameters
    ----------
    table : pyarrow.Table
        Rules (with ``fol``) or questions (with ``steps``); distinct halves are written once.
    version : str, optional
        The version whose logic is read; that of any if it is not given.

    Returns
    -------
    pyarrow.Array
        A string for each rule, or a list with a string for each step of each question.

    Raises
    ------
    ValueError
        If the logic of a row cannot be read.
    """
    if "steps" not in table.column_names:
        return pc.binary_join_element_wise(
            "if ", _half(table, "premise", version), ": ", _half(table, "conclusion", version), ""
        )
    steps = table.column("steps").combine_chunks()
    steps = steps.chunk(0) if isinstance(steps, pa.ChunkedArray) else steps
    texts = pc.struct_field(steps.flatten(), "fol").dictionary_encode()
    texts = texts.dictionary_decode().dictionary_encode() if texts.null_count else texts
    lines = pa.array([step_code(text, version) for text in texts.dictionary.to_pylist()], pa.string())
    ends = pc.cumulative_sum(pc.list_value_length(steps).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, lines.take(texts.indices))


def rule_code(fol: str, version: str | None = None) -> str:
    """Write one rule as code, from its logic: ``"Bridge(A) => Deeply_hungry(A)"``."""
    premise, conclusion = halves_fol(fol)
    return f"if {_premise(premise, version)}: {_conclusion(conclusion, version)}"


def step_code(fol: str, version: str | None = None) -> str:
    """Write one step of a proof: its inferences, and the sum that ends it, with semicolons between them."""
    lines = []
    for piece in fol.split("; "):
        if total := _SUM.fullmatch(piece):
            who, attribute, change, final = total.groups()
            lines.append(f'{who}.count["{term(attribute)}"] == {change} == {final}')
        else:
            lines.append(rule_code(piece, version))
    return "; ".join(lines)


def parse_rule_code(text: str) -> ParsedRule:
    """Parse a rule in code, such as ``'if a.kind == "tiny cat": a.count["strong horn"] = 14'``.

    Nothing is evaluated, and a line has one spelling: spaces and quotes are as `code_of` writes them.

    Raises
    ------
    ValueError
        If the text is not a rule of the grammar.
    """
    if not isinstance(text, str) or len(text) > LONGEST or not _PLAIN.fullmatch(text):
        shown = text if len(str(text)) <= LONGEST else f"{text[:LONGEST]}..."
        raise unreadable("code", shown, f"one line of at most {LONGEST} plain characters")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unreadable("code", text, "one line of Python") from None
    match tree.body:
        case [ast.If(test, [conclusion], [])]:
            rule = join_halves(_read_premise(test, text), _read_conclusion(conclusion, text), text)
        case _:
            raise unreadable("code", text, "one 'if <premise>: <conclusion>'")
    tests = test.values if isinstance(test, ast.BoolOp) else [test]
    plain = f"if {' and '.join(map(ast.unparse, tests))}: {ast.unparse(conclusion)}"
    if plain.replace("'", '"') != text:
        raise unreadable("code", text, "no other spaces, brackets and quotes than needed")
    return rule


# Writing.


@lru_cache(maxsize=100_000)
def _premise(text: str, version: str | None) -> str:
    return " and ".join(_test(atom, version) for atom in text.split(AND))


def _test(text: str, version: str | None) -> str:
    fact, who = _fact(text, version)
    if fact.kind == "act":
        return f"{who}.{_third_of()[fact.term]}({(fact.other or '').lower()})"
    if fact.kind == "change":
        return f'{who}.{_third_of()[_verb(text)]}("{fact.term}", {fact.number})'
    if fact.kind == "in":
        return f'{who}.place == "{fact.term}"'
    if fact.kind == "is":
        kind = fact.term in _kinds()
        return f'{who}.kind == "{fact.term}"' if kind else f'"{fact.term}" in {who}.states'
    sign = _SIGNS[fact.operator] if fact.operator else "=="
    return f'{who}.count["{fact.term}"] {sign} {fact.number}'


@lru_cache(maxsize=100_000)
def _conclusion(text: str, version: str | None) -> str:
    fact, who = _fact(text, version)
    if fact.kind == "in":
        return f'{who}.place = "{fact.term}"'
    if fact.kind == "is":
        return f'{who}.states.add("{fact.term}")'
    if fact.kind == "has":
        return f'{who}.count["{fact.term}"] = {fact.number}'
    if fact.kind == "change":
        return f'{who}.{_verb(text)}("{fact.term}", {fact.number})'
    raise unreadable("FOL clause", text, "a conclusion")


def _fact(text: str, version: str | None) -> tuple[Fact, str]:
    fact = parse_atom(text, version)
    return fact, fact.who.lower()


def _verb(text: str) -> str:
    return text.partition("_")[0].lower()


def _half(table: pa.Table, name: str, version: str | None) -> pa.Array:
    """Write one half of every rule."""
    if f"{name}_fol" in table.column_names:
        texts = table.column(f"{name}_fol")
    else:
        parts = pc.split_pattern(table.column("fol").cast(pa.string()), FOL_ARROW)
        texts = pc.list_element(parts, 0 if name == "premise" else 1)
    texts = (
        pa.concat_arrays(texts.cast(pa.string()).chunks) if texts.num_chunks else pa.array([], pa.string())
    )
    texts = texts.dictionary_encode()
    write = _premise if name == "premise" else _conclusion
    lines = [None if text is None else write(text, version) for text in texts.dictionary.to_pylist()]
    return pa.array(lines, pa.string()).take(texts.indices)


# Reading.


def _read_premise(node: ast.expr, text: str) -> Fact:
    match node:
        case ast.Compare(ast.Attribute(ast.Name("a"), "kind"), [ast.Eq()], [ast.Constant(kind)]):
            return Fact("entity", "A", _name(kind, text))
        case ast.Compare(ast.Attribute(ast.Name("a"), "place"), [ast.Eq()], [ast.Constant(place)]):
            return Fact("in", "A", _name(place, text))
        case ast.Compare(ast.Constant(state), [ast.In()], [ast.Attribute(ast.Name("a"), "states")]):
            return Fact("state", "A", _name(state, text))
        case ast.Compare(
            ast.Subscript(ast.Attribute(ast.Name("a"), "count"), ast.Constant(thing)),
            [(ast.Lt() | ast.Gt()) as sign],
            [ast.Constant(number)],
        ):
            operator = OPERATORS[isinstance(sign, ast.Gt)]
            return Fact("count", "A", _name(thing, text), None, operator, _number(number, text))
        case ast.Call(ast.Attribute(ast.Name("a"), verb), [ast.Name("b")], []) if verb in _actions():
            return Fact("act", "A", _actions()[verb], "B")
        case ast.Call(
            ast.Attribute(ast.Name("a"), verb), [ast.Constant(thing), ast.Constant(number)], []
        ) if verb in _changes(1):
            return Fact("change", "A", _name(thing, text), None, _changes(1)[verb], _number(number, text))
        case ast.BoolOp(ast.And(), [place, *states]) if len(states) in (1, 2):
            first, *others = (_read_premise(part, text) for part in (place, *states))
            also = tuple(fact.term for fact in others)
            if (
                first.kind == "in"
                and {fact.kind for fact in others} == {"state"}
                and len({*also}) == len(also)
            ):
                return Fact("both", "A", first.term, also=also)
    raise unreadable("code", text, "a premise such as a.attacks(b), a.place == ... or ... in a.states")


def _read_conclusion(node: ast.stmt, text: str) -> Fact:
    match node:
        case ast.Assign(
            [ast.Subscript(ast.Attribute(ast.Name("a"), "count"), ast.Constant(thing))], ast.Constant(number)
        ):
            return Fact("has", "A", _name(thing, text), number=_number(number, text))
        case ast.Assign([ast.Attribute(ast.Name("a" | "b" as who), "place")], ast.Constant(place)):
            return Fact("in", who.upper(), _name(place, text))
        case ast.Expr(
            ast.Call(
                ast.Attribute(ast.Attribute(ast.Name("a" | "b" as who), "states"), "add"),
                [ast.Constant(state)],
                [],
            )
        ):
            return Fact("state", who.upper(), _name(state, text))
        case ast.Expr(
            ast.Call(
                ast.Attribute(ast.Name("a" | "b" as who), verb),
                [ast.Constant(thing), ast.Constant(number)],
                [],
            )
        ) if verb in _changes(0):
            name = _name(thing, text)
            return Fact("change", who.upper(), name, None, _changes(0)[verb], _number(number, text))
    raise unreadable("code", text, "a conclusion such as b.place = ..., a.states.add(...) or a.lose(..., 2)")


def _name(value: object, text: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise unreadable("code", text, f"a lower-case term, not {value!r}")
    return value


def _number(value: object, text: str) -> int:
    if type(value) is not int or value >= 10**9:
        raise unreadable("code", text, f"a plain whole number below 1,000,000,000, not {value!r}")
    return value


@cache
def _kinds() -> frozenset[str]:
    return frozenset(name for version in VERSIONS for name in load_vocabulary(version).entities)


@cache
def _third_of() -> dict[str, str]:
    """Third person of each verb of the logic, by its base form."""
    words = load_vocabulary()
    return {verb.base: verb.third for verb in (*words.actions, *words.minus, *words.plus)}


@cache
def _actions() -> dict[str, str]:
    return {verb.third: verb.base for verb in load_vocabulary().actions}


@cache
def _changes(form: int) -> dict[str, str]:
    """Operator of each change verb, by its base form (0) or third person (1)."""
    verbs = load_vocabulary().change_verbs.items()
    return {(verb.base, verb.third)[form]: operator for operator, forms in verbs for verb in forms}
