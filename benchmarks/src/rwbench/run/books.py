"""Rule books of the real world as a source of questions: one sub-task a book, all rules of its own book in every pool.

A run on them is a run like any other (`RunSpec.data` names the books' texts by a hash). A book of one's own is a folder
with ``questions.jsonl`` and ``rules.csv`` or ``rules.txt``, which `dynarule book new` writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruleworld_data.spec import UNKNOWN, data_version

from ..spec import BOOKS, BOOKS_DATA, OWN_BOOK, VALIDATION_BOOKS, RunSpec
from .data import DataSource

if TYPE_CHECKING:
    import pyarrow as pa

RULES_FILE, QUESTIONS_FILE = "rules.txt", "questions.jsonl"
BOOK_SPLIT = "test"
"""Nothing is trained on the books: all their questions are a test set, those of the books of validation another."""
HASH_DIGITS = 12


@dataclass(frozen=True)
class BookSource(DataSource):
    """Shipped rule books; ids of rules go on from book to book.

    Attributes
    ----------
    books : tuple of str
        `rwbench.spec.BOOKS`, by which no setting is chosen, or `rwbench.spec.VALIDATION_BOOKS`.
    """

    books: tuple[str, ...] = BOOKS

    @property
    def data(self) -> str:
        """Hash of the books' files: other texts are other data."""
        digest = hashlib.sha256()
        for book in self.books:
            for name in (RULES_FILE, QUESTIONS_FILE):
                digest.update((book_folder(book) / name).read_bytes())
        return BOOKS_DATA + digest.hexdigest()[:HASH_DIGITS]

    @property
    def subtasks(self) -> tuple[str, ...]:
        """The books."""
        return self.books

    @property
    def pool_size(self) -> int:
        """Rules of a book; all have as many."""
        return len(book_rules(self.books[0]))

    def _table(self, config: str, split: str) -> pa.Table:
        """Return the rules of all books (``world_id`` says of which), or the questions of one."""
        import pyarrow as pa

        if config != "rules":
            return pa.Table.from_pylist(self._questions(config))
        return pa.Table.from_pylist([row for book in self.books for row in self._rules(book)])

    def _first_id(self, book: str) -> int:
        return self.books.index(book) * self.pool_size

    def _rules(self, book: str) -> list[dict[str, Any]]:
        from dynarule.bank import conclusion_of

        names = {"world_id": book, "type": "rule", "fol": ""}  # there is no logic of these rules
        return [
            {"id": number, "nl": text, "conclusion_nl": conclusion_of(text), **names}
            for number, text in enumerate(book_rules(book), self._first_id(book))
        ]

    def _questions(self, book: str) -> list[dict[str, Any]]:
        lines = (book_folder(book) / QUESTIONS_FILE).read_text(encoding="utf-8").splitlines()
        first = self._first_id(book)
        rows = []
        for number, row in enumerate(map(json.loads, lines), 1):
            steps = [
                {"rule_ids": [first + int(rule) for rule in step["rule_ids"]], "nl": step["text"], "fol": ""}
                for step in row["steps"]
            ]
            names = {"id": f"{book}-{number:02}", "subtask": book, "world_id": book, "fold": 0}
            rows.append(row | names | {"steps": steps})
        return rows


@dataclass(frozen=True)
class OwnBook(BookSource):
    """The rule book in ``folder``; its rules are numbered from 0, whatever their ids are."""

    books: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: Path) -> OwnBook:
        """Read a folder; a ValueError or FileNotFoundError says what is missing in it."""
        if not (folder / QUESTIONS_FILE).is_file():
            raise FileNotFoundError(
                f"no {QUESTIONS_FILE} in {folder}: a question and its answers a line; for drafts to correct type: "
                f"dynarule book questions {folder}"
            )
        name = re.sub(r"\W+", "_", folder.resolve().name).strip("_").lower() or "book"
        rows = _read_questions(folder / QUESTIONS_FILE)
        # what may be refused is scored by what is refused, too
        unknown = any(row["answers"] == [UNKNOWN] for row in rows)
        return cls(folder=folder, books=(f"unknown_{name}" if unknown else name,))

    @property
    def data(self) -> str:
        """Hash of the book's files."""
        digest = hashlib.sha256()
        for path in (self._rules_file, self._folder / QUESTIONS_FILE):
            digest.update(path.read_bytes())
        return OWN_BOOK + digest.hexdigest()[:HASH_DIGITS]

    @property
    def pool_size(self) -> int:
        """Rules of the book."""
        return len(self._read_rules().ids)

    @property
    def names_rules(self) -> bool:
        """Whether every question that has an answer says which rules it needs."""
        rows = _read_questions(self._folder / QUESTIONS_FILE)
        return all(row.get("steps") for row in rows if row["answers"] != [UNKNOWN])

    @property
    def _folder(self) -> Path:
        assert self.folder is not None
        return self.folder

    @property
    def _rules_file(self) -> Path:
        table = self._folder / "rules.csv"
        return table if table.is_file() else self._folder / RULES_FILE

    def _read_rules(self) -> Any:
        from dynarule.bank import read_rules

        return read_rules(self._rules_file)

    def _rules(self, book: str) -> list[dict[str, Any]]:
        rules = self._read_rules()
        names = {"world_id": book, "type": "rule", "fol": ""}
        return [
            {"id": number, "nl": text, "conclusion_nl": conclusion, **names}
            for number, (text, conclusion) in enumerate(zip(rules.texts, rules.conclusions, strict=True))
        ]

    def _questions(self, book: str) -> list[dict[str, Any]]:
        number_of = {name: number for number, name in enumerate(self._read_rules().ids)}
        made = []
        for number, row in enumerate(_read_questions(self._folder / QUESTIONS_FILE), 1):
            steps = []
            for step in row.get("steps") or []:
                ids = [str(name) for name in step["rule_ids"]]
                if missing := [name for name in ids if name not in number_of]:
                    raise ValueError(
                        f"question {number} needs rule {missing[0]!r}, which {self._rules_file} does not have; ids are "
                        "those of its column id, else line numbers from 1"
                    )
                steps.append(
                    {"rule_ids": [number_of[name] for name in ids], "nl": step.get("text", ""), "fol": ""}
                )
            names = {"id": f"{book}-{number:03}", "subtask": book, "world_id": book, "fold": 0}
            made.append(row | names | {"steps": steps})
        return made


def _read_questions(path: Path) -> list[dict[str, Any]]:
    from dynarule.books import read_questions

    return read_questions(path)


def source_of(spec: RunSpec) -> DataSource:
    """Return the world, or the books, that a run names; `ValueError` if no such data can be made here."""
    if spec.data.startswith(OWN_BOOK):
        raise ValueError(
            f"run {spec.run_id} is on a rule book of your own, which is not kept with it; give --data FOLDER"
        )
    if not spec.on_books:
        return DataSource(
            spec.scale, spec.world_seed, version=data_version(spec.data), dials=spec.parsed_dials
        )
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


@lru_cache(maxsize=len(BOOKS) + len(VALIDATION_BOOKS))
def book_rules(book: str) -> tuple[str, ...]:
    """Return the rules of a book in its order."""
    return tuple((book_folder(book) / RULES_FILE).read_text(encoding="utf-8").splitlines())
