"""What is in a build, counted from its shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..spec import EXTRA_TYPES, RULE_TYPES, subtasks_of
from .builds import read_build, world_spec
from .shards import read_shard


@dataclass(frozen=True)
class BuildStats:
    """Counts of a build.

    Attributes
    ----------
    generator_version, scale, seed : str, str, int
        What was built.
    dials : dict
        Where the world departs from the paper's.
    rows : dict
        Rows by configuration and split.
    rules : dict
        Rules by split and type.
    skeletons : dict
        Questions of the single-chain sub-tasks by split and skeleton.
    diversity : dict
        Of the single-chain sub-tasks by split: different ``chains`` of rules (without the rule of the initial count),
        how often the most frequent one comes (``top``), different first rules (``starts``) and ``answers``.
    answer_types : dict
        Answers by sub-task and type, over all splits.
    mean_characters : dict
        Mean question length by sub-task, over all splits.
    bytes : int
        Size of the shards.
    """

    generator_version: str
    scale: str
    seed: int
    dials: dict[str, Any]
    rows: dict[str, dict[str, int]]
    rules: dict[str, dict[str, int]]
    skeletons: dict[str, dict[str, dict[str, int]]]
    diversity: dict[str, dict[str, dict[str, int]]]
    answer_types: dict[str, dict[str, int]]
    mean_characters: dict[str, float]
    bytes: int


def build_stats(folder: str | Path) -> BuildStats:
    """Count what a build holds.

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no complete build, or a shard cannot be read.
    """
    folder = Path(folder)
    manifest = read_build(folder)
    subtasks = subtasks_of(world_spec(manifest).dials)
    rows: dict[str, Counter[str]] = {config: Counter() for config in (*subtasks, "rules")}
    rules: dict[str, Counter[str]] = {}
    skeletons: dict[str, dict[str, Counter[str]]] = {}
    diversity: dict[str, dict[str, dict[str, int]]] = {}
    types: dict[str, Counter[str]] = {subtask: Counter() for subtask in subtasks}
    characters: Counter[str] = Counter()
    for shard in manifest["shards"]:
        config, split = shard["config"], shard["split"]
        rows[config][split] += shard["rows"]
        if config == "rules":
            table = read_shard(folder / shard["path"], ["type"])
            rules.setdefault(split, Counter()).update(_counts(table.column("type")))
            continue
        columns = ["question", "answer_types", "skeleton", "answers", "gold_rule_ids", "n_hops"]
        table = read_shard(folder / shard["path"], columns)
        types[config].update(_counts(pc.list_flatten(table.column("answer_types"))))
        characters[config] += pc.sum(pc.utf8_length(table.column("question"))).as_py() or 0
        if not config.startswith("multi_rule"):
            per_split = skeletons.setdefault(config, {}).setdefault(split, Counter())
            per_split.update(_counts(table.column("skeleton")))
            diversity.setdefault(config, {})[split] = _diversity(table)
    known = (*RULE_TYPES, *EXTRA_TYPES)
    return BuildStats(
        manifest["generator_version"],
        manifest["scale"],
        manifest["seed"],
        manifest.get("dials", {}),
        {config: dict(count) for config, count in rows.items()},
        {
            split: {t: n for t in known if (n := count[t]) or t in RULE_TYPES}
            for split, count in rules.items()
        },
        {c: {s: dict(sorted(n.items())) for s, n in splits.items()} for c, splits in skeletons.items()},
        diversity,
        {config: dict(sorted(count.items())) for config, count in types.items()},
        {config: round(characters[config] / max(1, sum(rows[config].values())), 1) for config in subtasks},
        sum(shard["bytes"] for shard in manifest["shards"]),
    )


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def _diversity(table: pa.Table) -> dict[str, int]:
    columns = (table.column(name).to_pylist() for name in ("gold_rule_ids", "n_hops", "skeleton"))
    # Where the state is asked that a count gives, the rule of the count is the first.
    chains = Counter(
        tuple(rules[skeleton.startswith("entity2attr>") : n])
        for rules, n, skeleton in zip(*columns, strict=True)
    )
    answers = pc.count_distinct(pc.list_flatten(table.column("answers"))).as_py()
    starts = len({chain[0] for chain in chains})
    return {"chains": len(chains), "top": max(chains.values()), "starts": starts, "answers": answers}
