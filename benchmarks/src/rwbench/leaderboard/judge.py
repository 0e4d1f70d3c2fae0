"""From a submission's spec and records to results: questions, pools and gold come from our data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ruleworld_data.scoring import SCORER_VERSION
from ruleworld_data.spec import num_rows

from ..methods import Method
from ..recipes.grid import SCOPES
from ..run.books import source_of
from ..run.data import DataSource, Question
from ..run.environment import environment
from ..run.pools import Pool
from ..run.runner import summarise
from ..run.workspace import Workspace
from ..score.results import Results
from ..score.samples import Sample, check_sample
from ..score.scoring import score
from ..spec import RunSpec
from .files import ENTRY, HOW_TO_WRITE, SAMPLES
from .parsing import Problem, quote, refuse, refuse_if
from .records import Record

SPLITS = ("heldout", "mini", "test")
"""Splits on the board, in its order; train and validation are for building methods."""
HELD_OUT_LIMIT = 50
"""Held-out questions of a sub-task that suffice: 550 in all, as many as `mini` has."""
MAX_TOP_K = 100
PUBLIC_SEED = 0


def pool_design(size: int, scale: str) -> dict[str, Any]:
    """Return the fields of a spec that make a pool of this size, the same for all; a ValueError if there is none."""
    everything = num_rows("rules", "train", scale)
    scopes = {min(known, everything): scope for known, scope in SCOPES.items()}
    if size not in scopes:
        raise ValueError(f"the board has pools of {', '.join(f'{n:,}' for n in scopes)} rules, got {size!r}")
    largest = max(scopes)
    within = largest if size < largest else None
    return {"pool_size": size, "pool_scope": scopes[size], "pool_within": within}


def board_spec(
    method: dict[str, Any],
    representation: str,
    pool_size: int,
    scale: str = "paper",
    split: str = "mini",
    subtasks: Sequence[str] = (),
    seed: int = PUBLIC_SEED,
) -> RunSpec:
    """Return the spec of a method on one of the board's settings; no sub-tasks: all."""
    fields = pool_design(pool_size, scale) | ({"subtasks": tuple(subtasks)} if subtasks else {})
    data = DataSource(scale, seed).data
    world: dict[str, Any] = {"scale": scale, "world_seed": seed, "split": split, "data": data}
    return RunSpec(method=method, representation=representation, **world, **fields)


class Judge:
    """Re-scores submissions on the worlds of ``seeds``, the public one or revealed ones; each is generated once."""

    def __init__(self, seeds: Sequence[int] = (PUBLIC_SEED,)) -> None:
        self.seeds = tuple(seeds)
        self._workspaces: dict[DataSource, Workspace] = {}

    def workspace(self, spec: RunSpec) -> Workspace:
        """Return the questions, rules and pools of a spec's world."""
        source = source_of(spec)
        if source not in self._workspaces:
            self._workspaces[source] = Workspace(source)
        return self._workspaces[source]

    def check_spec(self, values: Any) -> RunSpec:
        """Return a submission's spec; `Refused` if the board has no such setting."""
        try:
            spec = RunSpec.from_dict(values)
            design = pool_design(spec.pool_size, spec.scale)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            what = f"spec is not a run's ({quote(str(error))[1:-1]})"
            refuse(ENTRY, what, HOW_TO_WRITE, value=quote(values))
        allowed: dict[str, tuple[Any, ...]] = {
            "split": SPLITS,
            "world_seed": self.seeds,
            "dials": (None,),
            "data": (DataSource(spec.scale, spec.world_seed).data,),
            "scorer_version": (SCORER_VERSION,),
            "pool_seed": (0,),
            "limit": (None, HELD_OUT_LIMIT) if spec.split == "heldout" else (None,),
            "top_k": tuple(range(1, MAX_TOP_K + 1)),
            **{name: (value,) for name, value in design.items()},
        }
        fixes = {"limit": "run it without --limit", "top_k": f"at most {MAX_TOP_K} rules"}
        problems = [
            Problem(
                ENTRY,
                f"spec.{name} is not on the board",
                fixes.get(name) or f"run it with {' or '.join(map(str, values))}",
                value=quote(getattr(spec, name)),
            )
            for name, values in allowed.items()
            if getattr(spec, name) not in values
        ]
        if len(set(spec.subtasks)) != len(spec.subtasks):
            twice = quote(spec.subtasks)
            problems.append(Problem(ENTRY, "spec.subtasks names one twice", "each once", value=twice))
        refuse_if(problems)
        return spec

    def samples(self, spec: RunSpec, records: Mapping[int, Record], file: str = SAMPLES) -> list[Sample]:
        """Join records, by line of their file, with gold.

        `Refused` if the ids are not exactly those of the split, a rule is not in the question's pool, or a method
        answers or searches on some questions only.
        """
        pools = self.workspace(spec).pools(spec)
        asked = {question.id: (question, pool) for pool in pools for question in pool.questions}
        refuse_if(_mismatches(records, asked, spec, file))
        known = Method.registry.items().get(str(spec.method["name"]))
        several = any(len(record.retrieved or ()) > 1 for record in records.values())
        stepwise = several if known is None else known.stepwise
        return [_sample(record, asked[record.id][0], spec, stepwise) for record in records.values()]

    def results(self, spec: RunSpec, samples: Sequence[Sample], label: str) -> Results:
        """Return results.json as the samples give it; environment and time are this process's own."""
        return summarise(
            spec,
            samples,
            self.workspace(spec),
            num_scheduled=len(samples),
            finished="",
            method={"key": str(spec.method["name"]), "label": label},
            where=environment(),
        )


def _mismatches(
    records: Mapping[int, Record], asked: Mapping[str, tuple[Question, Pool]], spec: RunSpec, file: str
) -> Iterator[Problem]:
    """Yield where records are not those of the questions and pools of a spec."""
    members = {id(pool): frozenset(pool.ids.tolist()) for _, pool in asked.values()}
    seen: dict[str, int] = {}
    for line, record in records.items():
        first = seen.setdefault(record.id, line)
        if first != line:
            yield Problem(file, "an id occurs twice", f"keep line {first}", line, quote(record.id))
        elif record.id not in asked:
            fix = f"ids are those of split {spec.split}, scale {spec.scale}, the spec's sub-tasks"
            yield Problem(file, "is not the id of a question asked", fix, line, quote(record.id))
        else:
            pool = members[id(asked[record.id][1])]
            for search in record.retrieved or ():
                if len(search) > spec.top_k:
                    what = f"a search returns more than spec.top_k = {spec.top_k} rules"
                    yield Problem(file, what, "shorten it", line, quote(len(search)))
                elif not pool.issuperset(search):
                    rule = next(rule for rule in search if rule not in pool)
                    fix = "rank the rules of the pool only"
                    yield Problem(file, "a rule is not in the question's pool", fix, line, quote(rule))
    missing = [name for name in asked if name not in seen]
    if missing:
        what = f"{len(missing):,} of {len(asked):,} questions are missing"
        fix = "every question has a line; one without an answer has an empty list of answers"
        yield Problem(file, what, fix, value=quote(missing[0]))
    for field in ("answers", "retrieved"):
        without = [line for line, record in records.items() if getattr(record, field) is None]
        if 0 < len(without) < len(records):
            fix = "give an empty list where there is none, or null on all"
            yield Problem(file, f"{field} is null on some questions only", fix, without[0])
    if records and all(record.answers is None and record.retrieved is None for record in records.values()):
        yield Problem(file, "there are neither answers nor rules found", "give at least one of them")


def _sample(record: Record, question: Question, spec: RunSpec, stepwise: bool) -> Sample:
    """Return the sample of a record: gold from our data, scores computed."""
    values = record.model_dump()
    sample = {
        **values,
        "usage": record.usage.model_dump(exclude_none=True),
        "subtask": question.subtask,
        "world_id": question.world_id,
        "fold": question.fold,
        "gold_answers": list(question.answers),
        "gold_rules": [list(step) for step in question.gold_steps],
        "scores": score(
            record.answers,
            question.answers,
            record.retrieved,
            question.gold_steps,
            spec.pool_size,
            stepwise,
        ),
        "trace": [],
        "measures": {},
        "seconds": 0.0,
        "error": None,
    }
    return check_sample(sample)
