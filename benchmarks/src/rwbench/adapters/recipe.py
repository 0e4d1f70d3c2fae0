"""How adapters are trained: the settings that all methods share, read from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ruleworld_data.tasks import SCALES, SUBTASKS, check_name

METHODS = ("dynarule", "srki", "kblam")


@dataclass(frozen=True)
class AdapterRecipe:
    """Everything that decides an adapter's weights, besides base, method and representation."""

    name: str = field(metadata={"help": "name of the recipe"})
    stage1: dict[str, Any] = field(metadata={"help": "changes of the paper's first stage"})
    stage2: dict[str, Any] = field(metadata={"help": "changes of the paper's second stage"})
    scale: str = field(default="paper", metadata={"help": "world of the training questions"})
    seed: int = field(default=0, metadata={"help": "world seed"})
    subtasks: tuple[str, ...] = field(default=SUBTASKS, metadata={"help": "sub-tasks trained on"})
    per_subtask: int | None = field(default=None, metadata={"help": "most questions per sub-task"})
    held_out: int = field(default=20, metadata={"help": "validation questions per sub-task, for the log"})
    top_k: int = field(default=100, metadata={"help": "rules kept in every layer (DynaRule, SR-KI)"})
    entropy_questions: int = field(
        default=200, metadata={"help": "questions that choose the confidence layer"}
    )
    encoder: str = field(default="minilm", metadata={"help": "sentence encoder of the rules"})

    def __post_init__(self) -> None:
        check_name("scale", self.scale, SCALES)
        for subtask in self.subtasks:
            check_name("sub-task", subtask, SUBTASKS)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def read_recipe(path: Path) -> AdapterRecipe:
    """Read a recipe.

    Raises
    ------
    ValueError
        If a field is unknown or a value impossible; the message names the file.
    """
    values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        stages: dict[str, Any] = {name: _tuples(values.pop(name, {})) for name in ("stage1", "stage2")}
        return AdapterRecipe(name=path.stem, **stages, **_tuples(values))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is no recipe of adapters: {error}; compare benchmarks/adapters/cpu.toml"
        ) from None


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
