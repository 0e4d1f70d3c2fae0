"""How adapters are trained: the settings that all methods share, read from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ruleworld_data.spec import SCALES, SUBTASKS, check_name, check_seed

METHODS = ("dynarule", "srki", "kblam")


@dataclass(frozen=True)
class AdapterRecipe:
    """Everything that decides an adapter's weights, besides base, method and representation."""

    name: str = field(metadata={"help": "name of the recipe"})
    stages: tuple[dict[str, Any], ...] = field(
        metadata={
            "help": "trainings one after the other: `stage`, the paper's 1 or 2, and changes of it; `world`: seed of "
            "another world than `seed`'s, or several: a training in each, one after the other"
        }
    )
    scale: str = field(default="paper", metadata={"help": "world of the training questions"})
    seed: int = field(default=0, metadata={"help": "world seed"})
    subtasks: tuple[str, ...] = field(default=SUBTASKS, metadata={"help": "sub-tasks trained on"})
    per_subtask: int | None = field(default=None, metadata={"help": "most questions per sub-task"})
    held_out: int = field(default=20, metadata={"help": "validation questions per sub-task, for the log"})
    top_k: int = field(default=100, metadata={"help": "rules kept in every layer (DynaRule, SR-KI)"})
    serve_top_k: int | None = field(
        default=None,
        metadata={"help": "rules kept when answering; None: top_k. Training needs more, to tell them apart"},
    )
    memory: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "other settings of the rule memory (DynaRule, SR-KI)"}
    )
    confidence_layer: int | None = field(
        default=None, metadata={"help": "layer of the retrieval loss; None: by entropy after stage 1"}
    )
    opening: bool = field(
        default=False,
        metadata={
            "help": "a boundary before the first step too: <search> where there is one, else the base's"
        },
    )
    entropy_questions: int = field(
        default=200, metadata={"help": "questions that choose the confidence layer"}
    )
    encoder: str = field(
        default="minilm",
        metadata={"help": "encoder of the rules: minilm, a sentence encoder, layers:N of the base"},
    )

    def __post_init__(self) -> None:
        check_name("scale", self.scale, SCALES)
        for subtask in self.subtasks:
            check_name("sub-task", subtask, SUBTASKS)
        for world, _ in self.plans():
            check_seed(world)
        numbers = [stage.get("stage") for stage in self.stages]
        if not numbers or numbers != sorted(numbers, key=str) or not {*numbers} <= {1, 2}:
            raise ValueError(f"stages must be 1 ... 1, 2 ... 2, got {numbers}")
        if self.confidence_layer is None and 2 in numbers and numbers[0] != 1:
            raise ValueError(
                "without a stage 1 the confidence layer cannot be measured; set confidence_layer"
            )

    def plans(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the world of each training and its changes of the paper's recipe."""
        plans = []
        for number, stage in enumerate(self.stages, 1):
            named = stage.get("world", self.seed)
            worlds = list(named) if isinstance(named, tuple | list) else [named]
            if not worlds:
                raise ValueError(
                    f"world of stage table {number} must be a seed or several, got none; leave it out"
                )
            changes = {name: value for name, value in stage.items() if name != "world"}
            plans += [(world, changes) for world in worlds]
        return plans

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
        stages = tuple(_tuples(stage) for stage in values.pop("stages", ()))
        return AdapterRecipe(name=path.stem, stages=stages, **_tuples(values))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is no recipe of adapters: {error}; compare benchmarks/adapters/cpu.toml"
        ) from None


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
