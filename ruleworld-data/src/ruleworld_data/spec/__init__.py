"""What a world is, in names and numbers: versions, rule types, sub-tasks, splits, sizes, dials, and `WorldSpec`.

Everything is plain Python, validated when it is made, frozen, and hashable.
"""

from .dials import ALL_SUBTASKS, PAPER_POINT, Dials, subtasks_of
from .names import (
    CHAINS,
    CONFIGS,
    EXTRA_TYPES,
    HEADLINE_SPLITS,
    HELDOUT_IDS,
    MINI_FOLD_SIZE,
    MINI_FOLDS,
    OPERATORS,
    QUESTION_SPLITS,
    RESERVED,
    ROLES,
    RULE_SPLITS,
    RULE_TYPES,
    SUBTASKS,
    UNKNOWN,
    VERSION,
    VERSIONS,
    check_count,
    check_name,
    check_seed,
    data_version,
    splits_of,
)
from .sizes import SCALES, Scale, WorldSizes
from .world import WorldSpec, num_rows

__all__ = [
    "ALL_SUBTASKS",
    "CHAINS",
    "CONFIGS",
    "EXTRA_TYPES",
    "HEADLINE_SPLITS",
    "HELDOUT_IDS",
    "MINI_FOLDS",
    "MINI_FOLD_SIZE",
    "OPERATORS",
    "PAPER_POINT",
    "QUESTION_SPLITS",
    "RESERVED",
    "ROLES",
    "RULE_SPLITS",
    "RULE_TYPES",
    "SCALES",
    "SUBTASKS",
    "UNKNOWN",
    "VERSION",
    "VERSIONS",
    "Dials",
    "Scale",
    "WorldSizes",
    "WorldSpec",
    "check_count",
    "check_name",
    "check_seed",
    "data_version",
    "num_rows",
    "splits_of",
    "subtasks_of",
]
