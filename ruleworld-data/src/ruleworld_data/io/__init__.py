"""In and out: parquet builds, the `datasets` loader and its hook, exports, chat endpoints, files, progress."""

from .._lazy import attach

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
