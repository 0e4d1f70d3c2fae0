"""results.json: what a finished run says, as typed JSON objects that pydantic checks; reading and writing it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, with_config
from pydantic_core import from_json
from ruleworld_data.io import write_whole
from ruleworld_data.scoring import SELECTIVE
from typing_extensions import TypedDict

from ..registry import Positive, Share
from ..spec import RunSpec, in_words, json_bytes
from .packed import PACKED_RESULTS, PACKED_SAMPLES, is_packed, packed_results, packed_samples, write_packed
from .samples import OPEN, SAMPLES_FILE, STRICT, Sample, read_samples

FILE_NAME = "results.json"

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
StepNumber = Annotated[str, Field(pattern="^[1-9][0-9]?$")]
_METRICS = "|".join(("(step_)?recall@[0-9]+", "exact_match", "strict_match", *SELECTIVE))
MetricName = Annotated[str, Field(pattern=f"^({_METRICS})$")]


def _check_spec(spec: dict[str, Any]) -> dict[str, Any]:
    RunSpec.from_dict(spec)
    return spec


class Estimate(TypedDict):
    """A mean with its 95 % interval, rounded to six decimals; ``method`` says how the interval was found."""

    value: Share
    ci_low: Share
    ci_high: Share
    n: Positive
    method: Literal["bootstrap", "wilson", "none"]


class Folds(TypedDict):
    """Split mini: the macro average of each fold, their standard deviation and the t interval's half width."""

    values: Annotated[list[float], Field(min_length=2)]
    std: Amount
    t_half: Amount
    # Per fold, the mean over the columns of the paper's main table; null if one is missing.
    displayed: NotRequired[list[float] | None]


class Metric(TypedDict):
    """One metric over sub-tasks of equal weight, by sub-task, and by groups that the paper reports as one column."""

    macro: Estimate
    by_subtask: dict[str, Estimate]
    by_group: dict[str, Estimate]
    folds: NotRequired[Folds | None]


class MethodName(TypedDict):
    """How reports call the method; see `rwbench.registry.Component`."""

    key: str
    label: str


class Counts(TypedDict):
    """Questions; failed ones are in no metric."""

    scheduled: Count
    scored: Count
    failed: Count


class Total(TypedDict):
    """A cost that does not depend on the machine, over all questions and per question."""

    total: float
    mean: float


class Entropy(TypedDict):
    """Entropy of attention over rules in nats by layer, over ``n`` questions."""

    layers: list[Count]
    mean: list[float]
    std: list[Amount]
    n: Positive


class AttentionMap(TypedDict):
    """Weight on gold steps: a row per retrieval, a column per gold step; ``n`` questions per row."""

    weights: list[list[float]]
    n: list[Count]


class MeanMeasures(TypedDict, total=False):
    """What an analysis measured, averaged over questions; ``rule_attention`` by number of gold steps."""

    rule_entropy: Entropy
    rule_attention: dict[StepNumber, AttentionMap]


@with_config(OPEN)
class Timing(TypedDict):
    """``seconds``: sum over samples; ``finished``: ISO 8601."""

    seconds: Amount
    finished: str


@with_config(OPEN)
class Environment(TypedDict):
    """What a run ran on; null: a package that is not installed, kernels or an accelerator that are not there."""

    python: str
    platform: str
    cpu_count: NotRequired[int | None]
    cpu_kernels: NotRequired[str | None]
    gpu: NotRequired[str | None]
    packages: dict[str, str | None]
    git: dict[str, Any] | None


class Summary(TypedDict):
    """What follows from a run's samples alone."""

    n: Counts
    metrics: dict[MetricName, Metric]
    details: dict[Literal["by_step"], dict[str, dict[StepNumber, Estimate]]]  # recall by metric and step
    outcomes: dict[str, Positive]  # how many samples ended how, failed included
    usage: dict[str, Total]
    measures: MeanMeasures


@with_config(STRICT)  # of what it holds, too, but where OPEN stands
class Results(Summary):
    """The content of results.json, schema version 2; ``run_id`` is the start of the spec's hash."""

    schema_version: Literal[2]
    run_id: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    spec: Annotated[dict[str, Any], AfterValidator(_check_spec)]
    method: MethodName
    samples_sha256: Sha256  # in the order of their ids, without their timing
    pool_sha256: Sha256  # over the rule ids of all pools, in order
    environment: Environment
    timing: Timing


_ADAPTER = TypeAdapter(Results)


def check_results(value: Any) -> Results:
    """Return a JSON value if it is what results.json holds, itself and unchanged; else a pydantic ValidationError."""
    _ADAPTER.validate_python(value)
    return value


def write_results(folder: Path, results: Results) -> None:
    """Write a run's results in one step."""
    write_whole(folder / FILE_NAME, json_bytes(results))


def read_results(folder: Path) -> Results | None:
    """Return a run's results (of a packed run, too), None if it has none yet; a ValueError if they cannot be read."""
    path = folder / FILE_NAME
    if not path.is_file():
        return next(iter(_packed(folder.parent, folder.name)), None)
    try:
        return check_results(from_json(path.read_bytes()))
    except ValueError as error:
        raise ValueError(
            f"{path} is not a results file ({in_words(error)}); delete it and run the recipe again: samples are kept, "
            "only the summary is rewritten"
        ) from None


def find_results(folder: Path) -> list[Results]:
    """Return the results of all runs in and below a folder, packed ones included, by folder name."""
    runs = [] if folder.is_dir() else _packed(folder.parent, folder.name)
    files = [*folder.glob(f"**/{FILE_NAME}"), *folder.glob(f"**/{PACKED_RESULTS}")]
    for place in sorted({path.parent for path in files}):
        if is_packed(place):
            runs += _packed(place)
        elif (results := read_results(place)) is not None:
            runs.append(results)
    return runs


def find_samples(folder: Path, run_id: str) -> list[Sample] | None:
    """Return the samples of a run in or below a folder (or in that packed run); None if they are not there."""
    places = [place for place in (folder, *sorted(folder.glob(f"**/{run_id}"))) if place.name == run_id]
    places += [path.parent / run_id for path in sorted(folder.glob(f"**/{PACKED_SAMPLES}"))]
    return next((samples for place in places if (samples := run_samples(place)) is not None), None)


def run_samples(folder: Path) -> list[Sample] | None:
    """Return the samples of a run's folder, or of a packed run; None if there are none."""
    if (folder / SAMPLES_FILE).is_file():
        return read_samples(folder / SAMPLES_FILE)
    results = _packed(folder.parent, folder.name)
    return packed_samples(folder.parent, results[0]) if results else None


def pack(results: Sequence[Results], folder: Path, to: Path) -> int:
    """Write what `report`, `compare` and `trace` need of some runs in ``folder``, and return the bytes written.

    The same runs give the same bytes. A ValueError if the samples of a run are missing, or ``to`` holds other runs or
    lies in ``folder``.
    """
    if folder.resolve() in to.resolve().parents:
        raise ValueError(
            f"{to} lies in {folder}, so a later report of {folder} would count every run twice; choose a folder outside"
        )
    ids = {run["run_id"] for run in results}
    if others := sorted({run["run_id"] for run in find_results(to)} - ids if to.is_dir() else ()):
        raise ValueError(
            f"{to} holds {len(others)} runs that are not among these (first: {others[0]}), and a report would mix "
            f"them; remove {to}, or choose another folder"
        )
    runs = []
    for run in results:
        if (samples := find_samples(folder, run["run_id"])) is None:
            raise ValueError(f"run {run['run_id']} has no samples beside its {FILE_NAME}; run its recipe")
        runs.append((run, samples))
    write_packed(to, runs)
    return sum(path.stat().st_size for path in to.rglob("*") if path.is_file())


def _packed(folder: Path, run_id: str | None = None) -> list[Results]:
    if not is_packed(folder):
        return []
    return [check_results(run) for run in packed_results(folder, run_id)]
