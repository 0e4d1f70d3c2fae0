"""CSV, TSV, XLSX and JSON as blocks."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, time
from itertools import takewhile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from .._lazy import need
from ..bank.lexicon import WORDS
from .blocks import Block, Row, decoded, plain

_DELIMITERS = ",;\t|"
MOST_CELLS = 5_000_000
_FORMULA = re.compile(rb"</f>\s*(?:<v\s*/>|<v></v>)?\s*</c>")
"""A formula whose value is not stored."""
_LISTS = ("rules", "items", "policies", "statements", "sections", "clauses", "children")


def read_cells(path: Path) -> list[Block]:
    """Return the one table of a CSV or TSV, whose delimiter is found; "sep=;" in its first line is obeyed."""
    text = decoded(path)
    first, _, rest = text.partition("\n")
    skipped = 0
    if named := re.fullmatch(r"sep=(.)\s*", first):
        delimiter, text, skipped = named[1], rest, 1
    else:
        sample = re.sub(r'"[^"]*"', "", "\n".join(text.splitlines()[:20])).splitlines()
        counts = {sign: [line.count(sign) for line in sample if line.strip()] for sign in _DELIMITERS}
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        # how many lines have the usual number of it
        steady = {
            sign: max((found.count(n) for n in {*found} - {0}), default=0) for sign, found in counts.items()
        }
        delimiter = max(_DELIMITERS, key=lambda sign: (steady[sign], sign == usual))
    quoting = csv.QUOTE_NONE if delimiter == "\t" and '"' not in text else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    rows: list[Row] = []
    line = 1 + skipped
    for cells in reader:
        rows.append((line, [" ".join(cell.split()) for cell in cells]))
        line = reader.line_num + 1 + skipped
    width = max((len(cells) for _, cells in rows), default=0)
    notes = list(takewhile(lambda row: "".join(row[1])[:1] == "#" and len(row[1]) < width, rows))
    comments = [Block("lost", " ".join(cells), [(0, at)], mark="a comment") for at, cells in notes]
    return comments + tables_of(rows[len(notes) :])


def read_xlsx(path: Path) -> list[Block]:
    """Return the tables of all sheets, values as they are shown, merged cells filled."""
    openpyxl = need("openpyxl", "documents")
    with ZipFile(path) as archive:  # openpyxl makes an object of every cell of an area
        for name in archive.namelist():
            for area in re.findall(rb'<mergeCell ref="([A-Z0-9:]+)"', archive.read(name)):
                left, top, right, bottom = openpyxl.utils.range_boundaries(area.decode())
                _check_area((right - left + 1) * (bottom - top + 1))
        sheets = (archive.read(n) for n in archive.namelist() if n.startswith("xl/worksheets/"))
        unsaid = any(map(_FORMULA.search, sheets))
    book = openpyxl.load_workbook(path, data_only=True)
    formulas = openpyxl.load_workbook(path) if unsaid else None
    blocks: list[Block] = []
    for sheet in book.worksheets:
        begin = len(blocks)
        _check_area(sheet.max_row * sheet.max_column)
        rows = [[_value(cell) for cell in cells] for cells in sheet.iter_rows()]
        for area in sheet.merged_cells.ranges:
            for row, column in area.cells if rows else ():
                rows[row - 1][column - 1] = rows[area.min_row - 1][area.min_col - 1]
        if not re.fullmatch(r"(?:Sheet|Tabelle)\d*", sheet.title):
            blocks.append(Block("heading", sheet.title, [(0, 1)], 1))
        blocks += tables_of(list(enumerate(rows, 1)))
        for cell in (c for cells in formulas[sheet.title].iter_rows() for c in cells) if formulas else ():
            if cell.data_type == "f" and sheet[cell.coordinate].value is None:
                reason = "a formula without a value; open the file in a spreadsheet program and save it"
                blocks.append(Block("lost", f"{cell.coordinate} {cell.value}", [(0, cell.row)], mark=reason))
        for block in blocks[begin:] if len(book.worksheets) > 1 else ():
            block.part = sheet.title
    return blocks


def tables_of(rows: Iterable[Row], title: str = "") -> list[Block]:
    """Return the tables of a sheet, and as texts what stands alone in its row: titles, names of groups, notes.

    Another table begins below a blank row or a title where a row has words in a column of numbers, or other columns.
    """
    rows, blocks = list(rows), []
    width = max((len(cells) for _, cells in rows), default=0)
    alone: list[tuple[int, str]] = []
    table, blank = None, True
    for line, cells in rows:
        cells = [*cells, *[""] * (width - len(cells))]
        filled = [cell for cell in cells if cell]
        if len({*filled}) == 1 < width and (cells[0] or len(filled) == 1):
            alone.append((line, filled[0].lstrip("*† ")))
        elif filled:
            *texts, (_, named) = alone or [(line, "" if table else title)]
            blocks += [Block("text", text, [(0, at)]) for at, text in texts]
            if table is None or alone or blank:
                names = table is None or _is_names(cells, table.rows, bool(blank and alone))
                if table is None or alone or names:
                    above: list[Row] = [] if names or table is None else table.rows[:1]
                    table = Block("table", named, [(0, line)], rows=above)
                    blocks.append(table)
            table.rows.append((line, cells))
            alone, blank = [], False
        elif not blank:  # what stands below a table and above a blank row is a note
            blocks += [Block("text", text, [(0, at)]) for at, text in alone]
            alone, blank = [], True
    return blocks + [Block("text", text, [(0, at)]) for at, text in alone]


def _is_names(cells: Sequence[str], rows: Sequence[Row], titled: bool) -> bool:
    """Whether a row has words in a column that has had numbers; below a title, whether it has other columns."""
    columns = zip(*(more for _, more in rows[1:]), strict=False)
    return any(
        cell and not re.search(r"\d", cell) and all(re.search(r"\d", value) for value in values if value)
        for cell, values in zip(cells, columns, strict=False)
    ) or (titled and list(map(bool, cells)) != list(map(bool, rows[0][1])))


def _check_area(cells: int) -> None:
    if cells > MOST_CELLS:
        raise ValueError(
            f"a sheet, or a merged part of it, has {cells:,} cells; expected {MOST_CELLS:,} at most"
        )


def _value(cell: Any) -> str:
    """Return a cell as its sheet shows it: "5%", "2025-01-31"."""
    value, shown = cell.value, cell.number_format or ""
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    if isinstance(value, int | float) and not isinstance(value, bool):
        sign = "%" if "%" in shown else next((f" {sign}" for sign in "€$£" if sign in shown), "")
        value, places = value * 100 if sign == "%" else value, re.search(r"0\.(0+)", shown)
        value = (f"{value:.{len(places[1])}f}" if places else f"{value:.10g}") + sign
    return "" if value is None else plain(str(value))


def read_json(path: Path) -> list[Block]:
    """Return the texts and records of a JSON or YAML file, or of JSON lines."""
    text = decoded(path)
    if path.suffix.lower() in (".yaml", ".yml"):
        parts = [*need("yaml", "documents").safe_load_all(text)]
        return [block for part in parts for block in _parts(part)]
    if path.suffix.lower() == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return _parts([json.loads(line) for _, line in lines], [number for number, _ in lines])
    return _parts(json.loads(text))


def _parts(value: Any, lines: Sequence[int] = (), depth: int = 1) -> list[Block]:
    """Return the blocks of a JSON value: texts, records, and lists of them below their titles."""
    if isinstance(value, dict):
        named = (value.get(name) for name in ("title", "name", "section", "topic"))
        titles = [name for name in named if name and isinstance(name, str)]
        blocks = [Block("heading", title, [(0, 1)], depth) for title in titles[:1]]
        nested = [v for v in value.values() if isinstance(v, list | dict)]
        return blocks + [block for v in nested for block in _parts(v, (), depth + 1)]
    if not isinstance(value, list):
        return []
    lines = lines or range(1, len(value) + 1)
    if all(isinstance(v, str) for v in value):
        return [Block("item", plain(v), [(0, n)]) for v, n in zip(value, lines, strict=True)]
    if not all(isinstance(v, dict) for v in value):
        raise ValueError("expected texts, or objects with a key such as `text` or `rule`")
    rows = list(zip(lines, value, strict=True))
    lists = [held[name] for held in value for name in _LISTS if isinstance(held.get(name), list)]
    if any(isinstance(held[0], str | dict) for held in filter(None, lists)):
        apart = (
            [records([v], [n])] if not any(map(v.get, _LISTS)) else _parts(v, (), depth) for n, v in rows
        )
        return [block for blocks in apart for block in blocks]
    return [records(value, lines)]


def records(values: list[Any], lines: Iterable[int] | None = None) -> Block:
    """Return objects as a table, a row each."""
    names = list(dict.fromkeys(name for value in values for name in value))
    table: list[Row] = [(0, names)]
    if "conditions" in names and all(isinstance(value.get("event"), dict) for value in values):
        names, table = ["conditions", "event"], [(0, ["if", "then"])]  # more says how an engine runs it
    for line, value in zip(lines or range(len(values)), values, strict=True):
        table.append((line, [_flat(value.get(name)) for name in names]))
    return Block("table", "", [(0, 1)], rows=table)


def _flat(value: Any) -> str:
    """Return a value of a record as words: a list with commas, an object as "a is 1 and b is 2"."""
    if isinstance(value, dict):
        parts = value.get("all") or value.get("any")
        if isinstance(parts, list) and len(value) == 1:
            return f"({(' and ' if 'all' in value else ' or ').join(map(_flat, parts))})"
        if {"fact", "operator", "value"} <= value.keys():
            how = WORDS["operators"].get(str(value["operator"]), str(value["operator"]))
            return f"{value['fact']}{str(value.get('path', '')).lstrip('$')} {how} {_flat(value['value'])}"
        said = {n: WORDS["bounds"].get(n.strip("$"), f"{n} is".replace("_", " ")) for n in value}
        return " and ".join(f"{said[name]} {_flat(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    return "" if value is None else " ".join(str(value).split())
