"""What goes beyond the paper: small objects that are added to a `Recipe`, each off unless it is there.

Why each was tried: ``docs/method-card.md``. A new one is a class here, and the line that asks for it (`Recipe.added`)
where it acts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

ADDITIONS: dict[str, type[Addition]] = {}
"""All of them by their names in files (``SortedBatches``: sorted_batches), in the order in which they are written."""


GONE = (("muon", "whiten", False),)
"""Settings that were removed, at the value that meant nothing: recipes of older adapters hold them."""


@dataclass(frozen=True)
class Addition:
    """Something that the paper does not do."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        ADDITIONS[cls.name] = cls

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type == "bool":
                if not isinstance(value, bool):
                    raise ValueError(f"{f.name} of {self.name} must be true or false, got {value!r}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{f.name} of {self.name} must be positive, got {value!r}")
            elif f.type == "int" and not isinstance(value, int):
                raise ValueError(f"{f.name} of {self.name} must be a whole number, got {value!r}")


@dataclass(frozen=True)
class Muon(Addition):
    """Muon for matrices, AdamW for vectors: on a small base, rules are found in fewer steps than with AdamW."""

    value_rate: float = field(
        default=1.0, metadata={"help": "rate of value projections, as a factor of the learning rate"}
    )
    vector_rate: float = field(
        default=1.0, metadata={"help": "rate of biases and rows, as a factor of the learning rate"}
    )


@dataclass(frozen=True)
class SortedBatches(Addition):
    """Batches of an optimizer step hold questions of like length, which saves padding."""


def read_additions(given: Sequence[Addition] | Mapping[str, Mapping[str, Any]]) -> tuple[Addition, ...]:
    """Return additions in the order of `ADDITIONS`, from objects or from what `additions_dict` returned.

    Raises
    ------
    ValueError
        If a name or a setting is unknown, or one comes twice.
    """
    if isinstance(given, Mapping):
        found = {name: _read(name, settings) for name, settings in given.items()}
    else:
        found = {each.name: each for each in given}
        if len(found) != len(given):
            raise ValueError(f"every addition can be there once, got {[each.name for each in given]}")
    return tuple(found[name] for name in ADDITIONS if name in found)


def _read(name: str, settings: Mapping[str, Any]) -> Addition:
    if name not in ADDITIONS:
        raise ValueError(f"unknown addition {name!r}; there are {list(ADDITIONS)}")
    known = [f.name for f in fields(ADDITIONS[name])]
    settings = {key: value for key, value in settings.items() if (name, key, value) not in GONE}
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ValueError(f"the addition {name} has no setting {unknown[0]!r}; it has {known}")
    return ADDITIONS[name](**settings)


def additions_dict(additions: Sequence[Addition]) -> dict[str, dict[str, Any]]:
    """Return JSON values: the settings of each addition by its name."""
    return {each.name: asdict(each) for each in additions}
