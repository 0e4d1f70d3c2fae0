"""results.json: what a finished run says, as typed JSON objects that pydantic checks; reading and writing it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter, ValidationError, with_config
from ruleworld_data.io import write_whole
from typing_extensions import TypedDict

from ..run.environment import Environment
from ..run.samples import OPEN, STRICT
from ..spec import RunSpec, in_words

SCHEMA_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 2 added groups, details, outcomes, usage and measures; readers treat them as absent in version 1."""
FILE_NAME = "results.json"

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MetricName = Annotated[str, Field(pattern="^((step_|expected_)?recall@[0-9]+|exact_match|strict_match)$")]


class _SpecSchema:
    """Describes a stored spec as a `RunSpec`; `RunSpec.from_dict` checks it where it is run or scored again."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return handler(TypeAdapter(RunSpec).core_schema)


StoredSpec = Annotated[dict[str, Any], _SpecSchema()]


@with_config(STRICT)
class Estimate(TypedDict):
    """A mean with its 95 % interval, rounded to six decimals; ``method`` says how the interval was found."""

    value: Share
    ci_low: Share
    ci_high: Share
    n: Positive
    method: Literal["bootstrap", "wilson", "none"]


@with_config(STRICT)
class Folds(TypedDict):
    """Split mini: the macro average of each fold, their standard deviation and the t interval's half width."""

    values: Annotated[list[float], Field(min_length=2)]
    std: Amount
    t_half: Amount
    displayed: NotRequired[
        Annotated[
            list[float] | None,
            Field(
                description="per fold, the mean over the columns of the paper's main table; null if one is missing"
            ),
        ]
    ]


@with_config(STRICT)
class Metric(TypedDict):
    """One metric over sub-tasks of equal weight, by sub-task, and by groups that the paper reports as one column."""

    macro: Estimate
    by_subtask: dict[str, Estimate]
    by_group: dict[str, Estimate]
    folds: NotRequired[Folds | None]


@with_config(STRICT)
class Details(TypedDict):
    """Recall by step of the proof, and by type of the gold rules: metric -> step or type -> estimate."""

    by_step: dict[str, dict[str, Estimate]]
    by_rule_type: NotRequired[dict[str, dict[str, Estimate]]]


@with_config(STRICT)
class MethodName(TypedDict):
    """How reports call the method; equal keys share one colour."""

    key: str
    label: str


@with_config(STRICT)
class Counts(TypedDict):
    """Questions; failed ones are in no metric."""

    scheduled: Count
    scored: Count
    failed: Count


@with_config(STRICT)
class Total(TypedDict):
    """A cost that does not depend on the machine, over all questions and per question."""

    total: float
    mean: float


@with_config(STRICT)
class Entropy(TypedDict):
    """Entropy of attention over rules in nats by layer, over ``n`` questions."""

    layers: list[Count]
    mean: list[float]
    std: list[Amount]
    n: Positive


@with_config(STRICT)
class AttentionMap(TypedDict):
    """Weight on gold steps: a row per retrieval, a column per gold step; ``n`` questions per row."""

    weights: list[list[float]]
    n: list[Count]


@with_config(STRICT)
class MeanMeasures(TypedDict, total=False):
    """What an analysis measured, averaged over questions; ``rule_attention`` by number of gold steps."""

    rule_entropy: Entropy
    rule_attention: dict[str, AttentionMap]


@with_config(OPEN)
class Timing(TypedDict):
    """``seconds``: sum over samples; ``stages``: seconds by stage; ``finished``: ISO 8601."""

    seconds: Amount
    stages: NotRequired[dict[str, Amount]]
    finished: str


@with_config(STRICT)
class Results(TypedDict):
    """The content of results.json, schema version 2; ``run_id`` is the start of the spec's hash."""

    schema_version: Literal[2]
    run_id: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    spec: StoredSpec
    method: MethodName
    n: Counts
    metrics: Annotated[dict[MetricName, Metric], Field(json_schema_extra={"additionalProperties": False})]
    details: Details
    outcomes: Annotated[dict[str, Positive], Field(description="how many samples ended how, failed included")]
    usage: dict[str, Total]
    measures: MeanMeasures
    samples_sha256: Annotated[
        Sha256, Field(description="over the samples in the order of their ids, without their timing")
    ]
    pool_sha256: Annotated[Sha256, Field(description="over the rule ids of all pools, in order")]
    environment: Environment
    timing: Timing


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Results]:
    return TypeAdapter(Results)


def check_results(value: Any) -> Results:
    """Return a JSON value if it is what results.json of this version holds, itself and unchanged.

    The spec is looked at by whoever runs it again (`RunSpec.from_dict`).

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, or has another type or range.
    """
    _adapter().validate_python(value)
    return value


@lru_cache(maxsize=1)
def results_schema() -> dict[str, Any]:
    """Return the JSON Schema of results.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter().json_schema()}


def write_results(folder: Path, results: Results) -> None:
    """Write a run's results in one step."""
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(folder / FILE_NAME, text.encode())


def read_results(folder: Path) -> Results | None:
    """Return a run's results, or None if it has none yet.

    Raises
    ------
    ValueError
        If the file is not readable or has another schema version.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        found = results["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is not a results file; delete it and run the recipe again to rewrite it"
        ) from None
    if found not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise ValueError(
            f"{path} has schema version {found!r}, this rwbench reads {known}; delete it and run the "
            "recipe again: samples are kept, only the summary is rewritten"
        )
    if found == SCHEMA_VERSION:
        try:
            check_results(results)
        except ValidationError as error:
            raise ValueError(
                f"{path} is not a results file ({in_words(error)}); delete it and run the recipe again to rewrite it"
            ) from None
    return results


def find_results(folder: Path) -> list[Results]:
    """Return the results of all runs below a folder, by folder name."""
    paths = sorted(folder.glob(f"**/{FILE_NAME}"))
    return [results for path in paths if (results := read_results(path.parent)) is not None]
