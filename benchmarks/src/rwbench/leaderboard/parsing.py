"""Strict JSON and plain text from strangers, and how what breaks the rules is refused."""

from __future__ import annotations

import difflib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MAX_DIGITS = 15
"""Digits of a whole number: below 2**53, so that every reader sees the same one."""
MAX_QUOTED = 80
MAX_PROBLEMS = 20
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols that print as nothing, though `str.isprintable` lets them pass."""

UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    NotImplementedError,
    OSError,
)
"""What reading a stranger's files can raise, though every check is meant to raise `Refused`."""


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
    listed = list(islice(problems, MAX_PROBLEMS + 1))
    if len(listed) > MAX_PROBLEMS:
        listed[-1] = Problem(listed[-1].file, f"more than {MAX_PROBLEMS} problems", "fix these first")
    if listed:
        raise Refused(*listed)


def quote(value: Any) -> str:
    """Return a value as one short line of printable ASCII, safe for a terminal."""
    text = ascii(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text):,} characters)"


def model_problems(
    error: ValidationError, file: str, model: type[BaseModel], line: int | None = None
) -> Iterator[Problem]:
    """Yield a problem for every field that a model refused; the field's description says what to write."""
    fields = model.model_fields
    for item in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in item["loc"] if part != "[key]") or "content"
        path = path if re.fullmatch(r"[\w.@-]{1,80}", path, re.ASCII) else quote(path)
        top = str(item["loc"][0]) if item["loc"] else ""
        value: str | None = quote(item["input"])
        if item["type"] == "missing":
            what, value = "is missing", None
        elif item["type"] == "extra_forbidden":
            what = "is an unknown field"
        else:
            said = item["msg"].removeprefix("Value error, ").replace(" after validation", "")
            what = ascii(re.sub(r"^\w+ should", "must", said))[1:-1][:200]
        if top in fields:
            fix = f"{top} is: {fields[top].description}"
        else:
            close = difflib.get_close_matches(top, fields, n=1)
            fix = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(fields)}"
        yield Problem(file, f"{path} {what}", fix, line, value)


def strict_json(body: bytes, file: str, line: int | None = None) -> Any:
    """Return the value of a JSON text, which may be one line of a file.

    `Refused` if it is not UTF-8, not JSON, nested too deep, has a key twice, NaN, infinity, a whole number of more than
    15 digits, or half a surrogate pair.
    """

    def bad(what: str, fix: str, token: str) -> NoReturn:
        refuse(file, what, fix, line, quote(token))

    def whole(token: str) -> int:
        if len(token) > MAX_DIGITS:
            bad(f"a whole number has more than {MAX_DIGITS} digits", "use smaller numbers", token)
        return int(token)

    def finite(token: str) -> float:
        if not math.isfinite(float(token)):
            bad("a number is out of range", "use finite numbers", token)
        return float(token)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            keys = [key for key, _ in pairs]
            bad("a key occurs twice", "keep one", next(key for key in keys if keys.count(key) > 1))
        return value

    try:
        text = body.decode("utf-8")
        if text.startswith("\ufeff") or "\0" in text:
            refuse(file, "contains a byte order mark or a NUL character", "save it as plain UTF-8", line)
        value = json.loads(
            text,
            parse_int=whole,
            parse_float=finite,
            parse_constant=lambda token: bad("NaN and infinity are no JSON", "use finite numbers", token),
            object_pairs_hook=unique,
        )
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        place = line or body.count(b"\n", 0, error.start) + 1
        refuse(file, "is not UTF-8", "save it as UTF-8", place, f"byte 0x{body[error.start]:02x}")
    except UnicodeEncodeError:
        refuse(file, "has half a surrogate pair", "write whole characters", line)
    except json.JSONDecodeError as error:
        refuse(
            file, f"is not JSON ({error.msg})", "write JSON", line or error.lineno, quote(text[error.pos :])
        )
    except RecursionError:
        refuse(file, "is nested too deep", "write a few levels", line)


def plain_text(text: str, longest: int) -> str:
    """Return a string that is one line of plain text: a validator for pydantic."""
    accents = "".join("m" if unicodedata.combining(letter) else "." for letter in text[: longest + 1])
    for wrong, must in (
        (not text or len(text) > longest, f"have 1 to {longest} characters"),
        (text != text.strip(), "have no blanks at its ends"),
        (
            not text.isprintable() or INVISIBLE.search(text),
            "be one line without control or invisible characters",
        ),
        ("<" in text or ">" in text, "be plain text without < and >"),
        ("mmm" in accents, "have at most two accents on a letter"),
        (not unicodedata.is_normalized("NFC", text), "have composed characters (NFC)"),
        # one compatibility character can spell a whole sentence
        (
            len(unicodedata.normalize("NFKC", text[:longest])) > longest,
            f"have 1 to {longest} characters spelt out",
        ),
    ):
        if wrong:
            raise PydanticCustomError("plain_text", "must " + must)
    return text
