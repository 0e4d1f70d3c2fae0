"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str | None = None) -> str:
    """Return a table; ``align`` has "l" or "r" for each column, or is of numbers right of the first if None."""
    marks = {"l": "---", "r": "---:"}
    align = align or "l" + "r" * (len(head) - 1)
    lines = [head, [marks[each] for each in align], *rows]
    return "\n".join("|" + "".join(f" {text} |" if text else " |" for text in line) for line in lines)
