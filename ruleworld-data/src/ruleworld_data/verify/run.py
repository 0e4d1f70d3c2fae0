"""The whole verification, from a folder to a report."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..io.builds import read_build, world_spec
from ..io.schema import QUESTION_SCHEMA, rule_schema
from ..io.shards import Shard, plan
from ..spec import check_count
from .answers import check_answers
from .asp import import_clingo
from .report import Report, StageProgress
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
    folder, tell = Path(build_dir), progress or (lambda stage, done, total: None)
    spec = world_spec(read_build(folder, shape=False))
    report = Report(str(folder), spec.scale, spec.generator, spec.seed)
    shards = plan(spec)
    for done, shard in enumerate(shards, start=1):
        report["files"].checked += 1
        if problem := _problem(folder / shard.path, shard):
            report["files"].fail(f"{shard.path}: {problem}")
        tell("files", done, len(shards))
    if report["files"].failures:
        report.skip("files are not as they should be")
        return report
    rules, questions = ([s for s in shards if (s.config == "rules") == are] for are in (True, False))
    worlds = check_rules(folder, rules, report, tell)
    scan = check_questions(folder, questions, worlds, report, tell)
    report.counts = {
        "rules": sum(map(len, worlds.values())),
        "questions": report["question_shape"].checked,
        "sub_questions": scan.parts,
        "distinct_sub_questions": len(scan.subquestions),
    }
    if report["C3"].failures:
        report.skip("attribute changes are circular (C3)")
        return report
    check_answers(scan, worlds.values(), solvers, jobs, tell)
    for solver in set(SOLVERS) - set(solvers):
        report.skip(f"needs the solver {solver}")
    return report


def _problem(path: Path, shard: Shard) -> str:
    """Say what is wrong with a file: whoever wrote the manifest, which has its digest, may have written it as well."""
    rows, holes = 0, 0
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            for batch in file.iter_batches():
                batch.validate(full=True)  # texts that are no UTF-8 would end the later stages
                rows, holes = rows + len(batch), holes + batch.column(0).null_count
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"no readable parquet file ({str(error).splitlines()[0][:80]})"
    wanted = rule_schema(shard.spec.dials) if shard.config == "rules" else QUESTION_SCHEMA
    has, needs = ([(field.name, field.type) for field in columns] for columns in (schema, wanted))
    if has != needs:
        spelt = (", ".join(f"{name} {kind}" for name, kind in columns) for columns in (has, needs))
        return f"columns {'; expected '.join(spelt)}"
    if holes:
        return f"column id holds {holes:,} nulls"
    return f"{rows:,} rows, expected {shard.rows:,}" if rows != shard.rows else ""
