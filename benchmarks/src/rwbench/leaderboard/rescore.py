"""From a submission's spec and records to results: questions, pools and gold come from our data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruleworld_data.scoring import SCORER_VERSION
from ruleworld_data.spec import num_rows

from ..recipes.grid import SCOPES
from ..run.data import DataSource
from ..run.pools import pools_sha256
from ..run.runner import Workspace
from ..run.samples import Sample
from ..score.results import MethodName, Results
from ..score.summarise import summarise
from ..spec import RunSpec
from .files import RESULTS, SAMPLES
from .records import Record, join
from .refusals import Problem, Refused, few, shown

SPLITS = ("mini", "test")
"""Splits on the board; train and validation are for building methods, heldout is an analysis."""
MAX_TOP_K = 100
PUBLIC_SEED = 0


def pool_design(size: int, scale: str) -> dict[str, Any]:
    """Return the fields of a spec that make a pool of this size, the same for all submissions.

    Raises
    ------
    ValueError
        If the board has no pools of this size.
    """
    everything = num_rows("rules", "train", scale)
    scopes = {min(known, everything): scope for known, scope in SCOPES.items()}
    if size not in scopes:
        raise ValueError(f"the board has pools of {', '.join(f'{n:,}' for n in scopes)} rules, got {size!r}")
    largest = max(scopes)
    return {
        "pool_size": size,
        "pool_scope": scopes[size],
        "pool_within": largest if size < largest else None,
    }


class Judge:
    """Re-scores submissions; worlds are generated once and shared.

    Parameters
    ----------
    seeds : sequence of int
        Worlds that are known: the public one, and those of rounds that were revealed.
    """

    def __init__(self, seeds: Sequence[int] = (PUBLIC_SEED,)) -> None:
        self.seeds = tuple(seeds)
        self._workspaces: dict[tuple[str, int], Workspace] = {}

    def workspace(self, scale: str, seed: int) -> Workspace:
        """Return the questions, rules and pools of a world."""
        if (scale, seed) not in self._workspaces:
            self._workspaces[scale, seed] = Workspace(DataSource(scale, seed))
        return self._workspaces[scale, seed]

    def check_spec(self, values: Any) -> RunSpec:
        """Return a submission's spec; `Refused` if the board has no such setting."""
        try:
            spec = RunSpec.from_dict(values)
            design = pool_design(spec.pool_size, spec.scale)
        except (ValueError, TypeError, AttributeError) as error:
            raise Refused(
                Problem(
                    RESULTS,
                    f"spec is not a run's ({error})",
                    "write the folder with `rwbench submit RUN`",
                    value=shown(values),
                )
            ) from None
        ours = DataSource(spec.scale, spec.world_seed).version
        wanted: dict[str, tuple[Any, ...]] = {
            "split": SPLITS,
            "world_seed": self.seeds,
            "data": (ours,),
            "scorer_version": (SCORER_VERSION,),
            "pool_seed": (0,),
            "limit": (None,),
            **{name: (value,) for name, value in design.items()},
        }
        problems = [
            Problem(
                RESULTS,
                f"spec.{name} is not on the board",
                "run it without --limit"
                if name == "limit"
                else f"run it with {' or '.join(map(str, allowed))}",
                value=shown(getattr(spec, name)),
            )
            for name, allowed in wanted.items()
            if getattr(spec, name) not in allowed
        ]
        if spec.top_k > MAX_TOP_K:
            problems.append(
                Problem(
                    RESULTS, "spec.top_k is too large", f"at most {MAX_TOP_K} rules", value=shown(spec.top_k)
                )
            )
        if not spec.subtasks or len(set(spec.subtasks)) != len(spec.subtasks):
            problems.append(
                Problem(
                    RESULTS,
                    "spec.subtasks is empty or names one twice",
                    "each once",
                    value=shown(spec.subtasks),
                )
            )
        if problems:
            raise Refused(*problems)
        return spec

    def samples(self, spec: RunSpec, records: Mapping[int, Record], file: str = SAMPLES) -> list[Sample]:
        """Join records, by line of their file, with gold.

        Raises
        ------
        Refused
            If the ids are not exactly those of the split, a rule is not in the question's pool, or a method answers or
            searches on some questions only.
        """
        pools = self.workspace(spec.scale, spec.world_seed).pools(spec)
        asked = {question.id: (question, pool) for pool in pools for question in pool.questions}
        members = {id(pool): frozenset(pool.ids.tolist()) for pool in pools}
        problems: list[Problem] = []
        seen: dict[str, int] = {}
        for line, record in records.items():
            name = record["id"]
            if name in seen:
                problems.append(
                    Problem(file, "an id comes twice", f"keep line {seen[name]}", line, shown(name))
                )
            elif name not in asked:
                mend = f"ids are those of split {spec.split}, scale {spec.scale}, the spec's sub-tasks"
                problems.append(Problem(file, "is no id of a question asked", mend, line, shown(name)))
            else:
                outside = _outside(record, members[id(asked[name][1])], spec)
                problems += [Problem(file, *outside[:2], line, shown(outside[2]))] if outside else []
            seen.setdefault(name, line)
        missing = [name for name in asked if name not in seen]
        if missing:
            what = f"{len(missing):,} of {len(asked):,} questions are missing"
            mend = "every question has a line; one without an answer has an empty list of answers"
            problems.append(Problem(file, what, mend, value=shown(missing[0])))
        for field in ("answers", "retrieved"):
            without = [line for line, record in records.items() if record[field] is None]
            if without and len(without) < len(records):
                mend = "an empty list on questions that got none, or null on all"
                problems.append(Problem(file, f"{field} is null on some questions only", mend, without[0]))
            elif without and field == "retrieved" and all(r["answers"] is None for r in records.values()):
                problems.append(Problem(file, "neither answers nor retrieved rules", "hand in one of them"))
        if problems:
            raise Refused(*few(problems))
        return [join(record, asked[record["id"]][0], spec) for record in records.values()]

    def results(self, spec: RunSpec, samples: Sequence[Sample], method: MethodName) -> Results:
        """Return results.json as the samples give it; environment and time are this process's own."""
        workspace = self.workspace(spec.scale, spec.world_seed)
        pools = workspace.pools(spec)
        gold = {rule for sample in samples for step in sample["gold_rules"] for rule in step}
        types = workspace.rules(spec.split).types(gold)
        timing = {"seconds": round(sum(sample["seconds"] for sample in samples), 3), "finished": ""}
        return summarise(spec, samples, len(samples), pools_sha256(pools), timing, types, method)


def _outside(record: Record, pool: frozenset[int], spec: RunSpec) -> tuple[str, str, Any] | None:
    for found in record["retrieved"] or ():
        if len(found) > spec.top_k:
            return f"a search returns more than spec.top_k = {spec.top_k} rules", "cut it", len(found)
        for rule in found:
            if rule not in pool:
                return "a rule is not in the question's pool", "rank the rules of the pool only", rule
    return None
