"""RuleWorld as a training environment: instances by index, a reward that is a pure function, a search tool.

`instance` and `score` hold no state. Adapters to training frameworks are modules of their own, and import the framework
that they are for; nothing else here does.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .certificate import *
    from .config import *
    from .instances import *
    from .reward import *
    from .search import *
    from .worlds import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    certificate="certificate_text certify",
    config="EnvConfig RewardWeights read_config",
    instances="Instance instance",
    reward="Reward score",
    search="Episode import_bm25s index_terms lucene_bm25",
    worlds="place_of",
)
