"""Strict JSON, flat YAML and plain text, and how what breaks their rules is refused.

JSON has no NaN, no number out of range and no key twice. YAML is a flat mapping of scalars: no anchors, aliases,
tags, nesting or second document, and every scalar is text until a model says what it is.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_DEPTH = 32
MAX_DIGITS = 15
"""Digits of a whole number: below 2**53, so that every reader sees the same one."""
MAX_QUOTED = 80
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Problem:
    """One reason for refusal.

    Attributes
    ----------
    file : str
        Name of the file in the submission's folder, or of the folder.
    what : str
        What is wrong.
    fix : str
        What to do about it.
    line : int or None
        1-based line, or row of a table.
    value : str or None
        The offending value (`quote`).
    """

    file: str
    what: str
    fix: str
    line: int | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        value = "" if self.value is None else f", got {self.value}"
        return f"{place}: {self.what}{value}; {self.fix}"


class Refused(ValueError):
    """A submission was refused, for one or more reasons."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def quote(value: Any) -> str:
    """Return a value as one short line of printable ASCII, safe for a terminal."""
    text = ascii(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text):,} characters)"


def refuse_if(problems: Iterable[Problem]) -> None:
    """Raise `Refused` with the first `MAX_PROBLEMS` problems, if there are any; the rest is not looked for."""
    found = list(islice(problems, MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[-1] = Problem(found[-1].file, f"more than {MAX_PROBLEMS} problems", "fix these first")
    if found:
        raise Refused(*found)


def reason(error: ErrorDetails) -> str:
    """Return pydantic's message in the form "must be ..."."""
    return re.sub(r"^\w+ should", "must", error["msg"]).replace(" after validation", "")


def location(error: ErrorDetails) -> str:
    """Return the dotted path of a field that a model refused, in printable ASCII."""
    path = ".".join(str(part) for part in error["loc"] if part != "[key]")
    return path if re.fullmatch(r"[\w.@-]{0,80}", path, re.ASCII) else quote(path)


def model_problems(error: ValidationError, file: str, fix: str, line: int | None = None) -> Iterable[Problem]:
    """Yield a problem for every field that a model refused."""
    for item in error.errors(include_url=False):
        yield Problem(file, f"{location(item) or 'content'} {reason(item)}", fix, line, quote(item["input"]))


def utf8(body: bytes, file: str, line: int | None = None) -> str:
    """Return bytes as text; `Refused` if they are not UTF-8, begin with a byte order mark or hold a NUL."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        place = line or body.count(b"\n", 0, error.start) + 1
        value = f"byte 0x{body[error.start]:02x}"
        raise Refused(Problem(file, "is not UTF-8", "save it as UTF-8", place, value)) from None
    for mark, name in (("\ufeff", "a byte order mark"), ("\x00", "a NUL character")):
        if mark in text:
            place = line or text.count("\n", 0, text.index(mark)) + 1
            raise Refused(Problem(file, f"contains {name}", "save it as plain UTF-8", place))
    return text


def strict_json(body: bytes, file: str, line: int | None = None) -> Any:
    """Return the value of a JSON text.

    Parameters
    ----------
    body : bytes
    file : str
        For messages.
    line : int, optional
        Line number, if the text is one line of a file.

    Raises
    ------
    Refused
        If it is not UTF-8, not JSON, nested too deep, has a key twice, NaN, infinity, a whole number of more than 15
        digits, or half a surrogate pair.
    """
    text = utf8(body, file, line)

    def refuse(what: str, fix: str, token: str) -> NoReturn:
        place = line or text.count("\n", 0, max(text.rfind(token), 0)) + 1
        raise Refused(Problem(file, what, fix, place, quote(token)))

    def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                refuse("a key occurs twice", "keep one", json.dumps(key, ensure_ascii=False))
            found[key] = value
        return found

    def integer(token: str) -> int:
        if len(token.lstrip("-")) > MAX_DIGITS:
            refuse("the number is too large", f"at most {MAX_DIGITS} digits", token)
        return int(token)

    def real(token: str) -> float:
        value = float(token)
        if not math.isfinite(value):
            refuse("is not a finite number", "write a finite number, or leave the field out", token)
        return value

    try:
        value = json.loads(
            text, object_pairs_hook=unique, parse_constant=real, parse_int=integer, parse_float=real
        )
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        what = f"is not JSON ({error.msg})"
        raise Refused(Problem(file, what, "write it with a JSON library", line or error.lineno)) from None
    except RecursionError:
        raise Refused(Problem(file, "is nested too deep", f"at most {MAX_DEPTH} levels", line)) from None
    except UnicodeEncodeError:
        raise Refused(Problem(file, "has half a surrogate pair", "write whole characters", line)) from None
    return value


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested; a loop, since depth is what it guards against."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth


class Scalar(NamedTuple):
    """A scalar of a YAML file and its 1-based line."""

    value: str
    line: int


def flat_yaml(body: bytes, file: str) -> dict[str, Scalar]:
    """Return the entries of a flat YAML mapping, every value as text.

    Raises
    ------
    Refused
        If it is anything but one mapping of scalars without anchors, aliases, tags and repeated keys.
    """
    import yaml

    text = utf8(body, file)
    flat = ("is not a flat list of `key: text`", "one key per line")
    forbidden = {
        yaml.AnchorToken: ("has an anchor or alias", "write the value out"),
        yaml.AliasToken: ("has an anchor or alias", "write the value out"),
        yaml.TagToken: ("has a tag", "write plain text after the colon"),
        yaml.DirectiveToken: flat,
        yaml.BlockEntryToken: flat,
        yaml.FlowSequenceStartToken: flat,
        yaml.FlowMappingStartToken: flat,
    }
    once: list[type] = [yaml.DocumentStartToken, yaml.BlockMappingStartToken]
    try:
        # Tokens first: composing nodes is recursive, and forgets anchors.
        for token in yaml.scan(text, Loader=yaml.BaseLoader):
            refused = forbidden.get(type(token))
            if type(token) in once:
                once.remove(type(token))
            elif isinstance(token, yaml.DocumentStartToken | yaml.BlockMappingStartToken):
                refused = flat
            if refused:
                raise Refused(Problem(file, *refused, token.start_mark.line + 1))
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"is not YAML ({quote(getattr(error, 'problem', None) or 'unreadable')})"
        raise Refused(
            Problem(file, what, "one `key: text` per line", mark.line + 1 if mark else None)
        ) from None
    if not isinstance(node, yaml.MappingNode | None):
        raise Refused(Problem(file, *flat))
    found: dict[str, Scalar] = {}
    for key, value in node.value if node else ():
        line = key.start_mark.line + 1
        if key.value in found:
            raise Refused(Problem(file, "a key occurs twice", "keep one", line, quote(key.value)))
        found[key.value] = Scalar(value.value, line)
    return found


def plain_text(text: str, longest: int) -> str:
    """Return a string that is one line of plain text: a validator for pydantic.

    Not allowed: HTML's brackets, control characters, invisible ones and those that turn the direction of writing,
    more than two accents on a letter, blanks at the ends.
    """

    def refuse(what: str) -> NoReturn:
        raise PydanticCustomError("plain_text", what)

    if not text or len(text) > longest:
        refuse(f"must have 1 to {longest} characters")
    if text != text.strip() or text != unicodedata.normalize("NFC", text):
        refuse("must have no blanks at its ends, and composed characters (NFC)")
    if not text.isprintable():
        refuse("must be one line without control or invisible characters")
    if "<" in text or ">" in text:
        refuse("must be plain text without < and >")
    if "mmm" in "".join("m" if unicodedata.combining(letter) else "." for letter in text):
        refuse("must have at most two accents on a letter")
    return text
