"""One split of one world: what the tables of the benchmark depend on."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from .dials import PAPER_POINT, Dials, check_subtask
from .names import (
    CHAINS,
    MINI_FOLD_SIZE,
    MINI_FOLDS,
    QUESTION_SPLITS,
    RULE_SPLITS,
    SUBTASKS,
    VERSION,
    VERSIONS,
    check_kind,
    check_name,
    check_seed,
    size_of,
    splits_of,
)
from .sizes import SCALES, Scale


@lru_cache(maxsize=16)
def _turned(scale: str, dials: Dials) -> Scale:
    return SCALES[scale].turned(dials)


@dataclass(frozen=True)
class WorldSpec:
    """One split of one world: all that the tables of the benchmark depend on, validated once.

    Attributes
    ----------
    scale : str
        A name of `SCALES`.
    split : str
        A name of `QUESTION_SPLITS`; ``heldout`` has a world of its own, the other splits share one.
    seed : int
        World seed, from 0 to 2**63 - 1. The published benchmark is seed 0.
    version : str
        A name of `VERSIONS`.
    dials : Dials
        Where the world departs from the paper's.

    Raises
    ------
    ValueError
        For an unknown name, a bad seed, or dials that the scale does not allow.
    """

    scale: str = "paper"
    split: str = "train"
    seed: int = 0
    version: str = VERSION
    dials: Dials = PAPER_POINT

    def __post_init__(self) -> None:
        check_name("scale", self.scale, SCALES)
        check_name("split", self.split, QUESTION_SPLITS)
        check_seed(self.seed)
        check_name("version", self.version, VERSIONS)
        if self.split not in splits_of(self.version):
            raise ValueError(
                f"data {self.version} has no split {self.split!r}: its train asks about every rule; expected one of "
                f"{', '.join(splits_of(self.version))}, or version {VERSIONS[-1]!r} (--data-version {VERSIONS[-1]})"
            )
        check_kind("dials", self.dials, Dials, "Dials(hops=6) or Dials.parse('hops=6')")
        _turned(self.scale, self.dials)

    @property
    def generator(self) -> str:
        """Version of the generator as builds and runs write it down, e.g. "1.1.0"."""
        return f"{self.version}.0"

    def to_dict(self) -> dict[str, Any]:
        """Return what a build of it says: version, scale and seed, and the dials that are turned."""
        named = {"generator_version": self.generator, "scale": self.scale, "seed": self.seed}
        return named | ({"dials": turned} if (turned := self.dials.to_dict()) else {})

    @property
    def sized(self) -> Scale:
        """The scale, with what the dials make of its sizes."""
        return _turned(self.scale, self.dials)

    @property
    def drawn(self) -> Self:
        """The spec whose tables these are: all splits of ``full`` but train are those of ``paper``."""
        return replace(self, scale="paper") if self.scale == "full" and self.split != "train" else self

    def num_rows(self, config: str) -> int:
        """Return the number of rows of one configuration, a sub-task or ``"rules"``."""
        check_subtask("configuration", config, self.dials, "rules")
        if config == "rules":
            check_name("split of rules", self.split, RULE_SPLITS)
            return self.drawn.sized.rule_count()
        scale, train = self.drawn.sized, self.split == "train"
        rows = scale.train.get(config, scale.train[SUBTASKS[-1]]) if train else scale.evaluation[self.split]
        short = config in ("multi_hop_2", "unknown_1", "unknown_2")
        if self.dials.structure == PAPER_POINT or not config.startswith(CHAINS) or short:
            return rows
        unseen, size, kept = self.split == "unseen", size_of(config), scale.reserved
        part, least = 0.5 if train or unseen else 0.25, MINI_FOLDS * MINI_FOLD_SIZE
        if self.version != "1.1" and self.split in ("train", "validation"):
            part *= (1 - 1 / kept) ** size  # no rule of a chain is reserved
        # Of unseen the last rule is reserved, and who has what at first.
        room = scale.room(config, part / kept if unseen else part)
        if exceptions := config.startswith("exceptions"):
            least = 5 if unseen else least
        elif size == 3:  # three hops have four paths through a state that is led to
            room *= 4
        if size > 2 and (unseen or exceptions):  # an act begins the chain, whoever does it
            room *= scale.sizes.entities
        room //= kept if unseen else 1
        return min(rows, max(least, room // 10 * 10))
