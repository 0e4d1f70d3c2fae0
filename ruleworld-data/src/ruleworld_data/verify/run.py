"""The whole verification, from a folder to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..io.builds import read_build, world_spec
from ..io.shards import plan
from ..spec import check_count
from .answers import check_answers
from .asp import import_clingo
from .files import check_files
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
    parsed rules; every distinct sub-question is answered again under its gold rules and under all rules that bear
    on it, by each solver.

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
        `Report.ok` says whether all is well.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If a file is not what the manifest says, or an argument is wrong.
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
    spec, counts = world_spec(read_build(folder)), dict[str, int]()
    shards = plan(spec.scale, spec.seed, spec.version, spec.dials)
    check_files(folder, shards, findings["files"], tell)
    if findings["files"].failures:
        findings.skip("files are not as they should be")
    else:
        rules, questions = ([s for s in shards if (s.config == "rules") == are] for are in (True, False))
        worlds = check_rules(folder, rules, findings, tell)
        scan = check_questions(folder, questions, worlds, findings, tell)
        counts["rules"] = sum(map(len, worlds.values()))
        counts["questions"] = findings["question_shape"].checked
        counts |= {"sub_questions": scan.parts, "distinct_sub_questions": len(scan.subquestions)}
        if findings["C3"].failures:
            findings.skip("attribute changes are circular (C3)")
        else:
            check_answers(scan, worlds.values(), solvers, jobs, tell)
            for solver in set(SOLVERS) - set(solvers):
                findings.skip(f"needs the solver {solver}")
    checks = [findings[name] for name in CHECKS]
    return Report(str(folder), spec.scale, spec.generator, spec.seed, checks, counts)
