"""Strict JSON and plain YAML: one reading of every byte, or none.

JSON has no NaN, no number out of range and no key twice. YAML is a flat list of ``key: text``: no anchors, aliases,
tags, nesting or second document, and every scalar is text until we say what it is.
"""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any, NamedTuple

from .refusals import Problem, Refused, shown

MAX_DEPTH = 32
MAX_DIGITS = 15
"""Digits of a whole number: below 2**53, so that every reader sees the same one."""


class Text(NamedTuple):
    """A scalar of a YAML file and its 1-based line."""

    value: str
    line: int


def utf8(body: bytes, file: str, line: int | None = None) -> str:
    """Return bytes as text; `Refused` if they are not UTF-8, begin with a byte order mark or hold a NUL."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        place = body.count(b"\n", 0, error.start) + 1 if line is None else line
        raise Refused(
            Problem(file, "is not UTF-8", "save it as UTF-8", place, f"byte 0x{body[error.start]:02x}")
        ) from None
    for mark, name in (("\ufeff", "a byte order mark"), ("\x00", "a NUL character")):
        if mark in text:
            place = text.count("\n", 0, text.index(mark)) + 1 if line is None else line
            raise Refused(Problem(file, f"holds {name}", "save it as plain UTF-8", place))
    return text


def strict_json(body: bytes, file: str, line: int | None = None) -> Any:
    """Return the value of a JSON text.

    Parameters
    ----------
    body : bytes
    file : str
        For messages.
    line : int, optional
        Line that the text is, if it is one line of a file.

    Raises
    ------
    Refused
        If it is not UTF-8, not JSON, nested too deep, has a key twice, NaN, infinity, a whole number of more than 15
        digits, or half a surrogate pair.
    """
    text = utf8(body, file, line)

    def refuse(what: str, mend: str, token: str, last: bool = False) -> Refused:
        at = text.rfind(token) if last else text.find(token)
        return Refused(Problem(file, what, mend, line or text.count("\n", 0, max(at, 0)) + 1, shown(token)))

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                raise refuse("a key comes twice", "keep one", json.dumps(key, ensure_ascii=False), last=True)
            found[key] = value
        return found

    def constant(token: str) -> float:
        raise refuse("is no number of JSON", "write a finite number, or leave the field out", token)

    def integer(token: str) -> int:
        if len(token.lstrip("-")) > MAX_DIGITS:
            raise refuse("the number is too large", f"at most {MAX_DIGITS} digits", token)
        return int(token)

    def real(token: str) -> float:
        value = float(token)
        if not math.isfinite(value):
            raise refuse("the number is too large", "write a finite number", token)
        return value

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer, parse_float=real
        )
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise Refused(
            Problem(file, f"is not JSON ({error.msg})", "write it with a JSON library", line or error.lineno)
        ) from None
    except RecursionError:
        raise Refused(Problem(file, "is nested too deep", "no field needs that", line)) from None
    except UnicodeEncodeError:
        raise Refused(Problem(file, "holds half a surrogate pair", "write whole characters", line)) from None
    return value


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested; a loop, since depth is what it guards against."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth


def plain_yaml(body: bytes, file: str) -> dict[str, Text]:
    """Return the entries of a flat YAML mapping, every value as text.

    Raises
    ------
    Refused
        If it is anything but one mapping of scalars without anchors, aliases, tags and repeated keys.
    """
    import yaml

    text = utf8(body, file)
    try:
        found: dict[str, Text] = {}
        key: Text | None = None
        depth = documents = 0
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            tag = getattr(event, "tag", None)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise Refused(Problem(file, "has an anchor or alias", "write the value out", line))
            if tag:
                raise Refused(
                    Problem(file, "has a tag", "write plain text after the colon", line, shown(tag))
                )
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            if documents > 1 or depth > 1 or isinstance(event, yaml.SequenceStartEvent):
                raise Refused(Problem(file, "is not a flat list of `key: text`", "one key per line", line))
            if not isinstance(event, yaml.ScalarEvent):
                continue
            scalar = Text(event.value, line)
            if not depth:
                raise Refused(Problem(file, "is not a list of `key: text`", "one key per line", line))
            if key is None:
                key = scalar
                if key.value in found:
                    raise Refused(Problem(file, "a key comes twice", "keep one", line, shown(key.value)))
            else:
                found[key.value], key = scalar, None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or "unreadable"
        raise Refused(
            Problem(
                file,
                f"is not YAML ({shown(why)})",
                "one `key: text` per line",
                mark.line + 1 if mark else None,
            )
        ) from None
    return found


def plain_text(text: Any, longest: int) -> str | None:
    """Say what keeps a string from being one line of plain text, None if nothing does.

    Not allowed: HTML's brackets, control characters, invisible ones and those that turn the direction of writing,
    more than two accents on a letter, blanks at the ends.
    """
    if not isinstance(text, str):
        return "must be text"
    if not text or len(text) > longest:
        return f"must have 1 to {longest} characters"
    if text != text.strip() or text != unicodedata.normalize("NFC", text):
        return "must have no blanks at its ends, and composed characters (NFC)"
    if not text.isprintable():
        return "must be one line without control or invisible characters"
    if "<" in text or ">" in text:
        return "must be plain text without < and >"
    marks = "".join("m" if unicodedata.combining(letter) else "." for letter in text)
    return "must have at most two accents on a letter" if "mmm" in marks else None
