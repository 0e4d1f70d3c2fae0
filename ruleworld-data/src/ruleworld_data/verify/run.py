"""The whole verification, from a folder to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ..io.builds import read_manifest
from ..io.shards import Shard
from ..io.workers import start_worker
from ..spec import RULE_SPLITS, check_count
from .answers import AnswerChecker
from .asp import BATCH, import_clingo
from .files import check_shards
from .reader import TableReader
from .report import CHECKS, Findings, Report, StageProgress
from .rows import RowChecker
from .rulebase import RuleBase
from .rules import check_constraints, check_heldout, read_rules
from .scan import Scan, SubQuestion

SOLVERS = ("executor", "clingo")
_WORTH_A_PROCESS = 10
"""Batches that take longer than starting a process."""
_LIFETIME = 100
"""Batches that a process checks before it is replaced."""

_NAMES = list(CHECKS)
_QUESTION_CHECKS = ("C6", *_NAMES[_NAMES.index("question_shape") :])
_RULE_CHECKS = [n for n in _NAMES if n.startswith(("rule_", "C")) and n not in _QUESTION_CHECKS]
_CHECKS_OF = {solver: [n for n in _NAMES if n.startswith("C9") and n.endswith(solver)] for solver in SOLVERS}
_CHECKS_OF["executor"] += ["C6", "steps", "step_texts", "needed"]


class _Batch(NamedTuple):
    world_id: str
    number: int
    asked: list[SubQuestion]
    in_paper: list[bool]


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
    if not solvers or not set(solvers) <= set(SOLVERS):
        given = ", ".join(map(str, solvers)) or "none"
        raise ValueError(f"solvers must be one or both of {', '.join(SOLVERS)}, got {given}")
    check_count("jobs", jobs, 1)
    if "clingo" in solvers:
        import_clingo()
    folder, tell, findings = Path(build_dir), progress or (lambda stage, done, total: None), Findings()
    manifest = read_manifest(folder)
    shards = check_shards(folder, manifest, findings, tell)
    worlds = _rules(folder, [shard for shard in shards if shard.config == "rules"], findings, tell)
    counts = {"rules": sum(map(len, worlds.values()))}
    if missing := set(RULE_SPLITS) - worlds.keys():
        reason = f"the rules of {' and '.join(sorted(missing))} could not be read"
        findings.skip(reason, "heldout", *_QUESTION_CHECKS, *([] if worlds else _RULE_CHECKS))
    else:
        questions = [shard for shard in shards if shard.config != "rules"]
        scan = _questions(folder, questions, worlds, findings, tell)
        counts |= {"questions": scan.rows, "sub_questions": scan.parts}
        counts["distinct_sub_questions"] = len(scan.asked)
        if findings["C3"].failures:
            names = ("scopes", "gold_rules", *_CHECKS_OF["executor"], *_CHECKS_OF["clingo"])
            findings.skip("attribute changes are circular (C3)", *names)
        else:
            _answers(scan, {base.world_id: base for base in worlds.values()}, solvers, jobs, tell)
        for solver in set(SOLVERS) - set(solvers):
            findings.skip(f"needs the solver {solver}", *_CHECKS_OF[solver])
    scale, version = str(manifest.get("scale")), str(manifest.get("generator_version"))
    checks = [findings[name] for name in CHECKS]
    return Report(str(folder), scale, version, manifest.get("seed", -1), checks, counts)


def _rules(
    folder: Path, shards: list[Shard], findings: Findings, progress: StageProgress
) -> dict[str, RuleBase]:
    """Read and check the rules of both worlds, as far as their files can be read."""
    reader, worlds = TableReader(), {}
    for done, split in enumerate(RULE_SPLITS, start=1):
        if own := [shard for shard in shards if shard.split == split]:
            worlds[split] = read_rules(reader, folder, own, findings)
            check_constraints(worlds[split], findings)
        progress("rules", done, len(RULE_SPLITS))
    if len(worlds) == len(RULE_SPLITS):
        check_heldout(worlds["train"], worlds["heldout"], findings)
    return worlds


def _questions(
    folder: Path,
    shards: list[Shard],
    worlds: dict[str, RuleBase],
    findings: Findings,
    progress: StageProgress,
) -> Scan:
    """Check every row, and reduce the rows to distinct sub-questions."""
    scan = Scan(folder, findings)
    rows = RowChecker(scan, {base.world_id: base for base in worlds.values()})
    for done, shard in enumerate(shards, start=1):
        base = worlds["heldout" if shard.split == "heldout" else "train"]
        for part in scan.shard(shard, base.world_id):
            rows.rows(part)
        progress("questions", done, len(shards))
    rows.finish()
    return scan


def _answers(
    scan: Scan, worlds: dict[str, RuleBase], solvers: Sequence[str], jobs: int, progress: StageProgress
) -> None:
    """Run the solvers."""
    batches = list(_batches(scan))

    def collect(results: Iterator[Findings], done: int) -> None:
        for number, found in enumerate(results, start=done + 1):
            scan.findings.merge(found)
            progress("answers", number, len(batches))

    if jobs == 1 or len(batches) < 2 * _WORTH_A_PROCESS:
        _prepare(worlds, solvers)
        collect(map(_check, batches), 0)
        _checkers.clear()
        return
    # Clingo never frees a symbol, so processes are replaced now and then. They are spawned, so that none inherits
    # locks of Arrow's threads.
    chunk = _LIFETIME * jobs
    for start in range(0, len(batches), chunk):
        with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare, (worlds, solvers)) as pool:
            collect(pool.map(_check, batches[start : start + chunk]), start)


def _batches(scan: Scan) -> Iterator[_Batch]:
    """Group sub-questions by world and query, so that a batch is about few attributes."""
    paper = set().union(*(scan.splits.get(split, set()) for split in ("validation", "test", "mini")))
    keys = sorted((asked.world_id, asked.query, number) for number, asked in enumerate(scan.asked))
    for world_id, group in groupby(keys, key=itemgetter(0)):
        numbers = [number for *_, number in group]
        for start in range(0, len(numbers), BATCH):
            part = numbers[start : start + BATCH]
            yield _Batch(world_id, start // BATCH, [scan.asked[n] for n in part], [n in paper for n in part])


_checkers: dict[str, AnswerChecker] = {}


def _prepare(worlds: dict[str, RuleBase], solvers: Sequence[str]) -> None:
    """Index the rules, once per process."""
    start_worker()
    _checkers.clear()
    _checkers.update({name: AnswerChecker(base, solvers) for name, base in worlds.items()})


def _check(batch: _Batch) -> Findings:
    return _checkers[batch.world_id].check(batch.asked, batch.in_paper, batch.number)
