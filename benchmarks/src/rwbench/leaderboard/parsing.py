"""Strict JSON, flat YAML and plain text, and how what breaks their rules is refused.

JSON has no NaN, no number out of range and no key twice. YAML is one ``key: text`` a line.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MAX_DEPTH = 32
MAX_DIGITS = 15
"""Digits of a whole number: below 2**53, so that every reader sees the same one."""
MAX_QUOTED = 80
MAX_PROBLEMS = 20
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols that print as nothing; Python calls them printable."""


BROKEN = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    NotImplementedError,
    OSError,
)
"""What reading a stranger's files can end in, though every check is meant to end in `Refused`."""


@dataclass(frozen=True)
class Problem:
    """One reason for refusal.

    Attributes
    ----------
    file : str
        Name of the file in the submission's folder, or of the folder.
    what, fix : str
        What is wrong, and what to do about it.
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


def refuse(file: str, what: str, fix: str, line: int | None = None, value: str | None = None) -> NoReturn:
    """Raise `Refused` with one `Problem`."""
    raise Refused(Problem(file, what, fix, line, value))


def refuse_if(problems: Iterable[Problem]) -> None:
    """Raise `Refused` with the first `MAX_PROBLEMS` problems, if there are any; the rest is not looked for."""
    found = list(islice(problems, MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[-1] = Problem(found[-1].file, f"more than {MAX_PROBLEMS} problems", "fix these first")
    if found:
        raise Refused(*found)


def quote(value: Any) -> str:
    """Return a value as one short line of printable ASCII, safe for a terminal."""
    text = ascii(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text):,} characters)"


def model_problems(
    error: ValidationError,
    file: str,
    fix: str = "",
    model: type[BaseModel] | None = None,
    lines: Mapping[str, int] | int | None = None,
) -> Iterator[Problem]:
    """Yield a problem for every field that a model refused.

    ``fix`` is by default the field's description in ``model``; ``lines`` is the line of each field, or of all.
    """
    fields = model.model_fields if model else {}
    for item in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in item["loc"] if part != "[key]") or "content"
        path = path if re.fullmatch(r"[\w.@-]{1,80}", path, re.ASCII) else quote(path)
        top = str(item["loc"][0]) if item["loc"] else ""
        line = lines.get(top) if isinstance(lines, Mapping) else lines
        if item["type"] == "missing":
            what, value = "is missing", None
        elif item["type"] == "extra_forbidden":
            what, value = "is an unknown field", quote(item["input"])
        else:
            said = re.sub(
                r"^Value error, |^\w+ should", lambda m: m[0].endswith("should") * "must", item["msg"]
            )
            what, value = ascii(said)[1:-1][:200], quote(item["input"])
        if top in fields:
            advice = f"{top} is: {fields[top].description}"
        else:
            near = difflib.get_close_matches(top, fields, n=1)
            advice = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(fields)}"
        yield Problem(file, f"{path} {what.replace(' after validation', '')}", fix or advice, line, value)


def utf8(body: bytes, file: str, line: int | None = None) -> str:
    """Return bytes as text; `Refused` if they are not UTF-8, begin with a byte order mark or hold a NUL."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        place = line or body.count(b"\n", 0, error.start) + 1
        refuse(file, "is not UTF-8", "save it as UTF-8", place, f"byte 0x{body[error.start]:02x}")
    for mark, name, at in (("\ufeff", "a byte order mark", text[:1]), ("\0", "a NUL character", text)):
        if mark in at:
            place = line or text.count("\n", 0, text.index(mark)) + 1
            refuse(file, f"contains {name}", "save it as plain UTF-8", place)
    return text


def strict_json(body: bytes, file: str, line: int | None = None) -> Any:
    """Return the value of a JSON text, which may be one line of a file.

    `Refused` if it is not UTF-8, not JSON, nested too deep, has a key twice, NaN, infinity, a whole number of more than
    15 digits, or half a surrogate pair.
    """
    text = utf8(body, file, line)

    def bad(what: str, fix: str, token: str) -> NoReturn:
        refuse(file, what, fix, line or text.count("\n", 0, max(text.rfind(token), 0)) + 1, quote(token))

    def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            bad("a key occurs twice", "keep one", json.dumps(twice, ensure_ascii=False))
        return found

    def integer(token: str) -> int:
        if len(token.lstrip("-")) > MAX_DIGITS:
            bad("the number is too large", f"at most {MAX_DIGITS} digits", token)
        return int(token)

    def real(token: str) -> float:
        if not math.isfinite(value := float(token)):
            bad("is not a finite number", "write a finite number, or leave the field out", token)
        return value

    try:
        value = json.loads(
            text, object_pairs_hook=unique, parse_constant=real, parse_int=integer, parse_float=real
        )
        deep = _depth(value) > MAX_DEPTH
    except json.JSONDecodeError as error:
        refuse(file, f"is not JSON ({error.msg})", "write it with a JSON library", line or error.lineno)
    except RecursionError:
        deep = True
    if deep:
        refuse(file, "is nested too deep", f"at most {MAX_DEPTH} levels", line)
    if re.search(r"\\u[dD][89a-fA-F]", text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            refuse(file, "has half a surrogate pair", "write whole characters", line)
    return value


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested; a loop, since depth is what it guards against."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth


def flat_yaml(body: bytes, file: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the texts of a YAML file of ``key: text`` lines by key, and the lines by key.

    Each line is read by itself, so there is no nesting, no alias and no second document to guard against. `Refused` if
    one is anything else, or a key occurs twice.
    """
    import yaml

    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(utf8(body, file).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            entry = yaml.load(line, Loader=yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError):
            entry = None
        key, value = (
            next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (None, None)
        )
        if not isinstance(key, str) or not isinstance(value, str):
            refuse(
                file,
                "is not a flat list of `key: text`",
                "one per line, quoted if need be",
                number,
                quote(line),
            )
        if key in found:
            refuse(file, "a key occurs twice", "keep one", number, quote(key))
        found[key], lines[key] = value, number
    return found, lines


def plain_text(text: str, longest: int) -> str:
    """Return a string that is one line of plain text: a validator for pydantic."""
    marks = "".join("m" if unicodedata.combining(letter) else "." for letter in text[: longest + 1])
    for wrong, what in (
        (not text or len(text) > longest, f"have 1 to {longest} characters"),
        (text != text.strip(), "have no blanks at its ends"),
        (
            not text.isprintable() or UNSEEN.search(text),
            "be one line without control or invisible characters",
        ),
        ("<" in text or ">" in text, "be plain text without < and >"),
        ("mmm" in marks, "have at most two accents on a letter"),
        (not unicodedata.is_normalized("NFC", text), "have composed characters (NFC)"),
        (
            len(unicodedata.normalize("NFKC", text[:longest])) > longest,
            f"have 1 to {longest} characters spelt out",
        ),
    ):
        if wrong:
            raise PydanticCustomError("plain_text", "must " + what)
    return text
