"""The board's settings: their kits, and from a submission's spec and records to results, with gold from our data.

A kit is what a method may see of a setting, as files: questions, rules and pools. No answers, no proofs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from ruleworld_data.io import whole_folder
from ruleworld_data.spec import HEADLINE_SPLITS, data_version

from ..methods import Method
from ..recipes import SCOPES, Options, nested_pools
from ..run.books import source_of
from ..run.data import DataSource, Question
from ..run.pools import Pool, pools_of
from ..run.runner import summarise
from ..score.results import MethodName, Results
from ..score.samples import Sample, check_sample
from ..score.scoring import score
from ..spec import RunSpec, json_bytes, json_line, spec_differences, usual_version
from .files import ENTRY, HOW_TO_WRITE, SAMPLES, Refused, quote
from .records import Record

SPLITS = ("unseen", "heldout", "mini", "test")
"""Splits on the board, in its order; train and validation are for building methods."""
RELEASED = {"1.1.0": "2026-11-28", "1.2.0": "2026-11-28"}
"""Versions of the data that the board takes, oldest first, and the day that each came out: no result is older."""
HELD_OUT_LIMIT = 50
"""Held-out questions of a sub-task that suffice: 550 in all, as many as `mini` has."""
MAX_TOP_K = 100
CELL = ("scale", "split", "subtasks", "representation", "pool_size", "data")
"""Fields of a spec that submissions share if they are compared."""

QUESTIONS, POOLS, RULES = "questions.jsonl", "pools.jsonl", "rules.parquet"
SETTING_FILE, SETTING = "setting.json", ("pool_size", "scale", "split", "subtasks", "data")
"""What was asked; of a sealed round, all of it is public."""
METHOD = {"name": "kit"}
"""Stands in a spec whose questions and pools alone matter."""


def board_spec(
    method: dict[str, Any],
    representation: str,
    pool_size: int,
    scale: str = "paper",
    split: str = "mini",
    subtasks: Sequence[str] = (),
    seed: int = 0,
    data: str = "",
) -> RunSpec:
    """Return the spec of a method on one of the board's settings, whose pools are the same for all methods.

    No sub-tasks: all; no ``data``: the version in which the split is usually asked. A ValueError if the board has no
    pools of this size.
    """
    options = Options(DataSource(scale, seed, version=data_version(data or usual_version(split))), split)
    pools = {pool[0]: pool for pool in nested_pools(options, SCOPES)}
    if pool_size not in pools:
        sizes = ", ".join(f"{size:,}" for size in sorted(pools))
        raise ValueError(f"the board has pools of {sizes} rules, got {pool_size!r}")
    spec = options.spec(method, representation, *pools[pool_size])
    return replace(spec, subtasks=tuple(subtasks)) if subtasks else spec


def write_kit(folder: Path, spec: RunSpec) -> None:
    """Write the kit of a spec's setting as a folder, whole or not at all; a FileExistsError if one is there."""
    source = source_of(spec)
    pools = pools_of(spec, source)
    # Sorted: the order of a shared list of rules says nothing.
    members = [sorted(pool.ids.tolist()) for pool in pools]
    questions = (
        {"id": question.id, "subtask": question.subtask, "question": question.text, "pool": number}
        for number, pool in enumerate(pools)
        for question in pool.questions
    )
    rules = source.rules(spec.split).take(sorted(set().union(*members)))
    with whole_folder(folder) as part:
        (part / SETTING_FILE).write_bytes(json_bytes({name: getattr(spec, name) for name in SETTING}))
        (part / QUESTIONS).write_bytes(b"".join(map(json_line, questions)))
        lines = (json_line({"pool": number, "rules": ids}) for number, ids in enumerate(members))
        (part / POOLS).write_bytes(b"".join(lines))
        pq.write_table(rules.select(["id", "type", "nl", "fol"]), part / RULES, compression="zstd")


def read_setting(folder: Path) -> dict[str, Any]:
    """Return the setting of a kit, as `board_spec` takes it; a ValueError if it was damaged."""
    path = folder / SETTING_FILE
    if not path.is_file():
        raise FileNotFoundError(f"no {path}, so {folder} is no kit; write one: rwbench kit {folder}")
    try:
        setting = json.loads(path.read_bytes())
        return {name: setting[name] for name in SETTING}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{path} is not as `rwbench kit` writes it; write the kit anew") from None


def same_kit(first: Path, second: Path) -> bool:
    """Whether two kits have the same questions, pools and rules; Parquet's bytes depend on the library's version."""
    texts = ([(kit / name).read_bytes() for name in (QUESTIONS, POOLS)] for kit in (first, second))
    return next(texts) == next(texts) and pq.read_table(first / RULES).equals(pq.read_table(second / RULES))


def cell_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a spec or a row shares with those that it is compared with; the order of sub-tasks is none of it."""
    return tuple(tuple(sorted(values[name])) if name == "subtasks" else values[name] for name in CELL)


def looks_at_gold(method: Mapping[str, Any]) -> str | None:
    """Return what of a method's spec reads gold data; None if nothing does."""
    if method.get("rules") in ("gold", "without_gold"):
        return str(method["rules"])
    if method.get("correct_layer") is not None:
        return "correct_layer"
    return "solver" if method.get("name") == "solver" else None


def check_spec(values: Any) -> RunSpec:
    """Return a submission's spec; `Refused` if the board has no such setting."""
    try:
        spec = RunSpec.from_dict(values)
        setting = (spec.pool_size, spec.scale, spec.split, spec.subtasks)
        data = spec.data if spec.data in RELEASED else [*RELEASED][-1]
        ours = board_spec(spec.method, spec.representation, *setting, data=data)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        what = f"spec is not a run's ({quote(str(error))[1:-1]}), got {quote(values)}"
        raise Refused(f"{ENTRY}: {what}; {HOW_TO_WRITE}") from None
    limit = HELD_OUT_LIMIT if spec.split in HEADLINE_SPLITS[:2] and spec.limit == HELD_OUT_LIMIT else None
    ours = replace(ours, limit=limit, top_k=min(spec.top_k, MAX_TOP_K))
    wrong = spec_differences(spec.to_dict(), ours.to_dict())
    if spec.split not in SPLITS:
        wrong["split"] = [spec.split, " or ".join(SPLITS)]
    if len(set(spec.subtasks)) != len(spec.subtasks):
        wrong["subtasks"] = [spec.subtasks, "each sub-task once"]
    if wrong:
        problems = (
            f"{ENTRY}: spec.{name} is not on the board, got {quote(theirs)}; run it with {allowed}"
            for name, (theirs, allowed) in wrong.items()
        )
        raise Refused("\n".join(problems))
    return spec


def judge(
    spec: RunSpec, records: Mapping[int, Record], label: str, file: str = SAMPLES
) -> tuple[list[Sample], Results]:
    """Join records, by line of their file, with gold, and score them; environment and time are this process's own.

    `Refused` if the ids are not exactly those of the split, a rule is not in the question's pool, or a method answers
    or searches on some questions only.
    """
    pools = pools_of(spec, source_of(spec))
    questions = {question.id: (question, pool) for pool in pools for question in pool.questions}
    _check_questions(records, questions, spec, file)
    known = Method.registry.items().get(str(spec.method["name"]))
    several = any(len(record.retrieved or ()) > 1 for record in records.values())
    stepwise = several if known is None else known.stepwise
    samples = [_sample(record, questions[record.id][0], spec, stepwise) for record in records.values()]
    method: MethodName = {"key": str(spec.method["name"]), "label": label}
    results = summarise(spec, samples, pools, num_scheduled=len(samples), finished="", method=method)
    return samples, results


def _check_questions(
    records: Mapping[int, Record], questions: Mapping[str, tuple[Question, Pool]], spec: RunSpec, file: str
) -> None:
    """Refuse records that are not one for each question, leave a field out on some, or rank what the pool lacks."""
    lines: dict[str, int] = {}
    members = {id(pool): frozenset(pool.ids.tolist()) for _, pool in questions.values()}
    for line, record in records.items():
        place = f"{file}, line {line}"
        if record.id not in questions:
            what = f"is not the id of a question asked, got {quote(record.id)}"
            raise Refused(f"{place}: {what}; ids are those of split {spec.split}, scale {spec.scale}")
        if (first := lines.setdefault(record.id, line)) != line:
            raise Refused(f"{place}: an id occurs twice, got {quote(record.id)}; keep line {first}")
        pool = members[id(questions[record.id][1])]
        for search in record.retrieved or ():
            if len(search) > spec.top_k:
                what = f"a search returns more than spec.top_k = {spec.top_k} rules, got {len(search)}"
                raise Refused(f"{place}: {what}; shorten it")
            if others := [rule for rule in search if rule not in pool]:
                what = f"a rule is not in the question's pool, got {quote(others[0])}"
                raise Refused(f"{place}: {what}; rank the rules of the pool only")
    if missing := [name for name in questions if name not in lines]:
        what = f"{len(missing):,} of {len(questions):,} questions are missing, first {quote(missing[0])}"
        raise Refused(f"{file}: {what}; give each a line, one without an answer an empty list of answers")
    given = 0
    for field in ("answers", "retrieved"):
        empty = [line for line, record in records.items() if getattr(record, field) is None]
        if 0 < len(empty) < len(records):
            what = f"{field} is null on some questions only"
            raise Refused(f"{file}, line {empty[0]}: {what}; give an empty list there, or null on all")
        given += not empty
    if not given:
        raise Refused(f"{file}: there are neither answers nor rules found; give at least one of them")


def _sample(record: Record, question: Question, spec: RunSpec, stepwise: bool) -> Sample:
    """Return the sample of a record: gold from our data, scores computed."""
    sample = record.model_dump() | question.of_sample
    sample |= {"trace": [], "measures": {}, "seconds": 0.0, "error": None}
    return check_sample(sample | {"scores": score(sample, spec.pool_size, stepwise)})
