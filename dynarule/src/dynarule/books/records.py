"""JSON, JSON lines and YAML as blocks: sentences, records as tables, and values behind the keys that lead to them."""

import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from .._lazy import need
from ..bank.lexicon import LISTS, WORDS, has_verb
from .blocks import Block, Row, decoded, is_whole, plain
from .tables import PREMISE_NAMES, TEXT_NAMES, bound, phrase, tested

_NEAR = 100_000  # characters in which the next key stands
_PARTS = frozenset().union(*(LISTS[f"{name}_columns"] for name in ("if", "case", "then"))) | LISTS["said"]
_SEVERAL = ("all", "and", "any", "or")
_TEST = LISTS["field_columns"], LISTS["operator_columns"], frozenset(("value", "values"))  # of a condition


def read_json(path: Path) -> list[Block]:
    """Return the texts, records and values of a JSON or YAML file, or of JSON lines."""
    text, lines = decoded(path), path.suffix.lower() == ".jsonl"
    if path.suffix.lower() in (".yaml", ".yml"):
        parts = _yaml(text)
    else:
        texts = [line for line in text.splitlines() if line.strip()] if lines else [text]
        values = [json.loads(each, object_pairs_hook=_gathered) for each in texts]
        parts = [values] if lines else values
    starts, at = [match.end() for match in re.finditer("\n", text)], 0

    def line_of(words: str, ends: str = r"[\"']?[ \t]*:") -> int:
        nonlocal at  # keys and texts are found one after another
        said = "|".join(map(re.escape, (words, json.dumps(words)[1:-1])))
        found = re.compile(f"(?:{said}){ends}").search(text, at, at + _NEAR)
        at = found.end() if found else at
        return bisect(starts, at) + 1

    return [block for part in parts for block in _parts(part, line_of)]


def _gathered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, in which a key that comes twice has a list of its values: none of them is lost."""
    count = Counter(name for name, _ in pairs)
    several = {name for name in count if count[name] > 1}
    return dict(pairs) | {name: [held for key, held in pairs if key == name] for name in several}


def _yaml(text: str) -> list[Any]:
    """Return the parts of a YAML file; a key that comes twice has a list of its values, as in JSON."""
    yaml = need("yaml", "documents")

    def gathered(loader: Any, node: Any, deep: bool = False) -> dict[str, Any]:
        own = node.value
        loader.flatten_mapping(node)  # puts what is merged before them
        names = {key.value for key, _ in own}
        node.value = [pair for pair in node.value if pair in own or pair[0].value not in names]
        return _gathered([(str(key.value), loader.construct_object(held, True)) for key, held in node.value])

    return [*yaml.load_all(text, type("Loader", (yaml.SafeLoader,), {"construct_mapping": gathered}))]


def _parts(value: Any, line_of: Callable[..., int], path: tuple[str, ...] = ()) -> Iterator[Block]:
    """Yield the blocks of a value: texts, records as tables, and single values behind the keys that lead to them."""
    if isinstance(value, list):
        for kind, group in groupby(value, key=_kind_of):
            rows = list(group)
            table = kind == "values" and set.intersection(*map(set, rows)) and len(set().union(*rows)) > 1
            if table or kind[:4] == "rule":
                yield records(rows, [line_of(str(next(iter(row), ""))) for row in rows])
                continue
            for row in rows:
                if kind in ("switched off", "declares a field"):
                    yield Block("lost", _flat(row), [(0, line_of(str(next(iter(row)))))], mark=kind)
                elif kind == "text":
                    at, text = [(0, line_of(row.strip()[:30].partition("\n")[0], ""))], plain(row)
                    named = path and not is_whole(text)  # "pets, allowed: cats"
                    text = f"{', '.join(path)}: {text}" if named else text
                    yield Block("rule" if named else "item", text, at)
                else:
                    yield from _parts(row, line_of, path)
    elif _alike(value):  # "E01": its meaning and its remedy, "E02": ...
        rows = [{path[-1] if path else "case": name} | held for name, held in value.items()]
        yield records(rows, [line_of(str(name)) for name in value])
    elif _kind_of(value)[:4] == "rule":
        yield records([value], [line_of(str(next(iter(value))))])
    elif isinstance(value, dict):
        noted = LISTS["metadata"].intersection(path)
        for name, held in value.items():
            key, at = str(name).replace("_", " "), [(0, line_of(str(name)))]
            if _kind_of(held) == "switched off":
                yield Block("lost", f"{key}: {_flat(held)}", at, mark="switched off")
                continue
            about = key.lower().replace(" ", "") in LISTS["about"] | LISTS["settings"]
            titles = LISTS["titles"] if has_verb(str(held)) else LISTS["titles"] | LISTS["rule_columns"]
            if key.lower() in titles and isinstance(held, str):
                yield Block("heading", held, at, 2 * len(path) + 1)
            elif not isinstance(held, list | dict) and (about or (noted and not has_verb(str(held)))):
                yield Block("lost", f"{key}: {_flat(held)}", at, mark="about the document")
            elif key.lower() in LISTS["holders"]:
                yield from _parts(held, line_of, path)
            else:
                yield Block("heading", key, at, 2 * len(path) + 2)
                yield from _parts(held, line_of, (*path, key))
                yield Block("heading", "", at, 2 * len(path) + 2)
    elif text := _flat(value):
        alone = is_whole(text) or not path
        kind = "rule" if not alone else "text" if isinstance(value, str) or path else "lost"
        yield Block(kind, text if alone else f"{', '.join(path)}: {text}", [(0, line_of("", ""))])  # type: ignore[arg-type]


def _kind_of(value: Any) -> str:
    """Return for an object with a sentence, or a condition and what follows, "rule" and its parts; kinds of others."""
    if not isinstance(value, dict):
        return "text" if isinstance(value, str) else ""
    names = {phrase(str(name)).lower(): held for name, held in value.items()}
    if names.get("enabled") is False:
        return "switched off"
    if "type" in names and LISTS["declares"].issuperset(names):
        return "declares a field"
    parts = names.keys() - LISTS["titles"] - LISTS["about"]
    tests = any(map(_is_test, value.values()))
    if not tests and any(isinstance(names.get(name), list) for name in LISTS["holders"]):
        return "holder"
    said = tests or any(
        isinstance(h, str) and has_verb(h) for n, h in names.items() if {*n.split()} <= TEXT_NAMES
    )
    if decides := sorted(parts & _PARTS) if len(parts) > 1 and not said else []:
        return f"rule {decides}"
    listed = (text for held in value.values() if isinstance(held, list) for text in held)
    if any(isinstance(text, str) and is_whole(text) and has_verb(text) for text in listed):
        return "holder"  # as a row it would be one rule of all
    return "rule" if said else "values"


def _is_test(value: Any) -> bool:
    """Whether a value is a condition: a field, an operator and a value, or all or any of several."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_test, value))
    how = isinstance(value, dict) and len(value) == 1 and next(iter(value))
    return how in _SEVERAL or (isinstance(value, dict) and all(names & value.keys() for names in _TEST))


def _alike(value: Any) -> bool:
    """Whether an object holds several of one form, which are not built of others and not all sentences."""
    rows = [*value.values()] if isinstance(value, dict) else []
    if len(rows) < 2 or not {_kind_of(row)[:4] for row in rows} <= {"valu", "rule"}:
        return False
    cells = [cell for row in rows for cell in row.values()]
    built = any(isinstance(cell, dict) for cell in cells) or all(is_whole(_flat(cell)) for cell in cells)
    return not built and len(set.intersection(*map(set, rows))) > 1


def records(values: list[Any], lines: Iterable[int] | None = None) -> Block:
    """Return objects as a table, a row each."""
    names = list(dict.fromkeys(name for value in values for name in value))
    keys = LISTS["match_keys"] if PREMISE_NAMES.isdisjoint(names) else frozenset()
    held = [(name, each) for value in values if keys for name, each in value.items()]
    tests = {
        name for name, each in held if _is_test(each) or (name in keys and isinstance(each, dict | list))
    }
    done = {
        name for name, each in held if tests and name in LISTS["do_keys"] and isinstance(each, dict | list)
    }
    keys = keys if tests else frozenset()
    if tests or any(isinstance(value.get(name), dict) for value in values for name in _PARTS):
        said = LISTS["titles"] | LISTS["about"] if tests else set()
        names = [n for n in names if not ({*phrase(n).lower().split()} <= TEXT_NAMES or n.lower() in said)]
    header = ["if" if name in tests | keys else "then" if name in done else name for name in names]
    numbers = list(lines or range(len(values)))
    table: list[Row] = [(next(iter(numbers), 0), header)]
    for line, value in zip(numbers, values, strict=True):
        table.append((line, [_flat(value.get(name)) for name in names]))
    return Block("table", "", [(0, 1)], rows=table)


def _flat(value: Any) -> str:
    """Return a value of a record as words: a list with commas, an object as "a is 1 and b is 2"."""
    if isinstance(value, dict):
        how, parts = next(iter(value.items()), ("", None))
        if isinstance(parts, list) and len(value) == 1 and how in _SEVERAL:
            return f"({(' and ' if how in ('all', 'and') else ' or ').join(map(_flat, parts))})"
        if len(test := [value[name] for names in _TEST for name in names if name in value]) == 3:
            return tested(f"{test[0]}{str(value.get('path', '')).lstrip('$')}", str(test[1]), _flat(test[2]))
        # "<": [{"var": "age"}, 6]
        if how in WORDS["operators"] and isinstance(parts, list) and len(parts) == 2:
            field, limit = (_flat(part.get("var") if isinstance(part, dict) else part) for part in parts)
            return tested(field, how, limit)
        said = {n: WORDS["bounds"].get(n.strip("$"), f"{n} is".replace("_", " ")) for n in value}
        texts = {name: _flat(held) for name, held in value.items() if held != "*"}  # any
        return " and ".join(f"{said[name]} {bound(text) or text}" for name, text in texts.items())
    if isinstance(value, list):
        return (" and " if value and isinstance(value[0], dict) else ", ").join(map(_flat, value))
    said = {True: "yes", False: "no", None: ""}
    return said[value] if value is None or isinstance(value, bool) else " ".join(str(value).split())
