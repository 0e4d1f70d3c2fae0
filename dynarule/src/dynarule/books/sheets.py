"""CSV, TSV and XLSX as blocks."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, time
from itertools import takewhile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from .._lazy import need
from ..bank.lexicon import LISTS, patterns
from .blocks import Block, Row, decoded, plain
from .tables import tested

_DELIMITERS = ",;\t|"
MOST_CELLS = 5_000_000
_COMPARED = patterns("tables").compared
_DIGIT, _LABELLED = re.compile(r"\d"), re.compile(r":\t+[^\t:]+(?:\t|$)|: ")
_FORMULA = re.compile(rb"</f>\s*(?:<v\s*/>|<v></v>)?\s*</c>")
"""A formula whose value is not stored."""


def read_cells(path: Path) -> list[Block]:
    """Return the one table of a CSV or TSV, whose delimiter is found; "sep=;" in its first line is obeyed."""
    text = decoded(path)
    first, _, rest = text.partition("\n")
    skipped = 0
    if named := re.fullmatch(r"sep=(.)\s*", first):
        delimiter, text, skipped = named[1], rest, 1
    else:
        sample = re.sub(r'"[^"]*"', "", "\n".join(text.splitlines()[:20])).splitlines()
        counts = {sign: Counter(line.count(sign) for line in sample if sign in line) for sign in _DELIMITERS}
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        # of which the most lines have the usual number
        delimiter = max(_DELIMITERS, key=lambda sign: (max(counts[sign].values(), default=0), sign == usual))
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
        for area in sheet.merged_cells.ranges if rows else ():
            if area.min_col > sheet.min_column or sum(map(bool, rows[area.min_row - 1])) > 1:  # no title
                for row, column in area.cells:
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
    rows = _turned(_of_engine([(line, [*cells, *[""] * (width - len(cells))]) for line, cells in rows]))
    width = max((len(cells) for _, cells in rows), default=0)
    several = [cells for _, cells in rows if len({*cells} - {""}) > 1]
    if lead := next((i for i in range(width) if any(cells[i] for cells in several if i < len(cells))), 0):
        return tables_of(((n, cells[lead:] if any(cells[lead:]) else cells) for n, cells in rows), title)
    for at in range(2, width - 2):  # behind a blank column another table may stand, which begins with words
        gap, left, right = ([row[i] if i < len(row) else "" for row in several] for i in (at, 0, at + 1))
        apart = all(len({*side} - {""}) == len(several) > 2 for side in (left, right))
        if apart and not any(gap) and not any(map(_DIGIT.search, right)):
            beside = tables_of((number, cells[at + 1 :]) for number, cells in rows)
            return [*tables_of([(number, cells[:at]) for number, cells in rows], title), *beside]
    alone: list[tuple[int, str]] = []
    table, blank = None, True
    for line, cells in rows:
        cells = [*cells, *[""] * (width - len(cells))]
        filled = [cell for cell in cells if cell]
        ruled = table is not None and bool(cells[0]) and table.rows[0][1][0].lower() in LISTS["rule_columns"]
        if len(filled) == 1 < width and table and not (cells[0] or blank or alone):  # a cell's next line
            at, upper = cells.index(filled[0]), table.rows[-1][1]
            upper[at] = f"{upper[at]} {filled[0]}".strip()
        elif len(filled) == 1 < width and not ruled:
            alone += [(line, re.sub(r"^\d{1,2}[.)] +", "", filled[0]))]
        elif filled:
            *texts, (_, named) = alone or [(line, "" if table else title)]
            blocks += [Block("text", text, [(0, at)]) for at, text in texts]
            # "Owner:", "Ann", with more blanks than what stands below
            first: list[str] = table.rows[0][1] if table else []
            labelled = _LABELLED.search("\t".join(first)) or (blank and table and len(table.rows) == 1)
            if table and first.count("") > cells.count("") and labelled:
                said = " ".join(cell for _, row in table.rows for cell in row if cell)
                table.kind, table.text, table.mark, table = "lost", said, "about the document", None
            body: list[Row] = table.rows[1:] if table and (alone or blank) else []
            columns = [(cells[i], [row[i] for _, row in body if row[i]]) for i in range(1, width) if cells[i]]
            # words in all columns that have had numbers
            numbers = [c for c, cs in columns if body and all(map(_DIGIT.search, cs))]
            names = bool(numbers) and not any(map(_DIGIT.search, numbers))
            if table is None or alone or names:
                table = Block("table", named, [(0, line)], rows=table.rows[:1] if table and not names else [])
                blocks.append(table)
            table.rows.append((line, cells))
            alone, blank = [], False
        elif not blank:  # what stands below a table and above a blank row is a note
            blocks += [Block("text", text, [(0, at)]) for at, text in alone]
            alone, blank = [], True
    return blocks + [Block("text", text, [(0, at)]) for at, text in alone]


def _of_engine(rows: list[Row]) -> list[Row]:
    """Call "if" the tests of a rule engine's table, "CONDITION | ACTION" above objects, tests with "$1", and names."""
    for at, (line, kinds) in enumerate(rows[:-4]):
        (_, tests), (_, names) = rows[at + 2 : at + 4]
        if "ACTION" in kinds and "$" in "".join(tests):
            end = next((i for i in range(at + 4, len(rows)) if not any(rows[i][1])), len(rows))
            whats = [(i, kind == "ACTION") for i, kind in enumerate(kinds) if kind in LISTS["engine_columns"]]
            header = [(names[i] or tests[i]) if done else "if" for i, done in whats]
            body = [
                (n, [row[i] if done else _said(tests[i] or names[i], row[i]) for i, done in whats])
                for n, row in rows[at + 4 : end]
            ]
            titles = [(n, [*{*row} - {""}]) for n, row in rows[:at] if len({*row} - {""}) == 1]
            return [*titles, (line, header), *body, *_of_engine(rows[end:])]
    return rows


def _said(test: str, cell: str) -> str:
    """Return a test as words, with the values of its cell: "amount >= $1" and "5" is "amount is at least 5"."""
    values = [cell, *(cell.split(",") if "$2" in test else [cell])]
    test = test if "$" in test else f"{test} == $1"
    test = re.sub(r"\$(?:(\d)|param)", lambda match: values[int(match[1] or 0)].strip(), test)
    test = _COMPARED.sub(lambda match: f"{tested(match[1], match[2], '')} ", test).replace('"', "")
    return re.sub(r"\s*(?:,|&&)\s+", " and ", test) if cell else ""


def _turned(rows: list[Row]) -> list[Row]:
    """Turn a textbook's table, rows below "Conditions" and then below "Actions", and a column for each rule."""
    alone = ["" if any(cells[1:]) else "".join(cells).lower().rstrip(" :s") for _, cells in rows]
    if not {"condition", "action"} <= {*alone}:
        return rows
    first, last = alone.index("condition"), alone.index("action")
    end = next((i for i in range(last, len(rows)) if not any(rows[i][1])), len(rows))
    lines = [[f"If {name} is", *cells] for _, (name, *cells) in rows[first + 1 : last]]
    lines += [cells for _, cells in rows[last + 1 : end]]
    turned = [(rows[first][0], [*column]) for column in zip(*lines, strict=True) if any(column)]
    return [*rows[: max(0, first - 1)], *turned, *rows[end:]]


def _check_area(cells: int) -> None:
    if cells > MOST_CELLS:
        raise ValueError(f"a sheet or a part of one has {cells:,} cells; expected {MOST_CELLS:,} at most")


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
