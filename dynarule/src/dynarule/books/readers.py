"""Files as rules: read as blocks by their endings, those of programs here, then as rules of one book."""

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from ..bank.lexicon import DIALECTS
from ..bank.sources import read_parquet
from .blocks import Block, decoded
from .document import Document
from .markdown import DEFINED, UNBARRED, blocks_of
from .notes import with_notes
from .pages import read_docx, read_html, read_mail
from .pdf import read_pdf
from .records import read_json, records
from .rules import BookReading, DocumentRule
from .sheets import read_cells, read_xlsx

# Bytes to which an office document may unpack, whatever its size; else so many times its size.
_UNPACKED, _RATIO = 10 << 20, 100


def read_documents(
    paths: Iterable[str | PathLike[str]] | str | PathLike[str], **columns: Any
) -> list[DocumentRule]:
    """Read the rules of documents: Markdown, text, HTML, DOCX, PDF, e-mails, tables, JSON lines, Prolog, Rego.

    Headings become context, bullets are joined with what leads in to them, wrapped lines with each other; code, tables
    of contents and page numbers are left out; a rule that comes twice is kept once. A file that cannot be read is a
    warning, the others are read.

    Parameters
    ----------
    paths : path or iterable of path
        Files, or folders whose files are read.
    **columns
        Of tables: ``text``, the column of rules, or ``outcomes``, a list of columns.

    Raises
    ------
    ValueError
        If there is no rule in any of them.
    """
    reading = read_book(paths, **columns)
    for problem in reading.problems:
        warnings.warn(problem, stacklevel=2)
    return reading.rules


def read_book(paths: Iterable[str | PathLike[str]] | str | PathLike[str], **columns: Any) -> BookReading:
    """Read documents as `read_documents` does; return what was left out, too."""
    reading = BookReading()
    listed = [Path(paths)] if isinstance(paths, str | PathLike) else [Path(path) for path in paths]
    files = [file for path in listed for file in (sorted(path.rglob("*.*")) if path.is_dir() else [path])]
    if not files:
        raise ValueError("no document given; give files or folders")
    first: dict[str, DocumentRule] = {}
    names = Counter(path.name for path in files)
    for path in files:
        if path.is_symlink() and path not in listed:
            reading.problems.append(f"{path} is a link, and is not followed from a folder; give it by itself")
            continue
        source = path.name if names[path.name] == 1 else path.as_posix()
        try:
            blocks = read_blocks(path)
            rules = Document(source, reading, columns).read(blocks)
        except (ValueError, OSError) as error:
            reading.problems.append(str(error))
            continue
        titles = {title for rule in rules for title in rule.context}
        reading.left_out += [
            (f"{source}:{block.line_at(0)}", block.text, "a title with no rule below it")
            for block in blocks
            if block.kind == "heading" and block.text not in {*titles, ""}
        ]
        if not rules:
            reading.problems.append(f"{path} holds no rules: no whole sentence and no table of them")
        for rule in rules:
            key = " ".join(rule.text.casefold().rstrip(".").split())
            if key in first:
                first[key].also.append(rule.place)
            else:
                first[key] = rule
                reading.rules.append(rule)
    if not reading.rules:
        raise ValueError("no rules found: " + "; ".join(reading.problems))
    return reading


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks of a file, by its ending; an error says what it is not: there, of a known kind, or whole."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise FileNotFoundError(f"no document {path}")
    if suffix not in _READERS:
        raise ValueError(f"{path} is no document that can be read; expected one of {' '.join(_READERS)}")
    try:
        if suffix in (".docx", ".xlsx"):
            _check_archive(path)
        return with_notes(_READERS[suffix](path))
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged file makes of a library
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "Password" in repr(error):
            first = "it is locked by a password; save it without one"
        raise ValueError(f"{path} cannot be read as {suffix}: {first}") from None


def read_text(path: Path) -> list[Block]:
    """Return the blocks of Markdown or plain text, or of what is like MediaWiki, AsciiDoc or LaTeX, read as HTML."""
    text = decoded(path) + "\n"
    told = () if path.suffix.lower() in (".md", ".markdown", ".rst") else DIALECTS.values()
    marks = next((m for m in told if re.search(m["mark"], text, re.MULTILINE)), None)
    if marks is None:
        text = DEFINED.sub(r"\1\n: ", text)  # as Markdown writes what a term means
        text = UNBARRED.sub(lambda table: re.sub(r"(?m)^(?=.)|(?<=.)$", "|", table[0]), text)
        return blocks_of(list(enumerate(text.splitlines(), 1)))
    if "refs" in marks:  # a reference is said by its own words, the title that it leads to, or its label
        names = {m["label"]: m["title"] for m in re.finditer(marks["labels"], text, re.MULTILINE)}
        text = re.sub(marks["refs"], lambda m: m[2] or names.get(m[1], re.sub(r"\w+:|\W|_", " ", m[1])), text)
    for pattern, put in marks["put"]:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    return read_html(text)


_QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""


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
    """Return the text of a program with no comments, whose lines stay."""
    kept = re.compile(rf"({_QUOTED})|{comment}", re.DOTALL)
    return kept.sub(lambda match: match[1] or "\n" * match[0].count("\n"), decoded(path))


def read_prolog(path: Path) -> list[Block]:
    """Return the clauses of a logic program, to their full stops."""
    text = _uncommented(path, r"%[^\n]*|/\*.{0,9999}?\*/") + "\n.\n"
    clauses = re.finditer(rf"(?=\S)(?:{_QUOTED}|(?!\.\s).)+\.(?=\s)", text, re.DOTALL)
    aside = ("#", "?") if path.suffix == ".lp" else (":-", "?-")  # there ":- a, b." is a rule: not both
    kept = (clause for clause in clauses if not clause[0].startswith(aside))
    parts = ((" ".join(clause[0][:-1].split()), clause.start()) for clause in kept)
    return [Block("rule", f"{words}.", [(0, text.count("\n", 0, at) + 1)]) for words, at in parts]


def read_rego(path: Path) -> list[Block]:
    """Return the rules of Rego, to the ends of their braces; semicolons stand between lines within them."""
    blocks, open_ = list[Block](), 0
    for number, line in enumerate(_uncommented(path, r"#[^\n]*").splitlines(), 1):
        said, bare = " ".join(line.split()), re.sub(_QUOTED, "", line)
        goes_on = said.startswith("else") or (blocks and said and blocks[-1].text.endswith("else"))
        if open_ > 0 or (blocks and goes_on):
            ends = blocks[-1].text.endswith((*"{[(,;", "else")) or (said[:1] in tuple("}])") or not open_)
            blocks[-1].text += f"{'' if not said else ' ' if ends else '; '}{said}"
        elif said and not re.match(r"(?:package|import)\b", said):
            blocks.append(Block("rule", said, [(0, number)]))
        open_ = max(0, open_ + len(re.findall(r"[{[(]", bare)) - len(re.findall(r"[}\])]", bare)))
    return blocks


_READERS = {
    ".eml": read_mail,
    **dict.fromkeys(".md .markdown .txt .rst .wiki .adoc .asciidoc .tex".split(), read_text),
    **dict.fromkeys((".html", ".htm"), lambda path: read_html(path.read_bytes())),
    ".docx": read_docx,
    ".pdf": read_pdf,
    **dict.fromkeys((".csv", ".tsv"), read_cells),
    ".xlsx": read_xlsx,
    **dict.fromkeys((".jsonl", ".json", ".yaml", ".yml"), read_json),
    ".parquet": lambda path: [records(read_parquet([path]).to_pylist())],
    **dict.fromkeys((".pl", ".pro", ".lp"), read_prolog),
    ".rego": read_rego,
}
