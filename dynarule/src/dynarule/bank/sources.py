"""Rules from the user's own lists, files and tables: a text, a conclusion and an id each."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from .._lazy import need
from .clauses import parts_of
from .lexicon import LISTS

LONGEST = 8_000
"""Bytes of a rule at most: a rule is a sentence or a paragraph, and an encoder's time grows with the square."""
_TEXT_COLUMNS = ("nl", "rule", "text")
HALF_PAIR = re.compile("[\ud800-\udfff]")
"""What no UTF-8 can hold, and so no tokenizer reads: JSON and a terminal without UTF-8 can give it."""
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Python calls printable, and of which nothing is seen."""
_FORMATS = {"%PDF-": "a PDF", "PK\x03\x04": "a ZIP or an office document", "PAR1": "parquet", "{\\rtf": "RTF"}
"""What files begin with that are called ``.txt`` and have no text."""
_NO_TEXT = LISTS["no_list_of_rules"]


class Rules(NamedTuple):
    """Checked rules, before they are embedded; as many texts as conclusions and ids.

    ``premises`` are those that were given, None where they are to be found; empty, if none was.
    """

    texts: list[str]
    conclusions: list[str]
    ids: list[str]
    premises: Sequence[str | None] = ()


def listed(what: str, values: Iterable[Any]) -> list[Any]:
    """Return values as a list; a ValueError for a single text, a mapping and what has no order."""
    if isinstance(values, str | bytes):
        raise ValueError(
            f"{what} must be a list of texts, got the one text {values[:60]!r}; give [{values[:60]!r}]"
        )
    if not isinstance(values, Iterable) or isinstance(values, Mapping | set | frozenset):
        raise ValueError(f"{what} must be a list of texts, got a {type(values).__name__}")
    return list(values)


def check_rules(ids: Sequence[str], texts: Sequence[str]) -> None:
    """Raise ValueError if a text is empty, no text, too long or comes twice, or an id comes twice."""
    if len(texts) != len(ids):
        raise ValueError(f"{len(ids)} ids but {len(texts)} texts")
    first: dict[str, str] = {}
    seen: set[str] = set()
    for name, text in zip(ids, texts, strict=True):
        if not isinstance(name, str) or not isinstance(text, str) or not same_form(text):
            raise ValueError(f"rule {name!r} has no text, got {text!r}")
        if not same_form(name):
            raise ValueError(f"the rule {text[:60]!r} has a blank id; give it one that tells it from others")
        if "\0" in name + text or HALF_PAIR.search(name + text):
            raise ValueError(f"rule {name!r} holds a zero byte or half a surrogate pair, got {text[:60]!r}")
        if len(text) > LONGEST // 4 and len(text.encode(errors="replace")) > LONGEST:
            raise ValueError(
                f"rule {name!r} has {len(text):,} characters; a rule is one sentence or paragraph, {LONGEST:,} bytes "
                "at most: split it"
            )
        form, named = same_form(text), same_form(name)
        if named in seen:
            raise ValueError(f"rule id {name!r} comes twice; ids tell rules apart in traces")
        if form in first:
            raise ValueError(f"rules {first[form]!r} and {name!r} are the same text, {text!r}; keep one")
        first[form] = name
        seen.add(named)


def same_form(text: str) -> str:
    """Return what texts share that are the same to a reader: Unicode's NFC, without what is not seen, of blanks one."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    seen = (sign for sign in _IGNORED.sub("", text) if sign.isprintable() or sign.isspace())
    return " ".join(normalize("NFC", "".join(seen)).split())


def make_rules(
    texts: Sequence[str], conclusions: Sequence[str | None] | None = None, ids: Sequence[object] | None = None
) -> Rules:
    """Check rules; conclusions that are None are found in the rules, ids are numbers where there are none."""
    texts = listed("rules", texts)
    given_ids = list(range(len(texts))) if ids is None else listed("ids", ids)
    if None in given_ids:
        raise ValueError(f"rule {given_ids.index(None)}, counted from 0, has no id; give all one, or none")
    names = [str(i) for i in given_ids]
    given = [None] * len(texts) if conclusions is None else listed("conclusions", conclusions)
    if not len(texts) == len(given) == len(names):
        raise ValueError(f"{len(texts)} rules, {len(given)} conclusions, {len(names)} ids; give one each")
    check_rules(names, texts)
    made = [parts_of(text)[1] if c is None else c for text, c in zip(texts, given, strict=True)]
    for name, conclusion in zip(names, made, strict=True):
        if not isinstance(conclusion, str) or not same_form(conclusion):
            raise ValueError(f"rule {name!r} has an empty conclusion; leave it out to find it in the rule")
    return Rules(texts, made, names)


def read_rules(path: str | PathLike[str]) -> Rules:
    """Read rules from a file, by its ending.

    ``.parquet``, ``.csv`` and ``.tsv`` are tables, the first line of the latter names the columns: ``nl``, ``rule`` or
    ``text``; ``conclusion_<text>`` or ``conclusion``, else the conclusions are found in the rules; ``id``. In a column
    ``premise`` of a .csv or .tsv, what is not empty counts. Any other file is text with one rule per line. Blank lines
    are skipped; where no column has ids, they are line numbers from 1 (rows of parquet: from 0).

    Parameters
    ----------
    path : path
        The file; of parquet also several, as ``rules/train-*.parquet``.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    ValueError
        If it holds no rules, or is not as described.
    """
    path = Path(path)
    suffix, expected = path.suffix.lower(), "expected .parquet, .csv, .tsv, or text with one rule per line"
    several = sorted(path.parent.glob(path.name)) if suffix == ".parquet" else []
    if not (several or path.is_file()):
        raise FileNotFoundError(f"no rule file {path}; {expected}")
    if suffix in _NO_TEXT:
        raise ValueError(f"{path} is no list of rules; {expected}: dynarule book new BOOK --from {path}")
    if suffix == ".parquet":
        # a table of millions of rules has other columns
        usual = "id", *_TEXT_COLUMNS
        table = read_parquet(
            several, lambda name: name.lower() in usual or name.lower().startswith("conclusion")
        ).to_pydict()
    elif suffix in (".csv", ".tsv"):
        table = _read_cells(path)
    else:
        lines = [(number, line.strip()) for number, line in enumerate(read_text(path).split("\n"), 1)]
        table = {"rule": [line for _, line in lines if line], "id": [n for n, line in lines if line]}

    def column(*usual: str) -> str | None:
        return next((name for known in usual for name in table if name.lower() == known), None)

    text = column(*_TEXT_COLUMNS)
    if text is None:
        raise ValueError(
            f"no column of {path} is called {', '.join(_TEXT_COLUMNS)}, only {list(table)} (the first line of a .csv "
            f"or .tsv names them, such as rule,conclusion): dynarule book new BOOK --from {path} --text COLUMN"
        )
    if not table[text]:
        raise ValueError(f"{path} holds no rules; expected one per line")
    others = column(f"conclusion_{text}", "conclusion"), column("id")
    conclusions, ids = (None if name is None else table[name] for name in others)
    premise = column("premise") if suffix != ".parquet" else None
    if premise is None:
        return make_rules(table[text], conclusions, ids)
    # a person edits these cells, and clears those that are to be found anew
    if conclusions is not None:
        conclusions = [cell or None for cell in conclusions]
    premises = [cell or None for cell in table[premise]]
    return make_rules(table[text], conclusions, ids)._replace(premises=premises)


def read_text(path: Path) -> str:
    """Read a file of UTF-8; a ValueError if it is none, or of another format under the name of a text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    other = next((what for start, what in _FORMATS.items() if text.startswith(start)), "")
    if other or "\0" in text:
        raise ValueError(f"{path} is {other or 'no text: it holds zero bytes'}; save it as UTF-8 text")
    return text


def read_parquet(paths: Sequence[Path], keep: Callable[[str], object] = bool) -> Any:
    """Read files of one schema as a pyarrow table, of the columns whose names are to be kept, or all if none is."""
    pa, pq = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    try:
        names = pq.read_schema(paths[0]).names
        return pq.read_table([*paths], columns=[name for name in names if keep(name)] or None)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{paths[0]} is not a readable parquet file: {error}") from None


def _read_cells(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a CSV or TSV, among them ``id``: its own, or line numbers."""
    commas = path.suffix.lower() == ".csv"
    layout: dict[str, Any] = {"delimiter": ","} if commas else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True, **layout)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise ValueError(f"{path} line {reader.line_num} is no CSV: {error}") from None
    (_, header), *rows = [(line, row) for line, row in rows if any(row)] or [(0, [])]
    if len({*header}) < len(header):
        raise ValueError(f"{path} has two columns of one name: {header}; give each its own")
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path} line {line} has {len(row)} columns, expected {len(header)}: {header}"
                + ("; put a text with commas in quotes" if commas else "")
            )
    table: dict[str, list[Any]] = {"id": [line for line, _ in rows]}
    if any(name.lower() == "id" for name in header):
        table = {}
    return table | {name: [row[i] for _, row in rows] for i, name in enumerate(header)}
