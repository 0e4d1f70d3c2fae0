"""RunSpec: everything that decides a run's numbers, frozen; its hash is the run's name and folder."""

import dataclasses
import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError, field_validator
from pydantic.dataclasses import dataclass
from ruleworld_data.scoring import SCORER_VERSION
from ruleworld_data.spec import (
    PAPER_POINT,
    SUBTASKS,
    VERSIONS,
    Dials,
    WorldSpec,
    check_name,
    data_version,
    read_fields,
    splits_of,
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

OWN_BOOK = f"{BOOKS_DATA}own-"
"""The same of a user's own book, whose name is the one sub-task."""

Number = Annotated[int, Field(gt=0, lt=2**31)]


def usual_version(split: str) -> str:
    """Return the version of the data in which a split is asked unless another is named."""
    return DATA_VERSION if split in splits_of(DATA_VERSION) else VERSIONS[-1]


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_line(value: Any) -> bytes:
    """Return `canonical_json` as a line; half a surrogate pair, which UTF-8 has not, becomes a question mark.

    A ValueError or TypeError if the value holds what JSON cannot: NaN, a number of thousands of digits, an object.
    """
    return (canonical_json(value) + "\n").encode(errors="replace")


def json_bytes(value: Any) -> bytes:
    """Return indented JSON with a line break at its end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


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


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class RunSpec:
    """One run: a method on one representation, one pool setting and one set of questions.

    A field that is None is left out of the canonical JSON, so a later field with default None changes no old run id. Of
    a ValueError `in_words` names the field, the value and what is allowed.
    """

    method: dict[str, JsonValue]  # name and hyper-parameters, from Method.to_dict()
    representation: str  # how rules are written, one of `REPRESENTATIONS`
    pool_size: Number  # rules per pool, gold rules included
    pool_scope: str  # who shares a pool, one of `POOL_SCOPES`; see `rwbench.run.pools`
    data: str  # generator version, or the build's, that made the questions and rules
    pool_within: Number | None = None  # draw distractors from the batch's pool of this size; None: all rules
    pool_seed: int = 0  # names the random draw of distractors
    scale: str = "paper"  # size of the world
    world_seed: int = 0  # names the world
    dials: str | None = None  # where the world departs from the paper's, e.g. hops=6,crowd=16
    split: str = FOLDED_SPLIT  # of the questions
    subtasks: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = SUBTASKS
    top_k: Number = 100  # rules kept per retrieval step
    limit: Number | None = None  # questions per sub-task; None: all
    # Never chosen: "fold" where limited questions come from all folds in turn. It is part of every such run's id.
    limit_by: str | None = dataclasses.field(default=None, init=False)
    scorer_version: str = SCORER_VERSION

    @field_validator("method", mode="before")
    @classmethod
    def _private_copy(cls, method: Any) -> Any:
        """Copy through JSON: later changes to the caller's dict must not change this run's name."""
        if not isinstance(method, dict) or not isinstance(method.get("name"), str):
            raise ValueError(f"method must be a dict with a 'name', got {method!r}; use Method.to_dict()")
        return json.loads(canonical_json(method))

    @field_validator("dials")
    @classmethod
    def _one_spelling(cls, dials: str | None) -> str | None:
        return str(Dials.parse(dials or "")) or None

    def __post_init__(self) -> None:
        check_name("representation", self.representation, REPRESENTATIONS)
        check_name("pool_scope", self.pool_scope, POOL_SCOPES)
        dials = self.parsed_dials
        usual = dials == PAPER_POINT and self.split in splits_of(DATA_VERSION)
        version = {} if usual else {"version": data_version(self.data)}
        WorldSpec(self.scale, self.split, self.world_seed, dials=dials, **version)
        known = (*BOOKS, *VALIDATION_BOOKS) if self.on_books else subtasks_of(dials)
        for name in self.subtasks:
            if not self.data.startswith(OWN_BOOK):
                check_name("sub-task", name, known)
        if self.limit is not None and self.split == FOLDED_SPLIT:
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
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a spec from ``to_dict``'s result; a ValueError if a field does not exist."""
        given = {name: value for name, value in values.items() if name != "limit_by"}
        return read_fields(cls, given, "field of a run's spec")

    @property
    def on_books(self) -> bool:
        """Whether rule books of the real world are asked about, not a world of RuleWorld."""
        return self.data.startswith(BOOKS_DATA)

    @property
    def parsed_dials(self) -> Dials:
        """The dials, read."""
        return Dials.parse(self.dials or "")

    @property
    def run_id(self) -> str:
        """First 12 hexadecimal digits of the sha256 of the canonical JSON."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:12]


def spec_differences(first: dict[str, Any], second: dict[str, Any], path: str = "") -> dict[str, list[Any]]:
    """Return dotted field -> [first, second] for every field in which two specs differ."""
    differences: dict[str, list[Any]] = {}
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            differences |= spec_differences(a, b, f"{path}{name}.")
        elif a != b:
            differences[f"{path}{name}"] = [a, b]
    return differences
