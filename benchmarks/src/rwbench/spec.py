"""RunSpec: everything that decides a run's numbers, frozen; its hash is the run's name and folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from ruleworld_data.scoring.answers import SCORER_VERSION
from ruleworld_data.spec import QUESTION_SPLITS, SCALES, SUBTASKS, check_name, check_seed

REPRESENTATIONS = ("fol", "nl")
POOL_SCOPES = ("question", "fold", "batch")
FOLDED_SPLIT = "mini"
"""The one split whose questions belong to folds."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class RunSpec:
    """One run: a method on one representation, one pool setting and one set of questions.

    A field that is None is left out of the canonical JSON, so a later field with default None changes no old
    run id.

    Raises
    ------
    ValueError
        If a field has a value that is not allowed; the message names the field and the allowed values.
    """

    method: dict[str, Any] = field(metadata={"help": "name and hyper-parameters, from Method.to_dict()"})
    representation: str = field(metadata={"help": "how rules are written: fol or nl"})
    pool_size: int = field(metadata={"help": "rules per pool, gold rules included"})
    pool_scope: str = field(
        metadata={"help": "who shares a pool: one question, a fold, or a batch (see pools.py)"}
    )
    data: str = field(
        metadata={"help": "generator version, or the build's, that made the questions and rules"}
    )
    pool_within: int | None = field(
        default=None,
        metadata={"help": "draw distractors from the batch's pool of this size; None: from all rules"},
    )
    pool_seed: int = field(default=0, metadata={"help": "names the random draw of distractors"})
    scale: str = field(default="paper", metadata={"help": "size of the world: " + ", ".join(SCALES)})
    world_seed: int = field(default=0, metadata={"help": "names the world"})
    split: str = field(default="mini", metadata={"help": "question split"})
    subtasks: tuple[str, ...] = field(default=SUBTASKS, metadata={"help": "sub-tasks asked"})
    top_k: int = field(default=100, metadata={"help": "rules kept per retrieval step"})
    limit: int | None = field(default=None, metadata={"help": "questions per sub-task; None: all"})
    limit_by: str | None = field(
        default=None, init=False, metadata={"help": "fold: limited questions come from all folds in turn"}
    )
    scorer_version: str = field(default=SCORER_VERSION, metadata={"help": "version of the scoring code"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "subtasks", tuple(self.subtasks))
        if self.limit is not None and self.split == FOLDED_SPLIT:
            # Never chosen, but written down: runs of before took the first questions, all of one fold.
            object.__setattr__(self, "limit_by", "fold")
        # A private copy through JSON: later changes to the caller's dict must not change this run's name.
        object.__setattr__(self, "method", json.loads(canonical_json(self.method)))
        if not isinstance(self.method.get("name"), str):
            raise ValueError(
                f"method must be a dict with a 'name', got {self.method!r}; use Method.to_dict()"
            )
        check_name("representation", self.representation, REPRESENTATIONS)
        check_name("pool_scope", self.pool_scope, POOL_SCOPES)
        check_name("scale", self.scale, SCALES)
        check_name("split", self.split, QUESTION_SPLITS)
        for subtask in self.subtasks:
            check_name("sub-task", subtask, SUBTASKS)
        check_seed(self.world_seed)
        for name in ("pool_size", "pool_within", "top_k", "limit"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
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
    def run_id(self) -> str:
        """First 12 hexadecimal digits of the sha256 of the canonical JSON."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:12]


def first_difference(
    left: dict[str, Any], right: dict[str, Any], path: str = ""
) -> tuple[str, Any, Any] | None:
    """Return (dotted field, left value, right value) where two specs first differ, None if they are equal."""
    for name in sorted({*left, *right}):
        a, b = left.get(name), right.get(name)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            return first_difference(a, b, f"{path}{name}.")
        return f"{path}{name}", a, b
    return None
