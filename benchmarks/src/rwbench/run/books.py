"""Rule books of the real world as a source of questions: one sub-task a book, all rules of its own book in every pool.

A run on them is a run like any other (`RunSpec.data` names the books' texts by a hash). A book of one's own is a folder
with ``questions.jsonl`` and ``rules.csv`` or ``rules.txt``, which `dynarule book new` writes.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from ruleworld_data.spec import UNKNOWN, data_version

from ..spec import BOOKS, BOOKS_DATA, OWN_BOOK, VALIDATION_BOOKS, RunSpec
from .data import OWN_PREMISE, DataSource

RULES_FILE, QUESTIONS_FILE = "rules.txt", "questions.jsonl"
BOOK_SPLIT = "test"
"""Nothing is trained on the books: all their questions are a test set, those of the books of validation another."""


@dataclass(frozen=True)
class BookSource(DataSource):
    """Shipped rule books, or in ``folder`` one of a user's own; ids of rules go on from book to book."""

    # `rwbench.spec.BOOKS`, by which no setting is chosen, `rwbench.spec.VALIDATION_BOOKS`, or one name of a user's own.
    books: tuple[str, ...] = BOOKS
    folder: Path | None = None

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a user's own book; a ValueError or FileNotFoundError says what is missing in its folder."""
        if not (folder / QUESTIONS_FILE).is_file():
            raise FileNotFoundError(
                f"no {QUESTIONS_FILE} in {folder}: a question and its answers a line; for drafts to correct type: "
                f"dynarule book questions {folder}"
            )
        folder = folder.absolute()  # tasks of a cluster run in folders of their own
        name = re.sub(r"\W+", "_", folder.resolve().name).strip("_").lower() or "book"
        rows = cls(folder=folder, books=(name,))._questions(name)
        # what may be refused is scored by what is refused, too
        unknown = any(row["answers"] == [UNKNOWN] for row in rows)
        return cls(folder=folder, books=(f"unknown_{name}" if unknown else name,))

    @property
    def data(self) -> str:
        """Hash of the books' files: other texts are other data."""
        digest = hashlib.sha256()
        for book in self.books:
            for path in self._files(book):
                digest.update(path.read_bytes())
        return (OWN_BOOK if self.folder else BOOKS_DATA) + digest.hexdigest()[:12]

    @property
    def subtasks(self) -> tuple[str, ...]:
        """The books."""
        return self.books

    @property
    def pool_size(self) -> int:
        """Rules of a book; all have as many."""
        return len(self._rules(self.books[0]).ids)

    @property
    def names_rules(self) -> bool:
        """Whether every question that has an answer says which rules it needs."""
        rows = [row for book in self.books for row in self._questions(book)]
        return all(row["steps"] for row in rows if row["answers"] != [UNKNOWN])

    def _table(self, config: str, split: str) -> pa.Table:
        """Return the rules of all books (``world_id`` says of which), or the questions of one."""
        if config != "rules":
            return pa.Table.from_pylist(self._questions(config))
        rows: list[dict[str, Any]] = []
        for book in self.books:
            rules = self._rules(book)
            premises = rules.premises or [None] * len(rules.ids)
            for text, premise, then in zip(rules.texts, premises, rules.conclusions, strict=True):
                row = {"id": len(rows), "world_id": book, "type": "rule", "nl": text, "conclusion_nl": then}
                rows.append(row | {OWN_PREMISE: premise or "", "fol": ""})  # there is no logic of these rules
        return pa.Table.from_pylist(rows)

    def _files(self, book: str) -> tuple[Path, Path]:
        """Return the files of a book's rules and questions."""
        folder = self.folder or book_folder(book)
        table = folder / "rules.csv"
        return table if table.is_file() else folder / RULES_FILE, folder / QUESTIONS_FILE

    def _rules(self, book: str) -> Any:
        from dynarule.bank import read_rules

        return read_rules(self._files(book)[0])

    def _questions(self, book: str) -> list[dict[str, Any]]:
        from dynarule.books import read_questions

        rules_file, questions_file = self._files(book)
        names = self._rules(book).ids
        first = self.books.index(book) * len(names)
        # Questions of the shipped books count their rules from 0, a user's ids are those of `read_rules`.
        number_of = {name if self.folder else str(at): first + at for at, name in enumerate(names)}
        digits = 3 if self.folder else 2
        made = []
        for number, row in enumerate(read_questions(questions_file), 1):
            steps = []
            for step in row.get("steps") or []:
                ids = [str(name) for name in step["rule_ids"]]
                if missing := [name for name in ids if name not in number_of]:
                    raise ValueError(
                        f"question {number} needs rule {missing[0]!r}, which {rules_file} does not have; ids are "
                        "those of its column id, else line numbers from 1"
                    )
                numbers = [number_of[name] for name in ids]
                steps.append({"rule_ids": numbers, "nl": step.get("text", ""), "fol": ""})
            about = {"id": f"{book}-{number:0{digits}}", "subtask": book, "world_id": book, "fold": 0}
            made.append(row | about | {"steps": steps})
        return made


def source_of(spec: RunSpec) -> DataSource:
    """Return the world, or the books, that a run names; `ValueError` if no such data can be made here."""
    if spec.data.startswith(OWN_BOOK):
        raise ValueError(
            f"run {spec.run_id} is on a rule book of your own, which is not kept with it; give --data FOLDER"
        )
    if not spec.on_books:
        return DataSource(spec.scale, spec.world_seed, data_version(spec.data), spec.parsed_dials)
    tested, validated = BookSource(), BookSource(books=VALIDATION_BOOKS)
    return validated if validated.data == spec.data else tested


def book_folder(book: str) -> Path:
    """Return the folder of a book; the library is the example of the package ``dynarule``."""
    if book != "library":
        return Path(__file__).parents[1] / "rulebooks" / book
    package = find_spec("dynarule")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(
            'the rule book "library" comes with dynarule, which is not installed; type: pip install "rwbench[models]"'
        )
    return Path(package.submodule_search_locations[0]) / "example" / book
