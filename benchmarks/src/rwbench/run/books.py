"""Rule books of the real world as a source of questions: one sub-task a book, all rules of its own book in every pool.

A run on them is a run like any other (`RunSpec.data` names the books' texts by a hash). A book of one's own is a folder
with ``questions.jsonl`` and ``rules.csv`` or ``rules.txt``, which `dynarule book new` writes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ruleworld_data.spec import UNKNOWN, data_version

from ..spec import BOOKS, BOOKS_DATA, OWN_BOOK, VALIDATION_BOOKS, RunSpec
from .data import OWN_PREMISE, DataSource

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
    _digits: ClassVar[int] = 2  # of a question's number in its id

    @property
    def data(self) -> str:
        """Hash of the books' files: other texts are other data."""
        digest = hashlib.sha256()
        for book in self.books:
            for path in self._files(book):
                digest.update(path.read_bytes())
        return self._prefix + digest.hexdigest()[:HASH_DIGITS]

    @property
    def subtasks(self) -> tuple[str, ...]:
        """The books."""
        return self.books

    @property
    def pool_size(self) -> int:
        """Rules of a book; all have as many."""
        return len(self._rules(self.books[0]))

    def _table(self, config: str, split: str) -> pa.Table:
        """Return the rules of all books (``world_id`` says of which), or the questions of one."""
        import pyarrow as pa

        if config != "rules":
            return pa.Table.from_pylist(self._questions(config))
        rows = [(book, *rule) for book in self.books for rule in self._rules(book)]
        names = {"type": "rule", "fol": ""}  # there is no logic of these rules
        return pa.Table.from_pylist(
            [
                {"id": number, "world_id": book, **names}
                | {"nl": text, OWN_PREMISE: premise, "conclusion_nl": conclusion}
                for number, (book, _, text, premise, conclusion) in enumerate(rows)
            ]
        )

    @property
    def _prefix(self) -> str:
        return BOOKS_DATA

    def _files(self, book: str) -> tuple[Path, Path]:
        """Return the files of a book's rules and questions."""
        return book_folder(book) / RULES_FILE, book_folder(book) / QUESTIONS_FILE

    def _rules(self, book: str) -> list[tuple[str, str, str, str]]:
        """Return id, text, premise (empty: found in the text) and conclusion of each rule."""
        from dynarule.bank import conclusion_of

        return [(str(place), text, "", conclusion_of(text)) for place, text in enumerate(book_rules(book))]

    def _questions(self, book: str) -> list[dict[str, Any]]:
        from dynarule.books import read_questions

        rules_file, questions_file = self._files(book)
        first = self.books.index(book) * self.pool_size
        number_of = {name: number for number, (name, *_) in enumerate(self._rules(book), first)}
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
                steps.append(
                    {"rule_ids": [number_of[name] for name in ids], "nl": step.get("text", ""), "fol": ""}
                )
            names = {"id": f"{book}-{number:0{self._digits}}", "subtask": book, "world_id": book, "fold": 0}
            made.append(row | names | {"steps": steps})
        return made


@dataclass(frozen=True)
class OwnBook(BookSource):
    """The rule book in ``folder``; its rules are numbered from 0, whatever their ids are."""

    books: tuple[str, ...] = ()
    _digits: ClassVar[int] = 3

    @classmethod
    def open(cls, folder: Path) -> OwnBook:
        """Read a folder; a ValueError or FileNotFoundError says what is missing in it."""
        if not (folder / QUESTIONS_FILE).is_file():
            raise FileNotFoundError(
                f"no {QUESTIONS_FILE} in {folder}: a question and its answers a line; for drafts to correct type: "
                f"dynarule book questions {folder}"
            )
        name = re.sub(r"\W+", "_", folder.resolve().name).strip("_").lower() or "book"
        rows = cls(folder=folder, books=(name,))._questions(name)
        # what may be refused is scored by what is refused, too
        unknown = any(row["answers"] == [UNKNOWN] for row in rows)
        return cls(folder=folder, books=(f"unknown_{name}" if unknown else name,))

    @property
    def names_rules(self) -> bool:
        """Whether every question that has an answer says which rules it needs."""
        rows = self._questions(self.books[0])
        return all(row["steps"] for row in rows if row["answers"] != [UNKNOWN])

    @property
    def _prefix(self) -> str:
        return OWN_BOOK

    def _files(self, book: str) -> tuple[Path, Path]:
        assert self.folder is not None
        table = self.folder / "rules.csv"
        rules = table if table.is_file() else self.folder / RULES_FILE
        return rules, self.folder / QUESTIONS_FILE

    def _rules(self, book: str) -> list[tuple[str, str, str, str]]:
        from dynarule.bank import read_rules

        rules = read_rules(self._files(book)[0])
        premises = [premise or "" for premise in rules.premises or [None] * len(rules.ids)]
        return list(zip(rules.ids, rules.texts, premises, rules.conclusions, strict=True))


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
