"""The whole verification, from a folder to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ..text.reader import RuleReader
from ..text.rulebase import Ints, RuleBase
from .asp import BATCH, import_clingo
from .report import CHECKS, Findings, Report
from .rows import RowChecker
from .rules import World, check_constraints, check_heldout, read_world
from .scan import Scan
from .shards import Shard, check_shards
from .unit import UnitList, unpack
from .units import UnitChecker

SOLVERS = ("executor", "clingo")
Progress = Callable[[str, int, int], None]
_WORTH_A_PROCESS = 10
"""Batches that take longer than starting a process."""
_LIFETIME = 100
"""Batches that a process checks before it is replaced."""

_RULE_CHECKS = tuple(
    name for name in CHECKS if name.startswith(("rule_", "C")) and name[:2] not in ("C6", "C9")
)
_QUESTION_CHECKS = ("C6", *list(CHECKS)[list(CHECKS).index("question_shape") :])
_EXECUTOR_CHECKS = ("C6", "steps", "step_texts", "needed")


class _Batch(NamedTuple):
    world_id: str
    number: int
    units: list[bytes]
    evaluation: list[bool]


def verify(
    build_dir: str | Path,
    solvers: Sequence[str] = SOLVERS,
    jobs: int = 1,
    progress: Progress | None = None,
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
    run = _Run(folder, tuple(solvers), jobs, progress or (lambda stage, done, total: None))
    shards = check_shards(folder, manifest, run.findings, run.progress)
    run.check(shards)
    checks = [run.findings[name] for name in CHECKS]
    scale, version = str(manifest.get("scale")), str(manifest.get("generator_version"))
    return Report(str(folder), scale, version, manifest.get("seed", -1), checks, run.counts)


class _Run:
    """One verification."""

    def __init__(self, folder: Path, solvers: tuple[str, ...], jobs: int, progress: Progress) -> None:
        self.folder, self.solvers, self.jobs, self.progress = folder, solvers, jobs, progress
        self.findings = Findings()
        self.counts: dict[str, int] = {}

    def check(self, shards: list[Shard]) -> None:
        """Check rules, then questions."""
        worlds = self._rules([shard for shard in shards if shard.config == "rules"])
        questions = [shard for shard in shards if shard.config != "rules"]
        missing = {"train", "heldout"} - worlds.keys()
        if missing:
            reason = f"the rules of {' and '.join(sorted(missing))} could not be read"
            self.findings.skip(reason, "heldout", *_QUESTION_CHECKS, *(() if worlds else _RULE_CHECKS))
            return
        self._questions(questions, worlds)
        for solver in SOLVERS:
            if solver not in self.solvers:
                names = [name for name in CHECKS if name.startswith("C9") and name.endswith(solver)]
                names += _EXECUTOR_CHECKS if solver == "executor" else ()
                self.findings.skip(f"needs the solver {solver}", *names)

    def _rules(self, shards: list[Shard]) -> dict[str, World]:
        reader, worlds = RuleReader(), {}
        for done, split in enumerate(("train", "heldout"), start=1):
            if own := [shard for shard in shards if shard.split == split]:
                worlds[split] = read_world(reader, own, self.findings)
                check_constraints(worlds[split], self.findings)
            self.progress("rules", done, 2)
        if len(worlds) == 2:
            check_heldout(worlds["train"], worlds["heldout"], self.findings)
        self.counts["rules"] = sum(len(world.base) for world in worlds.values())
        return worlds

    def _questions(self, shards: list[Shard], worlds: dict[str, World]) -> None:
        units, splits = self._rows(shards, worlds)
        self.counts["distinct_sub_questions"] = len(units)
        if self.findings["C3"].failures:
            names = [name for name in CHECKS if name.startswith("C9")]
            reason = "attribute changes are circular (C3)"
            self.findings.skip(reason, "scopes", "gold_rules", *_EXECUTOR_CHECKS, *names)
            return
        paper = set().union(*(splits.get(split, set()) for split in ("validation", "test", "mini")))
        batches = list(_batches(units, paper))
        known = {world.world_id: (world.base, world.paper_ids) for world in worlds.values()}
        del units
        self._answers(batches, known)

    def _rows(self, shards: list[Shard], worlds: dict[str, World]) -> tuple[UnitList, dict[str, set[int]]]:
        """Check every row; return the distinct sub-questions, and which splits have them."""
        scan = Scan(self.findings)
        rows = RowChecker(self.findings, scan.units, {world.world_id: world for world in worlds.values()})
        for done, shard in enumerate(shards, start=1):
            world = worlds["heldout" if shard.split == "heldout" else "train"]
            for part in scan.shard(shard, world.world_id):
                rows.rows(part)
            self.progress("questions", done, len(shards))
        rows.finish(scan.splits)
        self.counts |= {"questions": scan.rows, "sub_questions": scan.parts}
        scan.units.forget_digests()
        return scan.units, scan.splits

    def _answers(self, batches: list[_Batch], worlds: dict[str, tuple[RuleBase, Ints]]) -> None:
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
            part = batches[start : start + chunk]
            with ProcessPoolExecutor(
                self.jobs, get_context("spawn"), _prepare, (worlds, self.solvers)
            ) as pool:
                self._collect(pool.map(_check, part), start, len(batches))

    def _collect(self, results: Iterator[Findings], done: int, total: int) -> None:
        for number, found in enumerate(results, start=done + 1):
            self.findings.merge(found)
            self.progress("answers", number, total)


def _batches(units: UnitList, paper: set[int]) -> Iterator[_Batch]:
    """Group sub-questions by world and query, so that a batch is about few attributes."""
    keys = [(unit.world_id, unit.query, number) for number, unit in enumerate(units)]
    keys.sort()
    for world_id, group in groupby(keys, key=itemgetter(0)):
        numbers = [number for *_, number in group]
        for start in range(0, len(numbers), BATCH):
            part = numbers[start : start + BATCH]
            yield _Batch(
                world_id, start // BATCH, [units.packed(n) for n in part], [n in paper for n in part]
            )


_checkers: dict[str, UnitChecker] = {}


def _prepare(worlds: dict[str, tuple[RuleBase, Ints]], solvers: Sequence[str]) -> None:
    """Index the rules, once per process."""
    _checkers.clear()
    _checkers.update({name: UnitChecker(base, paper, solvers) for name, (base, paper) in worlds.items()})


def _check(batch: _Batch) -> Findings:
    return _checkers[batch.world_id].check(list(map(unpack, batch.units)), batch.evaluation, batch.number)
