"""What is in a build, counted from its shards."""

from __future__ import annotations

from collections import Counter, defaultdict
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
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    skeletons: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    diversity: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    types: dict[str, Counter[str]] = {subtask: Counter() for subtask in subtasks}
    characters: Counter[str] = Counter()
    for shard in manifest["shards"]:
        config, split = shard["config"], shard["split"]
        rows[config][split] += shard["rows"]
        if config == "rules":
            rules[split] += _counts(read_shard(folder / shard["path"], ["type"])["type"])
            continue
        columns = ["question", "answer_types", "skeleton", "answers", "gold_rule_ids", "n_hops"]
        table = read_shard(folder / shard["path"], columns)
        types[config] += _counts(pc.list_flatten(table["answer_types"]))
        characters[config] += pc.sum(pc.utf8_length(table["question"])).as_py() or 0
        if not config.startswith("multi_rule"):
            skeletons[config][split] += _counts(table["skeleton"])
            diversity[config][split] = _diversity(table)
    # The paper's types are listed where there are none of them, too.
    known = {
        split: dict.fromkeys(RULE_TYPES, 0) | dict.fromkeys(EXTRA_TYPES, 0) | n for split, n in rules.items()
    }
    return BuildStats(
        generator_version=manifest["generator_version"],
        scale=manifest["scale"],
        seed=manifest["seed"],
        dials=manifest.get("dials", {}),
        rows={config: dict(count) for config, count in rows.items()},
        rules={s: {t: n for t, n in kinds.items() if n or t in RULE_TYPES} for s, kinds in known.items()},
        skeletons={c: {s: dict(sorted(n.items())) for s, n in of.items()} for c, of in skeletons.items()},
        diversity=dict(diversity),
        answer_types={config: dict(sorted(count.items())) for config, count in types.items()},
        mean_characters={c: round(characters[c] / max(1, rows[c].total()), 1) for c in subtasks},
        bytes=sum(shard["bytes"] for shard in manifest["shards"]),
    )


def _counts(column: pa.ChunkedArray) -> Counter[str]:
    return Counter({row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()})


def _diversity(table: pa.Table) -> dict[str, int]:
    columns = (table[name].to_pylist() for name in ("gold_rule_ids", "n_hops", "skeleton"))
    # Where the state is asked that a count gives, the rule of the count is the first.
    chains = Counter(
        tuple(rules[skeleton.startswith("entity2attr>") : n])
        for rules, n, skeleton in zip(*columns, strict=True)
    )
    answers = pc.count_distinct(pc.list_flatten(table["answers"])).as_py()
    starts = len({chain[0] for chain in chains})
    return {"chains": len(chains), "top": max(chains.values()), "starts": starts, "answers": answers}
