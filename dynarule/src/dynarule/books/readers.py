"""Files as blocks, by their endings; Markdown and text, and the clauses of Prolog and Rego."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

from ..bank.sources import read_parquet
from .blocks import Block, blocks_of
from .files import decoded
from .pages import markup, read_docx, read_html
from .pdf import read_pdf
from .sheets import read_cells, read_json, read_xlsx, records

KINDS = ".md .markdown .txt .rst .html .htm .docx .pdf .csv .tsv .xlsx .jsonl .json .parquet .pl .pro .lp .rego".split()
_UNPACKED, _RATIO = 10 << 20, 100
"""Bytes to which an office document may unpack, whatever its size; else so many times its size."""
_QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""


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
        **dict.fromkeys((".html", ".htm"), lambda path: read_html(markup(path))),
        **dict.fromkeys((".csv", ".tsv"), read_cells),
        **dict.fromkeys((".jsonl", ".json"), read_json),
        **dict.fromkeys((".pl", ".pro", ".lp"), _clauses),
        ".docx": read_docx,
        ".pdf": read_pdf,
        ".xlsx": read_xlsx,
        ".rego": _bodies,
        ".parquet": lambda path: [records(read_parquet([path]).to_pylist())],
    }.get(suffix, lambda path: blocks_of(list(enumerate(decoded(path).splitlines(), 1))))
    try:
        if suffix in (".docx", ".xlsx"):
            _check_archive(path)
        return reader(path)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged file makes of a library
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "Password" in repr(error):
            first = "it is locked by a password; save it without one"
        raise ValueError(f"{path} cannot be read as {suffix}: {first}") from None


def _check_archive(path: Path) -> None:
    """Refuse what is locked, and what is small on disk and fills the memory once it is unpacked."""
    with path.open("rb") as file:
        if file.read(4) == b"\xd0\xcf\x11\xe0":
            raise ValueError("it is locked by a password or of an older format; save it anew, without one")
    with ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > max(_UNPACKED, _RATIO * path.stat().st_size):
        raise ValueError(f"it unpacks to {size >> 20:,} MiB, which no document of its size does")


def _uncommented(path: Path, comment: str) -> str:
    """Return a program without its comments, lines as they were; the sign of one may stand in quotes."""
    kept = re.compile(rf"({_QUOTED})|{comment}", re.DOTALL)
    return kept.sub(lambda match: match[1] or "\n" * match[0].count("\n"), decoded(path))


def _clauses(path: Path) -> list[Block]:
    """Return the clauses of a logic program, each to its full stop; comments and directives are left out."""
    text = _uncommented(path, r"%[^\n]*|/\*.{0,9999}?\*/")
    blocks, start = [], 0
    for part in re.finditer(rf"{_QUOTED}|(?P<end>\.(?=\s|$))|[^.'\"]+|.", text, re.DOTALL):
        if part["end"]:
            clause, line = text[start : part.end()], text.count("\n", 0, start) + 1
            line += clause[: len(clause) - len(clause.lstrip())].count("\n")
            if not clause.lstrip().startswith((":-", "?-")):
                blocks.append(Block("rule", " ".join(clause.split()), [(0, line)]))
            start = part.end()
    return blocks


def _bodies(path: Path) -> list[Block]:
    """Return the rules of a Rego policy, each to the end of its braces, with a semicolon where a line ends within."""
    blocks, open_, text, line = [], 0, "", 0
    for number, row in enumerate(_uncommented(path, r"#[^\n]*").splitlines(), 1):
        row = row.strip()
        if not row or (not open_ and re.match(r"(?:package|import)\b", row)):
            continue
        line = line if text else number
        between = "" if not text else " " if text[-1] in "{([,;" or row[0] in "})]" else "; "
        text += between + row
        bare = re.sub(_QUOTED, "", row)
        open_ += sum(bare.count(opens) - bare.count(closes) for opens, closes in ("{}", "()", "[]"))
        if open_ <= 0 and not text.endswith("else"):
            blocks.append(Block("rule", text, [(0, line)]))
            open_, text = 0, ""
    return blocks + ([Block("rule", text, [(0, line)])] if text else [])
