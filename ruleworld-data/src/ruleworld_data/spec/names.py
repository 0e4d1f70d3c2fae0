"""Names of the benchmark: versions, rule types, sub-tasks, splits; and checks of what is given by name or number."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TypeVar

T = TypeVar("T")

VERSIONS = ("1.1", "1.2")
"""Versions of the data that can be generated, oldest first."""
VERSION = "1.1"
"""The version that is made unless another is asked for."""
RULE_TYPES = (
    "entity2attr",
    "attrchange2attr",
    "action2env",
    "action2attr",
    "action2state",
    "env2state",
    "state2attr",
)
EXTRA_TYPES = ("place_state2attr", "count2state", "exception")
"""Rule types that only dials bring into a world: conjunctive premises, thresholds, and what sets a rule aside."""
SUBTASKS = (
    "single_rule",
    *(f"multi_rule_{width}" for width in range(2, 9)),
    *(f"multi_hop_{hops}" for hops in range(2, 5)),
)
CHAINS = ("multi_hop", "exceptions", "unknown")
"""How sub-tasks of chains begin: one question, of as many steps as the name says."""
OPERATORS = ("minus", "plus")
ROLES = ("actor", "target")
FORMS = ("nl", "fol")
"""How rules and steps are written."""
QUESTION_SPLITS = ("train", "validation", "test", "mini", "heldout", "unseen")
HELDOUT_IDS = 10_000_000
"""From data 1.2 on ids of held-out rules begin here, where no world of the seed has any."""
HEADLINE_SPLITS = ("unseen", "heldout", "test")
"""The order of scores: first where memory of train is of no use."""
RULE_SPLITS = ("train", "heldout")
UNKNOWN = "unknown"
"""The answer where the rules do not say."""
MINI_FOLDS = 5
MINI_FOLD_SIZE = 10
"""The paper's protocol: five seeds, ten questions a sub-task each."""


def splits_of(version: str) -> tuple[str, ...]:
    """Return the splits that a version has questions of; ``unseen`` came with 1.2."""
    return QUESTION_SPLITS if version != "1.1" else QUESTION_SPLITS[:-1]


def size_of(subtask: str) -> int:
    """Return the number in a sub-task's name: rules of a parallel question, hops of a chain; 1 for single_rule."""
    return 1 if subtask == "single_rule" else int(subtask.rsplit("_", 1)[1])


def check_name(kind: str, value: object, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names.

    Raises
    ------
    ValueError
        Otherwise, naming the near matches and all known names.
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    similar = difflib.get_close_matches(str(value), names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else "."
    raise ValueError(f"unknown {kind} {value!r}{hint} Known: {', '.join(names)}.")


def check_count(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return a number if it is an integer of at least 0 or 1, and at most ``most``.

    Raises
    ------
    ValueError
        For any other value, strings and booleans included.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= (most or value):
        kind = (
            f"an integer from {least} to {most}"
            if most
            else f"a {'positive' if least else 'non-negative'} integer"
        )
        raise ValueError(f"{name} must be {kind}, got {value!r}")
    return value


def check_share(name: str, value: object) -> None:
    """Check that a value is a number from 0 to 1; `ValueError` for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Check that a value is of a class of this package; else a `ValueError` with what to type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be given as in {example}, got {value!r:.80}")


def check_columns(what: str, held: Iterable[str], *needed: str) -> None:
    """Check that a row or a table has what is read of it; else a `ValueError` with all that it has."""
    names = list(held)
    if missing := [name for name in needed if name not in names]:
        has = ", ".join(names) or "none"
        raise ValueError(f"{what} needs the columns {', '.join(needed)}; {missing[0]} is missing, got {has}")


def check_seed(seed: object) -> int:
    """Return a world seed if it is an integer from 0 to 2**63 - 1; `ValueError` for any other value."""
    return check_count("seed", seed, most=2**63 - 1)


def data_version(value: object) -> str:
    """Return the name in `VERSIONS` of a version written as "1.1" or, as builds and runs write it, "1.1.0".

    Raises
    ------
    ValueError
        For any other value.
    """
    written = str(value)
    short = written.removesuffix(".0") if written.count(".") == 2 else written
    return check_name("version", short, VERSIONS)


def read_fields(cls: type[T], values: object, what: str) -> T:
    """Return a dataclass of values by field, as JSON or anyone's file has them.

    Raises
    ------
    ValueError
        For anything else than a mapping, a wrong name or a wrong value; ``what`` says in words what a field is.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"expected an object of {what}s by name, got {values!r:.80}")
    for name in values:
        check_name(what, name, [item.name for item in fields(cls)])  # type: ignore[arg-type]
    try:
        return cls(**values)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"an {what} has the wrong type ({error}), got {dict(values)!r:.200}") from None
