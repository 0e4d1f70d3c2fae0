"""Files as blocks: Markdown, text, HTML, DOCX and PDF here; tables of CSV, TSV, XLSX, JSON lines and parquet, too."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from .._lazy import need
from ..bank.sources import read_parquet
from .blocks import Block, Row, blocks_of, plain

EXTRA = "documents"
"""The extra that reads HTML, DOCX, PDF and XLSX."""
KINDS = ".md .markdown .txt .rst .html .htm .docx .pdf .csv .tsv .xlsx .jsonl .json .parquet .pl .pro .lp .rego".split()
_BLOCK_TAGS = {
    *"p li td th h1 h2 h3 h4 h5 h6 div section article blockquote dd dt body main header footer".split()
}
_LEFT_OUT = ("script", "style", "nav", "pre", "code", "head", "template", "noscript", "button", "form")
_DELIMITERS = ",;\t|"
_UNPACKED, _RATIO = 10 << 20, 100
"""Bytes to which an office document may unpack, whatever its size; else so many times its size."""


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks of a file, by its ending.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If its kind is not known, or it is not what its ending says.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FileNotFoundError(f"no document {path}")
    if suffix not in KINDS:
        raise ValueError(f"{path} is no document that can be read; expected one of {' '.join(KINDS)}")
    reader = {
        **dict.fromkeys((".html", ".htm"), lambda path: _html(_markup(path))),
        **dict.fromkeys((".csv", ".tsv"), _cells),
        **dict.fromkeys((".jsonl", ".json"), _json),
        **dict.fromkeys((".pl", ".pro", ".lp"), _clauses),
        ".docx": _docx,
        ".pdf": _pdf,
        ".xlsx": _xlsx,
        ".rego": _bodies,
        ".parquet": lambda path: [_records(read_parquet([path]).to_pylist())],
    }.get(suffix, lambda path: blocks_of(list(enumerate(decoded(path).splitlines(), 1))))
    try:
        if suffix in (".docx", ".xlsx"):
            _check_archive(path)
        return reader(path)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged file makes of a library
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be read as {suffix}: {first}") from None


def _check_archive(path: Path) -> None:
    """Refuse what is small on disk and fills the memory once it is unpacked."""
    with ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > max(_UNPACKED, _RATIO * path.stat().st_size):
        raise ValueError(f"it unpacks to {size >> 20:,} MiB, which no document of its size does")


def decoded(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or cp1252, with or without a byte order mark."""
    body = path.read_bytes()
    if body[:5] == b"%PDF-" or body[:4] == b"PK\x03\x04":
        raise ValueError("it is a PDF or an office document under the name of a text")
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((name for mark, name in marks.items() if body.startswith(mark)), "")
    if not encoding and body[1::2].count(0) > len(body) // 8:
        encoding = "utf-16-le"
    elif not encoding and body[::2].count(0) > len(body) // 8:
        encoding = "utf-16-be"
    try:
        text = body.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = body.decode("cp1252", errors="replace")
    if "\0" in text:
        raise ValueError("it is no text: it holds zero bytes")
    return text


def _markup(path: Path) -> bytes | str:
    """Return a page as text where it is UTF-8, else its bytes, of which the page says the encoding."""
    body = path.read_bytes()
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body


def _html(body: bytes | str) -> list[Block]:
    soup = need("bs4", EXTRA).BeautifulSoup(body, "html.parser")
    for tag in soup(_LEFT_OUT):
        tag.decompose()
    for tag in soup(["br", "sup"]):  # the number of a footnote is no part of a sentence
        words = tag.get_text(strip=True)
        tag.replace_with(" " if tag.name == "br" else "" if words.isdigit() else words)
    soup.smooth()
    blocks: list[Block] = []
    for tag in soup.find_all(
        ["h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "table", "dt", "dd", "div", "blockquote"]
    ):
        if tag.find_parent("table"):
            continue
        line = tag.sourceline or 0
        if tag.name == "table":
            rows = [
                (row.sourceline or 0, [plain(cell.get_text(" ")) for cell in row.find_all(["td", "th"])])
                for row in tag.find_all("tr")
            ]
            blocks.append(Block("table", "", [(0, line)], rows=[row for row in rows if any(row[1])]))
            continue
        # the words of the tag itself: those of a nested list or paragraph follow as blocks of their own
        inner = [
            child
            for child in tag.descendants
            if child.name is None and next((t for t in child.parents if t.name in _BLOCK_TAGS), None) is tag
        ]
        text = " ".join("".join(str(child) for child in inner).split())
        if text and (tag.name == "dt" or tag.name[1:].isdigit()):
            blocks.append(Block("heading", text, [(0, line)], 7 if tag.name == "dt" else int(tag.name[1])))
        elif text and tag.name == "li":
            blocks.append(Block("item", text, [(0, line)], len(tag.find_parents(["ul", "ol"])) - 1))
        elif text:
            item = tag.find_parent("li")
            kind: Any = "item" if item else "text"
            blocks.append(
                Block(kind, text, [(0, line)], len(tag.find_parents(["ul", "ol"])) - 1 if item else 0)
            )
    return blocks


def _docx(path: Path) -> list[Block]:
    with path.open("rb") as file:
        html = need("mammoth", EXTRA).convert_to_html(file).value
    blocks = _html(html)
    for number, block in enumerate(blocks, 1):  # a DOCX has paragraphs, no lines
        block.starts = [(0, number)]
    return blocks


def _pdf(path: Path) -> list[Block]:
    """Return the blocks of a PDF's text and its ruled tables; line numbers are pages. Running titles are left out."""
    pages, tables = [], []
    with need("pdfplumber", EXTRA).open(path) as pdf:
        for page in pdf.pages:
            number, ruled = page.page_number, page.find_tables()
            for table in ruled:
                rows = [(number, [" ".join((cell or "").split()) for cell in row]) for row in table.extract()]
                tables.append(Block("table", "", [(0, number)], rows=rows))
                page = page.outside_bbox(table.bbox)
            pages.append((number, (page.extract_text() or "").splitlines()))
    if not tables and not any(lines for _, lines in pages):
        raise ValueError("its pages hold no text; if they are pictures of text, run an OCR first")
    for edge in (0, -1, 0, -1):  # up to two lines above and below
        usual = Counter(re.sub(r"\d+", "#", lines[edge]) for _, lines in pages if lines)
        for _, lines in pages:
            if lines and len(pages) > 2 and usual[re.sub(r"\d+", "#", lines[edge])] > len(pages) / 2:
                del lines[edge]
    return tables + blocks_of([(number, line) for number, lines in pages for line in lines])


def _cells(path: Path) -> list[Block]:
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
        steady = {sign: min(count, default=0) for sign, count in counts.items()}
        delimiter = max(_DELIMITERS, key=lambda sign: (steady[sign], sign == usual))
    quoting = csv.QUOTE_NONE if delimiter == "\t" and '"' not in text else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    rows: list[Row] = []
    line = 1 + skipped
    for cells in reader:
        rows.append((line, [" ".join(cell.split()) for cell in cells]))
        line = reader.line_num + 1 + skipped
    return [Block("table", "", [(0, 1)], rows=[row for row in rows if any(row[1])])]


def _xlsx(path: Path) -> list[Block]:
    book = need("openpyxl", EXTRA).load_workbook(path, read_only=True, data_only=True)
    blocks = []
    for sheet in book.worksheets:
        rows = [
            (number, ["" if cell is None else plain(str(cell)) for cell in cells])
            for number, cells in enumerate(sheet.iter_rows(values_only=True), 1)
        ]
        blocks.append(Block("heading", sheet.title, [(0, 1)], 1))
        blocks.append(Block("table", "", [(0, 1)], rows=[row for row in rows if any(row[1])]))
    return blocks


def _json(path: Path) -> list[Block]:
    text = decoded(path)
    if path.suffix.lower() == ".jsonl":
        values = [
            (number, json.loads(line)) for number, line in enumerate(text.splitlines(), 1) if line.strip()
        ]
    else:
        whole = json.loads(text)
        whole = (
            next((v for v in whole.values() if isinstance(v, list)), [whole])
            if isinstance(whole, dict)
            else whole
        )
        values = list(enumerate(whole, 1))
    texts = [Block("item", plain(value), [(0, number)]) for number, value in values if isinstance(value, str)]
    return texts or [_records([value for _, value in values], [number for number, _ in values])]


def _records(values: list[Any], lines: Iterable[int] | None = None) -> Block:
    if not all(isinstance(value, dict) for value in values):
        raise ValueError("expected texts, or objects with a key such as `text` or `rule`")
    names = list(dict.fromkeys(name for value in values for name in value))
    table: list[Row] = [(0, names)]
    for line, value in zip(lines or range(len(values)), values, strict=True):
        cells = [value.get(name) for name in names]
        table.append((line, ["" if cell is None else " ".join(str(cell).split()) for cell in cells]))
    return Block("table", "", [(0, 1)], rows=table)


def _clauses(path: Path) -> list[Block]:
    """Return the clauses of a logic program, each to its full stop."""
    text = re.sub(r"%.*", "", decoded(path))
    blocks, start, line = [], 0, 1
    for stop in re.finditer(r"\.(?=\s|$)", text):
        clause = text[start : stop.end()]
        words, lead = " ".join(clause.split()), len(clause) - len(clause.lstrip())
        if words != ".":
            blocks.append(Block("rule", words, [(0, line + clause.count("\n", 0, lead))]))
        start, line = stop.end(), line + clause.count("\n")
    return blocks


def _bodies(path: Path) -> list[Block]:
    """Return the rules of a Rego policy, each to the end of its braces."""
    blocks, open_, text, line = [], 0, "", 0
    for number, row in enumerate(decoded(path).splitlines(), 1):
        row = re.sub(r"(^|\s)#.*", "", row)
        if not open_ and (not row.strip() or re.match(r"\s*(package|import)\b", row)):
            continue
        line = line if text else number
        text = f"{text} {row.strip()}".strip()
        open_ += (
            row.count("{")
            + row.count("(")
            + row.count("[")
            - row.count("}")
            - row.count(")")
            - row.count("]")
        )
        if open_ <= 0 and not text.endswith("else"):
            blocks.append(Block("rule", text, [(0, line)]))
            open_, text = 0, ""
    return blocks + ([Block("rule", text, [(0, line)])] if text else [])
