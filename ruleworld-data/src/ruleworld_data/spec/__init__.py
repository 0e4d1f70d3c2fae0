"""What a world is, in names and numbers: versions, rule types, sub-tasks, splits, sizes, dials, and `WorldSpec`.

Everything is plain Python, validated when it is made, frozen, and hashable.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .dials import *
    from .names import *
    from .sizes import *
    from .world import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    dials="ALL_SUBTASKS PAPER_POINT Dials check_subtask subtasks_of",
    names=(
        "CHAINS EXTRA_TYPES FORMS HEADLINE_SPLITS HELDOUT_IDS MINI_FOLDS MINI_FOLD_SIZE OPERATORS "
        "QUESTION_SPLITS ROLES RULE_SPLITS RULE_TYPES SUBTASKS UNKNOWN VERSION VERSIONS check_columns "
        "check_count check_kind check_name check_seed check_share data_version read_fields size_of splits_of"
    ),
    sizes="SCALES Scale WorldSizes",
    world="WorldSpec",
)
