"""The whole verification, from a folder to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from .answers import AnswerChecker
from .asp import BATCH, import_clingo
from .files import ReadableShard, check_shards
from .reader import TableReader
from .report import CHECKS, Findings, Report, StageProgress
from .rows import RowChecker
from .rulebase import RuleBase
from .rules import check_constraints, check_heldout, read_rules
from .scan import Scan
from .subquestions import SubQuestions

SOLVERS = ("executor", "clingo")
_WORTH_A_PROCESS = 10
"""Batches that take longer than starting a process."""
_LIFETIME = 100
"""Batches that a process checks before it is replaced."""

_NAMES = list(CHECKS)
_QUESTION_CHECKS = ("C6", *_NAMES[_NAMES.index("question_shape") :])
_RULE_CHECKS = tuple(
    name for name in _NAMES if name.startswith(("rule_", "C")) and name not in _QUESTION_CHECKS
)
_EXECUTOR_CHECKS = ("C6", "steps", "step_texts", "needed")


class _Batch(NamedTuple):
    world_id: str
    number: int
    asked: SubQuestions
    evaluation: list[bool]


def verify(
    build_dir: str | Path,
    solvers: Sequence[str] = SOLVERS,
    jobs: int = 1,
    progress: StageProgress | None = None,
) -> Report:
    """Verify a build from its files alone.

    Every rule is parsed back from both texts and compared to its columns; the constraints C1 to C8 are checked on the
    parsed rules; every distinct sub-question is answered again under its gold rules, under a pool of 10,000 rules and
    under all rules that bear on it, by each solver.

    Parameters
    ----------
    build_dir : path
        A folder made by ``ruleworld build``.
    solvers : sequence of str
        ``"executor"`` (ours), ``"clingo"`` (answer set programming, an optional dependency), or both.
    jobs : int
        Processes for the solvers.
    progress : callable, optional
        Called with a stage, the number of its parts done, and their total.

    Returns
    -------
    Report
        `Report.ok` says whether all is well. Damaged files are failed checks, not exceptions.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If the manifest cannot be read or an argument is wrong.
    ImportError
        If clingo is asked for and not installed.
    """
    unknown = [name for name in solvers if name not in SOLVERS]
    if unknown or not solvers:
        raise ValueError(
            f"solvers must be one or both of {', '.join(SOLVERS)}, got {', '.join(solvers) or 'none'}"
        )
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a positive integer, got {jobs!r}")
    if "clingo" in solvers:
        import_clingo()
    from ..io import read_manifest

    folder = Path(build_dir)
    manifest = read_manifest(folder)
    run = _Run(tuple(solvers), jobs, progress or (lambda stage, done, total: None))
    run.check(check_shards(folder, manifest, run.findings, run.progress))
    checks = [run.findings[name] for name in CHECKS]
    scale, version = str(manifest.get("scale")), str(manifest.get("generator_version"))
    return Report(str(folder), scale, version, manifest.get("seed", -1), checks, run.counts)


class _Run:
    """One verification."""

    def __init__(self, solvers: tuple[str, ...], jobs: int, progress: StageProgress) -> None:
        self.solvers, self.jobs, self.progress = solvers, jobs, progress
        self.findings = Findings()
        self.counts: dict[str, int] = {}

    def check(self, shards: list[ReadableShard]) -> None:
        """Check rules, then questions."""
        worlds = self._rules([shard for shard in shards if shard.config == "rules"])
        missing = {"train", "heldout"} - worlds.keys()
        if missing:
            reason = f"the rules of {' and '.join(sorted(missing))} could not be read"
            self.findings.skip(reason, "heldout", *_QUESTION_CHECKS, *(() if worlds else _RULE_CHECKS))
            return
        scan = self._questions([shard for shard in shards if shard.config != "rules"], worlds)
        if self.findings["C3"].failures:
            answers = [name for name in CHECKS if name.startswith("C9")]
            reason = "attribute changes are circular (C3)"
            self.findings.skip(reason, "scopes", "gold_rules", *_EXECUTOR_CHECKS, *answers)
        else:
            self._answers(list(_batches(scan)), {base.world_id: base for base in worlds.values()})
        for solver in SOLVERS:
            if solver not in self.solvers:
                names = [name for name in CHECKS if name.startswith("C9") and name.endswith(solver)]
                names += _EXECUTOR_CHECKS if solver == "executor" else ()
                self.findings.skip(f"needs the solver {solver}", *names)

    def _rules(self, shards: list[ReadableShard]) -> dict[str, RuleBase]:
        reader, worlds = TableReader(), {}
        for done, split in enumerate(("train", "heldout"), start=1):
            if own := [shard for shard in shards if shard.split == split]:
                worlds[split] = read_rules(reader, own, self.findings)
                check_constraints(worlds[split], self.findings)
            self.progress("rules", done, 2)
        if len(worlds) == 2:
            check_heldout(worlds["train"], worlds["heldout"], self.findings)
        self.counts["rules"] = sum(map(len, worlds.values()))
        return worlds

    def _questions(self, shards: list[ReadableShard], worlds: dict[str, RuleBase]) -> Scan:
        """Check every row, and reduce the rows to distinct sub-questions."""
        scan = Scan(self.findings)
        rows = RowChecker(scan, {base.world_id: base for base in worlds.values()})
        for done, shard in enumerate(shards, start=1):
            base = worlds["heldout" if shard.split == "heldout" else "train"]
            for part in scan.shard(shard, base.world_id):
                rows.rows(part)
            self.progress("questions", done, len(shards))
        rows.finish()
        self.counts |= {"questions": scan.rows, "sub_questions": scan.parts}
        self.counts["distinct_sub_questions"] = len(scan.asked)
        return scan

    def _answers(self, batches: list[_Batch], worlds: dict[str, RuleBase]) -> None:
        """Run the solvers."""
        if self.jobs == 1 or len(batches) < 2 * _WORTH_A_PROCESS:
            _prepare(worlds, self.solvers)
            self._collect(map(_check, batches), 0, len(batches))
            _checkers.clear()
            return
        # Clingo never frees a symbol, so processes are replaced now and then. They are spawned, so that none inherits
        # locks of Arrow's threads.
        chunk = _LIFETIME * self.jobs
        for start in range(0, len(batches), chunk):
            context, arguments = get_context("spawn"), (worlds, self.solvers)
            with ProcessPoolExecutor(self.jobs, context, _prepare, arguments) as pool:
                self._collect(pool.map(_check, batches[start : start + chunk]), start, len(batches))

    def _collect(self, results: Iterator[Findings], done: int, total: int) -> None:
        for number, found in enumerate(results, start=done + 1):
            self.findings.merge(found)
            self.progress("answers", number, total)


def _batches(scan: Scan) -> Iterator[_Batch]:
    """Group sub-questions by world and query, so that a batch is about few attributes."""
    paper = set().union(*(scan.splits.get(split, set()) for split in ("validation", "test", "mini")))
    keys = sorted((asked.world_id, asked.query, number) for number, asked in enumerate(scan.asked))
    for world_id, group in groupby(keys, key=itemgetter(0)):
        numbers = [number for *_, number in group]
        for start in range(0, len(numbers), BATCH):
            part = numbers[start : start + BATCH]
            yield _Batch(world_id, start // BATCH, scan.asked.part(part), [n in paper for n in part])


_checkers: dict[str, AnswerChecker] = {}


def _prepare(worlds: dict[str, RuleBase], solvers: Sequence[str]) -> None:
    """Index the rules, once per process."""
    _checkers.clear()
    _checkers.update({name: AnswerChecker(base, solvers) for name, base in worlds.items()})


def _check(batch: _Batch) -> Findings:
    return _checkers[batch.world_id].check(batch.asked, batch.evaluation, batch.number)
