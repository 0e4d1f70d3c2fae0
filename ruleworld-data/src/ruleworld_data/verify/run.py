"""The whole verification, from a folder to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..io.builds import read_manifest
from ..spec import RULE_SPLITS, check_count
from .answers import check_answers
from .asp import import_clingo
from .files import check_shards
from .report import CHECKS, Findings, Report, StageProgress
from .rules import check_rules
from .scan import check_questions

SOLVERS = ("executor", "clingo")


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
    worlds = check_rules(folder, [shard for shard in shards if shard.config == "rules"], findings, tell)
    counts = {"rules": sum(map(len, worlds.values()))}
    if missing := set(RULE_SPLITS) - worlds.keys():
        findings.skip(f"the rules of {' and '.join(sorted(missing))} could not be read")
    else:
        questions = [shard for shard in shards if shard.config != "rules"]
        scan = check_questions(folder, questions, worlds, findings, tell)
        counts["questions"] = findings["question_shape"].checked
        counts |= {"sub_questions": scan.parts, "distinct_sub_questions": len(scan.subquestions)}
        if findings["C3"].failures:
            findings.skip("attribute changes are circular (C3)")
        else:
            check_answers(scan, worlds.values(), solvers, jobs, tell)
            for solver in set(SOLVERS) - set(solvers):
                findings.skip(f"needs the solver {solver}")
    scale, version = str(manifest.get("scale")), str(manifest.get("generator_version"))
    checks = [findings[name] for name in CHECKS]
    return Report(str(folder), scale, version, manifest.get("seed", -1), checks, counts)
