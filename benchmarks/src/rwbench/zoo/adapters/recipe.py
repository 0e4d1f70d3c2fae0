"""How adapters are trained: the settings that all methods share, read from a TOML file, and the trainings they name."""

from __future__ import annotations

from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from dynarule.plus import RetrievalRecipe
from dynarule.training import Recipe, paper_recipe
from pydantic.dataclasses import dataclass
from ruleworld_data.spec import SCALES, SUBTASKS, VERSIONS, check_name, check_seed

from dynarule import DynaRuleConfig, PlusConfig

from ...spec import DATA_VERSION, REPRESENTATIONS
from ..recipe_file import STRICT, read_recipe_file

PLUS = "dynarule-plus"
METHODS = ("dynarule", "srki", "kblam", PLUS)
FINDING = "retrieval"
"""The stage in which finding is trained alone, on states that are computed once; not the paper's."""
SAME_IN_LOGIC = {"name", "stages", "fol", "encoder", "training_seed"}
"""What a table fol does not have: stages name their form themselves, the last two are the command line's to change."""
MADE = {"base", "curve", "encoder", "encoder_dim"}
"""What a training finds out about a memory, and no recipe says."""


@dataclass(frozen=True, config=STRICT)
class AdapterRecipe:
    """Everything that decides an adapter's weights, besides base, method and representation.

    ``stages`` are trainings one after the other: ``stage``, the paper's 1 or 2, and changes of it; one that names a
    ``representation`` is for rules in that form alone (`in_form`). DynaRule+ has one stage, "retrieval", whose settings
    are those of `dynarule.plus.RetrievalRecipe`. ``fol`` is a table of settings that rules in logic have instead.
    """

    name: str
    stages: tuple[dict[str, Any], ...]
    scale: str = "paper"  # world of the training questions
    data: str = DATA_VERSION  # version of the data that the base knows the words of
    seed: int = 0  # of the world
    training_seed: int = 0  # of first weights, batches and pools
    subtasks: tuple[str, ...] = SUBTASKS
    per_subtask: int | None = None  # most questions per sub-task
    held_out: int = 20  # validation questions per sub-task, for the log
    plain: int = 0  # questions in plain English besides, where rules are in English (finding alone)
    top_k: int = 100  # rules kept in every layer (DynaRule, SR-KI)
    memory: dict[str, Any] = field(
        default_factory=dict
    )  # other settings of the rule memory (DynaRule, SR-KI)
    confidence_layer: int | None = None  # of the retrieval loss; None: by entropy after stage 1
    opening: bool = (
        False  # a boundary before the first step too: <search> where there is one, else the base's
    )
    entropy_questions: int = 200  # that choose the confidence layer
    encoder: str = "minilm"  # of the rules: minilm, a sentence encoder, or layers:N of the base
    fol: dict[str, Any] = field(default_factory=dict)  # what is another where rules are in logic

    def __post_init__(self) -> None:
        check_name("scale", self.scale, SCALES)
        check_name("data version", self.data, VERSIONS)
        for subtask in self.subtasks:
            check_name("sub-task", subtask, SUBTASKS)
        check_seed(self.seed)
        check_seed(self.training_seed)
        for stage in self.stages:
            check_name("representation", stage.get("representation", "fol"), REPRESENTATIONS)
        for name in self.fol:
            check_name("setting of fol", name, sorted({each.name for each in fields(self)} - SAME_IN_LOGIC))
        for name in self.memory:
            known = {*DynaRuleConfig.__annotations__, *PlusConfig.__annotations__} - MADE
            check_name("setting of memory", name, sorted(known))
        numbers = [stage.get("stage") for stage in self.stages]
        if self.plain < 0 or (self.plain and numbers != [FINDING]):
            raise ValueError(
                f"plain must be 0 or more, and is for {FINDING!r} alone, got {self.plain} with stages {numbers}"
            )
        if numbers == [FINDING]:
            if self.confidence_layer is None:
                raise ValueError("finding is trained alone at the confidence layer; set confidence_layer")
        elif (
            not numbers
            or numbers != sorted(numbers, key=str)
            or not all(number in (1, 2) for number in numbers)
        ):
            raise ValueError(f"stages must be 1 ... 1, 2 ... 2, or {FINDING!r} alone, got {numbers}")
        if self.confidence_layer is None and 2 in numbers and numbers[0] != 1:
            raise ValueError(
                "without a stage 1 the confidence layer cannot be measured; set confidence_layer"
            )
        if self.fol:
            self.in_form("fol")  # refuses an impossible value now

    def in_form(self, representation: str) -> AdapterRecipe:
        """Return the recipe with the stages and settings of one form; memory is changed setting by setting."""
        changes = dict(self.fol) if representation == "fol" else {}
        if isinstance(changes.get("memory"), dict):  # another value is refused below
            changes["memory"] = self.memory | changes["memory"]
        stages = [
            {name: value for name, value in stage.items() if name != "representation"}
            for stage in self.stages
            if stage.get("representation", representation) == representation
        ]
        return replace(self, **changes, stages=tuple(stages), fol={})

    def trainings(self, method: str) -> list[Recipe | RetrievalRecipe]:
        """Return how a method is trained, stage by stage.

        KBLaM has all rules and no retrieval in every stage; it gets the others' pools and steps. Finding is trained
        alone for DynaRule+, and for no other.

        Raises
        ------
        ValueError
            For a setting that is unknown or impossible, of whichever stage, before the first one begins.
        """
        if (method == PLUS) != (self.stages[0]["stage"] == FINDING):
            other = "any other method" if method == PLUS else PLUS
            raise ValueError(
                f"recipe {self.name!r} is one of {other}, got {method}; name another recipe or --method"
            )
        found = []
        for number, stage in enumerate(self.stages, 1):
            try:
                found.append(self._training(method, stage))
            except ValueError as error:
                raise ValueError(f"training {number} of recipe {self.name!r}: {error}") from None
        return found

    def _training(self, method: str, stage: dict[str, Any]) -> Recipe | RetrievalRecipe:
        from transformers import SchedulerType

        kind = RetrievalRecipe if method == PLUS else Recipe
        settings = {name: value for name, value in stage.items() if (name, value) != ("stage", FINDING)}
        for name in settings:
            check_name("setting", name, sorted({each.name for each in fields(kind)} - {"method"}))
        settings = {"seed": self.training_seed} | settings
        if method == PLUS:
            return RetrievalRecipe(**settings)
        recipe = paper_recipe(method, **settings)
        check_name("schedule", recipe.schedule, [each.value for each in SchedulerType])
        return recipe


def read_recipe(path: Path) -> AdapterRecipe:
    """Read a recipe; see `read_recipe_file`."""
    return read_recipe_file(path, AdapterRecipe, "adapters", "benchmarks/adapters/dynarule.toml")
