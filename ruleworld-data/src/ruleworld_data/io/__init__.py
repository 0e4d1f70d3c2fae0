"""In and out: parquet builds, the `datasets` loader and its hook, exports, files, progress."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .builds import *
    from .card import *
    from .cluster import *
    from .files import *
    from .progress import *
    from .schema import *
    from .shards import *
    from .stats import *
    from .workers import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    builds="build build_command read_build read_manifest world_spec",
    card="export",
    cluster="run_on_ray",
    files="file_digest whole_folder write_whole",
    progress="Progress",
    schema="QUESTION_SCHEMA RULE_SCHEMA rule_schema",
    shards="plan read_shard",
    stats="BuildStats build_stats",
    workers="worker_pool",
)
