"""Cases that stand as text beside a test: one a line, its cells between bars, in blocks between blank lines."""

from pathlib import Path


def blocks(test, name):
    """Return the blocks of a file in a test's folder: rows of cells, "-" as None, without the lines of "#"."""
    text = Path(test).with_name(name).read_text(encoding="utf-8")
    rows = [
        [line.split(" | ") for line in block.splitlines() if line[0] != "#"]
        for block in text.strip().split("\n\n")
    ]
    return [[tuple(None if cell == "-" else cell for cell in row) for row in block] for block in rows]
