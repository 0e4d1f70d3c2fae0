"""In and out: parquet builds, the `datasets` loader and its hook, exports, chat endpoints, files, progress."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .builds import build as build
    from .builds import build_command as build_command
    from .builds import read_build as read_build
    from .builds import read_manifest as read_manifest
    from .builds import world_spec as world_spec
    from .card import export as export
    from .chat import ChatClient as ChatClient
    from .chat import NoAnswerError as NoAnswerError
    from .chat import Reply as Reply
    from .cluster import run_on_ray as run_on_ray
    from .endpoint import check_endpoint as check_endpoint
    from .endpoint import trust_endpoint as trust_endpoint
    from .files import file_digest as file_digest
    from .files import part_of as part_of
    from .files import whole_file as whole_file
    from .files import whole_folder as whole_folder
    from .files import write_whole as write_whole
    from .progress import Progress as Progress
    from .schema import QUESTION_SCHEMA as QUESTION_SCHEMA
    from .schema import RULE_SCHEMA as RULE_SCHEMA
    from .schema import rule_schema as rule_schema
    from .shards import parse_shard as parse_shard
    from .shards import plan as plan
    from .shards import read_shard as read_shard
    from .stats import BuildStats as BuildStats
    from .stats import build_stats as build_stats
    from .workers import start_worker as start_worker

__getattr__, __dir__, __all__ = attach(
    __name__,
    builds="build build_command read_build read_manifest world_spec",
    card="export",
    cluster="run_on_ray",
    chat="ChatClient NoAnswerError Reply",
    endpoint="check_endpoint trust_endpoint",
    files="file_digest part_of whole_file whole_folder write_whole",
    progress="Progress",
    schema="QUESTION_SCHEMA RULE_SCHEMA rule_schema",
    shards="parse_shard plan read_shard",
    stats="BuildStats build_stats",
    workers="start_worker",
)
