"""RunSpec: everything that decides a run's numbers, frozen; its hash is the run's name and folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.dataclasses import dataclass
from ruleworld_data.scoring import SCORER_VERSION
from ruleworld_data.spec import (
    PAPER_POINT,
    QUESTION_SPLITS,
    SCALES,
    SUBTASKS,
    Dials,
    WorldSpec,
    check_name,
    data_version,
    subtasks_of,
)

REPRESENTATIONS = ("fol", "nl")
POOL_SCOPES = ("question", "fold", "batch", "world")
FOLDED_SPLIT = "mini"
"""The one split whose questions belong to folds."""

DATA_VERSION = "1.1"
"""Version of the data that recipes, the board and the bundled models are about: the shipped base was trained on it."""

BOOKS = ("clinic", "library", "parcel_depot")
"""The shipped rule books of the real world, each a sub-task of runs on them; see `rwbench.run.books`."""
VALIDATION_BOOKS = ("pool", "theatre")
"""Those by which settings may be chosen."""
BOOKS_DATA = "rulebooks-"
"""What `RunSpec.data` begins with in such runs; a hash of the books' texts follows."""

Number = Annotated[int, Field(gt=0, lt=2**31)]
_ALLOWED = {
    "representation": REPRESENTATIONS,
    "pool_scope": POOL_SCOPES,
    "scale": SCALES,
    "split": QUESTION_SPLITS,
}


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def in_words(error: Exception) -> str:
    """Return what is wrong on one line; of a failed validation the first problem: field, what was expected, value."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    field = ".".join(str(part) for part in first["loc"])
    seen = "" if first["type"] == "missing" else f", got {repr(first['input'])[:60]}"
    return f"{field}: {first['msg']}{seen}"


def parts_of(method: Any) -> Iterator[dict[str, Any]]:
    """Yield the dicts that a method's dict is made of, however deep: models, retrievers and the method itself."""
    if isinstance(method, dict):
        yield method
        method = [*method.values()]
    for part in method if isinstance(method, list) else ():
        yield from parts_of(part)


def _one_of(name: str) -> Any:
    return Field(json_schema_extra={"enum": list(_ALLOWED[name])})


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class RunSpec:
    """One run: a method on one representation, one pool setting and one set of questions.

    A field that is None is left out of the canonical JSON, so a later field with default None changes no old
    run id.

    Raises
    ------
    ValueError
        If a field has a value that is not allowed (`in_words` names the field, the value and what is allowed).
    """

    method: Annotated[
        dict[str, JsonValue], Field(description="name and hyper-parameters, from Method.to_dict()")
    ]
    representation: Annotated[str, Field(description="how rules are written"), _one_of("representation")]
    pool_size: Annotated[Number, Field(description="rules per pool, gold rules included")]
    pool_scope: Annotated[
        str, Field(description="who shares a pool, see `rwbench.run.pools`"), _one_of("pool_scope")
    ]
    data: Annotated[
        str, Field(description="generator version, or the build's, that made the questions and rules")
    ]
    pool_within: Annotated[
        Number | None,
        Field(description="draw distractors from the batch's pool of this size; None: all"),
    ] = None
    pool_seed: Annotated[int, Field(description="names the random draw of distractors")] = 0
    scale: Annotated[str, Field(description="size of the world"), _one_of("scale")] = "paper"
    world_seed: Annotated[int, Field(description="names the world")] = 0
    dials: Annotated[
        str | None, Field(description="where the world departs from the paper's, e.g. hops=6,crowd=16")
    ] = None
    split: Annotated[str, Field(description="question split"), _one_of("split")] = FOLDED_SPLIT
    subtasks: Annotated[tuple[str, ...], Field(description="sub-tasks asked", strict=False, min_length=1)] = (
        SUBTASKS
    )
    top_k: Annotated[Number, Field(description="rules kept per retrieval step")] = 100
    limit: Annotated[Number | None, Field(description="questions per sub-task; None: all")] = None
    limit_by: Annotated[
        str | None, Field(description="fold: limited questions come from all folds in turn")
    ] = dataclasses.field(default=None, init=False)
    scorer_version: Annotated[str, Field(description="version of the scoring code")] = SCORER_VERSION

    @field_validator("method", mode="before")
    @classmethod
    def _private_copy(cls, method: Any) -> Any:
        """Copy through JSON: later changes to the caller's dict must not change this run's name."""
        if not isinstance(method, dict) or not isinstance(method.get("name"), str):
            raise ValueError(f"method must be a dict with a 'name', got {method!r}; use Method.to_dict()")
        return json.loads(canonical_json(method))

    @field_validator("representation", "pool_scope")
    @classmethod
    def _is_allowed(cls, value: str, info: ValidationInfo) -> str:
        name = str(info.field_name)
        return check_name(name, value, _ALLOWED[name])

    @field_validator("dials")
    @classmethod
    def _one_spelling(cls, dials: str | None) -> str | None:
        return str(Dials.parse(dials or "")) or None

    def __post_init__(self) -> None:
        dials = self.turned
        version = {} if dials == PAPER_POINT else {"version": data_version(self.data)}
        WorldSpec(self.scale, self.split, self.world_seed, dials=dials, **version)
        known = (*BOOKS, *VALIDATION_BOOKS) if self.on_books else subtasks_of(dials)
        for name in self.subtasks:
            check_name("sub-task", name, known)
        if self.limit is not None and self.split == FOLDED_SPLIT:
            # Never chosen, but written down: runs of before took the first questions, all of one fold.
            object.__setattr__(self, "limit_by", "fold")
        if self.pool_within is not None and self.pool_within < self.pool_size:
            raise ValueError(
                f"pool_within={self.pool_within} is smaller than pool_size={self.pool_size}; "
                "draw from a pool that is at least as large, or from all rules (None)"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without those that are None."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        values["subtasks"] = list(self.subtasks)
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """Build a spec from ``to_dict``'s result.

        Raises
        ------
        ValueError
            If a field does not exist, or the spec asks for questions that this rwbench no longer asks.
        """
        known = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            check_name("field of a run's spec", name, known)
        spec = cls(**{name: value for name, value in values.items() if name != "limit_by"})
        if spec.limit_by != values.get("limit_by"):
            raise ValueError(
                f"limit={spec.limit} on split {spec.split} with limit_by={values.get('limit_by')!r}, expected "
                f"{spec.limit_by!r}: earlier versions asked the first questions, all of one fold; run its recipe again"
            )
        return spec

    @property
    def on_books(self) -> bool:
        """Whether rule books of the real world are asked about, not a world of RuleWorld."""
        return self.data.startswith(BOOKS_DATA)

    @property
    def turned(self) -> Dials:
        """The dials, read."""
        return Dials.parse(self.dials or "")

    @property
    def run_id(self) -> str:
        """First 12 hexadecimal digits of the sha256 of the canonical JSON."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:12]


def spec_differences(first: dict[str, Any], second: dict[str, Any], path: str = "") -> dict[str, list[Any]]:
    """Return dotted field -> [first, second] for every field in which two specs differ."""
    found: dict[str, list[Any]] = {}
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= spec_differences(a, b, f"{path}{name}.")
        elif a != b:
            found[f"{path}{name}"] = [a, b]
    return found
