"""Questions and rules of a world, as methods see them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from ruleworld_data.pools import pool_rules
from ruleworld_data.prompts import with_refusal
from ruleworld_data.spec import PAPER_POINT, Dials, WorldSpec, subtasks_of

from ..spec import DATA_VERSION

Ids = NDArray[np.int32]
AnyIds = Ids | Sequence[int]


@dataclass(frozen=True)
class Question:
    """One question with its gold data: an answer per sub-question, rule ids per step.

    ``text`` is what a method is asked; ``index`` is the place in the sub-task's split, ``fold`` one of the paper's five
    seeds in split mini, else 0; ``row`` is the whole row of the question table (facts, queries, steps, ...).
    """

    id: str
    subtask: str
    world_id: str
    text: str
    index: int
    fold: int
    answers: tuple[str, ...]
    gold_steps: tuple[tuple[int, ...], ...]
    row: dict[str, Any] = field(repr=False, compare=False)

    @property
    def asked(self) -> str:
        """The text as a prompt has it, with what to answer where there may be no answer."""
        return with_refusal(self.text, self.subtask)

    @property
    def gold(self) -> tuple[int, ...]:
        """Gold rule ids, each once, in step order."""
        return tuple(dict.fromkeys(rule for step in self.gold_steps for rule in step))

    @property
    def of_sample(self) -> dict[str, Any]:
        """Fields of a sample that are the question's."""
        return {
            **{name: getattr(self, name) for name in ("id", "subtask", "world_id", "fold")},
            "gold_answers": list(self.answers),
            "gold_rules": [list(step) for step in self.gold_steps],
        }

    @classmethod
    def from_row(cls, row: dict[str, Any], index: int) -> Self:
        """Read one row of the question table."""
        return cls(
            id=row["id"],
            subtask=row["subtask"],
            world_id=row["world_id"],
            text=row["question"],
            index=index,
            fold=int(row["fold"]),
            answers=tuple(row["answers"]),
            gold_steps=tuple(tuple(int(rule) for rule in step["rule_ids"]) for step in row["steps"]),
            row=row,
        )


OWN_PREMISE = "own_premise"
"""Column of a book's rules: the premise that its owner says; a world's are found in the texts, as trained."""


class RuleTable:
    """The rules of one world: rows of ``ruleworld_data.io.RULE_SCHEMA`` by ascending id."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    @cached_property
    def ids(self) -> Ids:
        """All rule ids, ascending, shape (M,), int32, read-only."""
        ids = np.array(self.table["id"].to_numpy(), dtype=np.int32)
        ids.flags.writeable = False
        return ids

    def texts(self, ids: AnyIds, representation: str) -> list[str]:
        """Return the rules' texts in representation ``"fol"`` or ``"nl"``, in the order of ``ids``."""
        return pool_rules(self.table.select(["id", representation]), ids)[representation].to_pylist()

    @cached_property
    def parts(self) -> dict[str, tuple[str, str]]:
        """Premise and conclusion of the texts whose owner says when they hold; of a world's own rules none."""
        if OWN_PREMISE not in self.table.column_names:
            return {}
        columns = (self.table[name].to_pylist() for name in ("nl", OWN_PREMISE, "conclusion_nl"))
        return {text: (premise, then) for text, premise, then in zip(*columns, strict=True) if premise}

    def take(self, ids: AnyIds) -> pa.Table:
        """Return the rows of ``ids`` in that order, as a table; a ValueError if one is not in the world."""
        return pool_rules(self.table, ids)


@dataclass(frozen=True)
class DataSource:
    """The world that a run's questions and rules come from; they are generated here."""

    scale: str = "paper"
    seed: int = 0
    version: str = DATA_VERSION
    dials: Dials = PAPER_POINT

    @property
    def data(self) -> str:
        """The generator version that makes the rows, as `RunSpec.data` names it."""
        return WorldSpec(self.scale, seed=self.seed, version=self.version, dials=self.dials).generator

    @property
    def subtasks(self) -> tuple[str, ...]:
        """All sub-tasks that there are questions of."""
        return subtasks_of(self.dials)

    def rules(self, split: str) -> RuleTable:
        """Return the rules that questions of a split ask about: the held-out world's for ``heldout``."""
        return self._rules_of("heldout" if split == "heldout" else "train")

    @lru_cache(maxsize=4)  # noqa: B019 (all runs of a process share what is loaded)
    def _rules_of(self, world: str) -> RuleTable:
        return RuleTable(self._table("rules", world))

    @lru_cache(maxsize=128)  # noqa: B019
    def questions(self, subtask: str, split: str) -> list[Question]:
        """Return all questions of one sub-task and split, in table order."""
        rows = self._table(subtask, split).to_pylist()
        return [Question.from_row(row, index) for index, row in enumerate(rows)]

    def _table(self, config: str, split: str) -> pa.Table:
        from ruleworld_data.generate import table

        return table(config, WorldSpec(self.scale, split, self.seed, self.version, self.dials))


def select(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """Return ``limit`` questions (all if None) in table order: the first of every fold, then the second, ...

    In split mini, whose table is ordered by fold, a few questions then lie in all five folds, so that the spread
    over seeds can be told from them. Other splits are one fold: there these are the first questions.
    """
    folds: dict[int, Iterator[int]] = defaultdict(count)
    turns = [next(folds[question.fold]) for question in questions]
    chosen = sorted(range(len(questions)), key=turns.__getitem__)[:limit]
    return [questions[place] for place in sorted(chosen)]
