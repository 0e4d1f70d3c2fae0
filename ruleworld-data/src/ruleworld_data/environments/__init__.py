"""RuleWorld as a training environment: instances by index, a reward that is a pure function, a search tool.

`instance` and `score` hold no state. Adapters to training frameworks are modules of their own, and import the framework
that they are for; nothing else here does.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .certificate import Certificate as Certificate
    from .certificate import certify as certify
    from .config import EnvConfig as EnvConfig
    from .config import RewardWeights as RewardWeights
    from .config import read_config as read_config
    from .curriculum import AdaptiveCurriculum as AdaptiveCurriculum
    from .instances import Instance as Instance
    from .instances import instance as instance
    from .reward import Reward as Reward
    from .reward import score as score
    from .search import Episode as Episode
    from .search import import_bm25s as import_bm25s
    from .search import lucene_bm25 as lucene_bm25
    from .worlds import place_of as place_of

__getattr__, __dir__, __all__ = attach(
    __name__,
    certificate="Certificate certify",
    config="EnvConfig RewardWeights read_config",
    curriculum="AdaptiveCurriculum",
    instances="Instance instance",
    reward="Reward score",
    search="Episode import_bm25s lucene_bm25",
    worlds="place_of",
)
