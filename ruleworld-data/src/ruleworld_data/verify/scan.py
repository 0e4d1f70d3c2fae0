"""Read question shards: check their rows, and reduce millions of them to their distinct sub-questions.

Parallel questions combine a pool of sub-questions, so eleven million of them are a few hundred thousand distinct ones,
and the logic runs once for each of these (`answers`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ..io.shards import Shard
from ..spec import CHAINS, MINI_FOLD_SIZE, MINI_FOLDS, UNKNOWN, size_of
from ..text.fol import OPERATIONS
from ..world import Ints
from .mentions import question_problems
from .report import Report, StageProgress
from .rulebase import ALL_TYPES, RuleBase

_SCOPE = ("facts", "queries", "answers", "answer_types")
_SLICE = 5_000
"""Rows whose texts are Python strings at one time."""
_NUMBER = re.compile(r"\d+")


class GivenStep(NamedTuple):
    """One proof step as shipped."""

    rule_ids: tuple[int, ...]
    nl: str
    fol: str
    state: str


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One distinct sub-question: a scope, what is given as its answer, and why.

    ``source`` is the id of the first question that has it, and no part of what it is.
    """

    world_id: str
    facts: str
    query: str
    answer: str
    answer_type: str
    steps: tuple[GivenStep, ...]
    source: str = field(compare=False)

    @property
    def rule_ids(self) -> tuple[int, ...]:
        """Gold rule ids in step order."""
        return tuple(rule_id for step in self.steps for rule_id in step.rule_ids)

    @property
    def lesson(self) -> tuple[str, tuple[int, ...], tuple[str, ...], str]:
        """What a learner could remember of it, whoever it is about: rules, numbers and answer.

        Where there is no answer, rules do not tell what is asked.
        """
        if self.answer == UNKNOWN:
            return self.world_id, (), (self.facts, self.query), UNKNOWN
        numbers = tuple(_NUMBER.findall(self.facts))
        return self.world_id, tuple(sorted(self.rule_ids)), numbers, self.answer


class Scan:
    """The questions read so far.

    ``subquestions`` has the distinct sub-questions, numbered by first occurrence, and ``splits`` their numbers by
    split; ``parts`` counts all of them. ``keys`` has a frame for each shard, a row for each question: hashes of its id,
    and of its world and text, which do for finding what is there twice among millions, and where it stands.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self.subquestions: list[SubQuestion] = []
        self._numbers: dict[SubQuestion, int] = {}
        self.keys: list[pd.DataFrame] = []
        self.splits: dict[str, set[int]] = defaultdict(set)
        self.parts = 0

    def read(self, shard: Shard, world_id: str) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Check lists and labels of one shard's rows; yield those whose lists line up, with their parts' numbers."""
        shape, labels = self.report["question_shape"], self.report["question_labels"]
        folds, keys = Counter[int](), list[tuple[int, int]]()
        with pq.ParquetFile(self.folder / shard.path) as file:
            for row in chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(_SLICE)):
                shape.checked += 1
                folds[row["fold"]] += 1
                where = f"{shard.path}: {row['id']}"
                if not _lines_up(row, shard):
                    shape.fail(f"{where}: facts, queries, answers, types and steps do not line up")
                    continue
                proof = [_given(step or {}) for step in row["steps"]]
                if sum((step.rule_ids for step in proof), ()) != _ids(row["gold_rule_ids"]):
                    shape.fail(f"{where}: gold_rule_ids are not the rule ids of its steps in order")
                labels.checked += 1
                for name in _wrong_labels(row, shard, world_id):
                    labels.fail(f"{where}: {name} is {row[name]}")
                numbers = self._number(row, proof, world_id)
                keys.append((hash(row["id"]), hash((world_id, row["question"]))))
                self.splits[shard.split].update(numbers)
                self.parts += len(numbers)
                yield row, numbers
        own = pd.DataFrame(keys, columns=["id", "question"]).assign(split=shard.split, path=shard.path)
        self.keys.append(own.rename_axis("row").reset_index())
        if shard.split == "mini" and folds != Counter(dict.fromkeys(range(MINI_FOLDS), MINI_FOLD_SIZE)):
            sizes = [folds[fold] for fold in range(MINI_FOLDS)]
            labels.fail(f"{shard.path}: folds have {sizes} questions, expected {MINI_FOLD_SIZE} each")

    def _number(self, row: dict[str, Any], proof: list[GivenStep], world_id: str) -> list[int]:
        """Number the sub-questions of a row: one of all its steps, or one of each."""
        numbers, parts = [], zip(*(row[name] for name in _SCOPE), strict=True)
        for i, texts in enumerate(parts):
            facts, query, answer, answer_type = (text or "" for text in texts)
            steps = tuple(proof if len(row["queries"]) == 1 else proof[i : i + 1])
            known = SubQuestion(world_id, facts, query, answer, answer_type, steps, row["id"])
            numbers.append(self._numbers.setdefault(known, len(self.subquestions)))
            if numbers[-1] == len(self.subquestions):
                self.subquestions.append(known)
        return numbers

    def of(self, *splits: str) -> list[SubQuestion]:
        """Return the distinct sub-questions of some splits, in order of first occurrence."""
        numbers = set[int]().union(*(self.splits[split] for split in splits))
        return [self.subquestions[number] for number in sorted(numbers)]


def check_questions(
    folder: Path,
    shards: list[Shard],
    worlds: Mapping[str, RuleBase],
    report: Report,
    progress: StageProgress,
) -> Scan:
    """Read the questions, check every row and then the rows against each other; ``worlds`` by rule split."""
    scan, skeletons, check = Scan(folder, report), list[str](), report["question_text"]
    for done, shard in enumerate(shards, start=1):
        base = worlds["heldout" if shard.split == "heldout" else "train"]
        types = base["type"]  # taking a column from a frame costs as much as all else about a sub-question
        for row, numbers in scan.read(shard, base.world_id):
            skeletons += [_skeleton(base, types, known) for known in scan.subquestions[len(skeletons) :]]
            scopes = [(scan.subquestions[n].facts, scan.subquestions[n].query) for n in numbers]
            check.checked += 1
            check.fail(*(f"{row['id']}: {problem}" for problem in question_problems(row["question"], scopes)))
            if row["skeleton"] != (wanted := " & ".join(skeletons[n] for n in numbers)):
                spelt = f"{row['id']}: skeleton is {row['skeleton']}, its rules make {wanted}"
                report["question_labels"].fail(spelt)
        progress("questions", done, len(shards))
    _check_repeats(scan)
    _check_overlap(scan)
    return scan


def _skeleton(base: RuleBase, types: Ints, subquestion: SubQuestion) -> str:
    rows = base.find(subquestion.rule_ids).tolist()
    names = iter([ALL_TYPES[types[row]] if row >= 0 else "?" for row in rows])
    steps = ["+".join(next(names) for _ in step.rule_ids) for step in subquestion.steps]
    skeleton = (" & " if subquestion.query.startswith(OPERATIONS) else ">").join(steps)
    if subquestion.answer != UNKNOWN:
        return skeleton
    # The last step has the rule of the initial value where another one is missing.
    before, giver, _ = skeleton.rpartition("entity2attr")
    return f"{before}?+{giver}" if giver else f"{skeleton}+?"


def _check_repeats(scan: Scan) -> None:
    """Find ids, and texts about a world, that occur twice; mini repeats rows of test, and only those."""
    rows = pd.concat(scan.keys, ignore_index=True)
    in_mini, in_test = rows["split"] == "mini", rows["split"] == "test"
    scan.report["duplicates"].checked += len(rows)

    def place(row: int) -> str:
        return f"{rows['path'][row]}, row {rows['row'][row]}"

    for key, check in (("id", scan.report["question_labels"]), ("question", scan.report["duplicates"])):
        for part in (rows[~in_mini], rows[in_mini]):
            again, before = part.index[part.duplicated(key)], part[key]
            check.fail_rows(
                again.to_numpy(),
                lambda row, key=key, before=before: (
                    f"{place(row)} repeats the {key} of {place(before.index[before == before[row]][0])}"
                ),
            )
        foreign = np.flatnonzero(in_mini & ~rows[key].isin(rows[key][in_test]))
        check.fail_rows(foreign, lambda row, key=key: f"{place(row)}: its {key} is not in test")


def _check_overlap(scan: Scan) -> None:
    """Find sub-questions of the other splits that train teaches."""
    check, train = scan.report["overlap"], {known.lesson for known in scan.of("train")}
    for split in [split for split in scan.splits if split != "train"]:
        subquestions = scan.of(split)
        check.checked += len(subquestions)
        for known in (known for known in subquestions if known.lesson in train):
            spelt = f"{split}: rules {known.rule_ids} with answer {known.answer!r} ({known.source})"
            check.fail(f"{spelt} also occur in train")
    taught = {rule for known in scan.of("train", "validation") for rule in known.rule_ids}
    for known in scan.of("unseen"):
        if known.steps and (shared := sorted(taught.intersection(known.steps[-1].rule_ids))):
            check.fail(f"unseen: rules {shared} that answer {known.source} are gold in train or validation")


def _lines_up(row: dict[str, Any], shard: Shard) -> bool:
    lists = [row[name] for name in (*_SCOPE, "steps")]
    if None in (*lists, row["question"], row["gold_rule_ids"]):
        return False
    *scope, steps = map(len, lists)
    least, most = (2, shard.spec.dials.parts) if shard.config.startswith("multi_rule") else (1, 1)
    most_steps = scope[0] if shard.config.startswith("multi_rule") else size_of(shard.config)
    if steps != most_steps and not (row["answers"] == [UNKNOWN] and 1 <= steps < most_steps):
        return False
    return len(set(scope)) == 1 and least <= scope[0] <= most


def _given(step: dict[str, Any]) -> GivenStep:
    return GivenStep(_ids(step.get("rule_ids")), *(step.get(name) or "" for name in ("nl", "fol", "state")))


def _ids(ids: list[int | None] | None) -> tuple[int, ...]:
    return tuple(-1 if i is None else i for i in ids or ())


def _wrong_labels(row: dict[str, Any], shard: Shard, world_id: str) -> list[str]:
    """Return the columns of a row that do not fit its shard."""
    n_rules, size, chain = len(row["gold_rule_ids"]), size_of(shard.config), shard.config.startswith(CHAINS)
    wanted = {
        "subtask": shard.config,
        "world_id": world_id,
        "n_rules": n_rules,
        "n_hops": size if chain else 1,
    }
    if shard.split != "mini":
        wanted["fold"] = 0
    wrong = [name for name, value in wanted.items() if row[name] != value]
    most = 2 * size if shard.config.startswith("compare") else size
    if not chain and not size <= n_rules <= most:
        wrong.append("gold_rule_ids")
    return wrong
