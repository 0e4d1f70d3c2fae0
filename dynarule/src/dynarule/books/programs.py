"""The rules of programs: clauses of Prolog, rules of Rego."""

import re
from pathlib import Path

from .blocks import Block, decoded

_QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""


def _uncommented(path: Path, comment: str) -> str:
    """Return a program without its comments, lines as they were; the sign of one may stand in quotes."""
    kept = re.compile(rf"({_QUOTED})|{comment}", re.DOTALL)
    return kept.sub(lambda match: match[1] or "\n" * match[0].count("\n"), decoded(path))


def read_prolog(path: Path) -> list[Block]:
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


def read_rego(path: Path) -> list[Block]:
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
