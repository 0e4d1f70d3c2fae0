"""What is in a build, counted from its shards."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..spec import CHAINS, EXTRA_TYPES, RULE_SPLITS, RULE_TYPES, data_version, splits_of, subtasks_of
from ..world.forms import load_forms
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
    shared_words : dict
        By sub-task, of the test split: the share of gold rules that have a name's word in common with what is at hand
        when they are looked for: the question, or its part, and the step before. By it searches by words are judged.
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
    shared_words: dict[str, float]
    bytes: int

    def tables(self) -> dict[str, list[list[Any]]]:
        """Return rules by type, questions by sub-task, skeletons, and chains (see ``diversity``); heads come first."""
        splits, kinds = splits_of(data_version(self.generator_version)), dict.fromkeys(_ANSWERS, 0)
        rules: list[list[Any]] = [
            [kind, *(self.rules[split][kind] for split in RULE_SPLITS)] for kind in self.rules["train"]
        ]
        questions: list[list[Any]] = [
            [
                subtask,
                *(self.rows[subtask][split] for split in splits),
                f"{self.mean_characters[subtask]:.0f}",
                *(f"{n / sum(types.values()):.1%}" for n in (kinds | types).values()),
                f"{self.shared_words[subtask]:.1%}",
            ]
            for subtask, types in self.answer_types.items()
        ]
        skeletons = [
            [subtask, name, *(counts.get(split, {}).get(name, 0) for split in splits)]
            for subtask, counts in self.skeletons.items()
            for name in sorted({name for own in counts.values() for name in own})
        ]
        chains = [
            [subtask, split, self.rows[subtask][split], *counts.values()]
            for subtask, own in self.diversity.items()
            for split, counts in own.items()
        ]
        sums = [sum(row[i] for row in questions) for i in range(1, 1 + len(splits))]
        rules.append(["all", *(sum(row[i] for row in rules) for i in (1, 2))])
        questions.append(["all", *sums, *[""] * (len(kinds) + 2)])
        return {
            "rules": [["rules", *RULE_SPLITS], *rules],
            "questions": [
                ["questions", *splits, "characters", *_ANSWERS.values(), "shared words"],
                *questions,
            ],
            "skeletons": [["sub-task", "skeleton", *splits], *skeletons],
            "chains": [
                ["sub-task", "split", "questions", "chains", "most frequent", "first rules", "answers"],
                *chains,
            ],
        }


_ANSWERS = {"count": "counts", "environment": "environments", "state": "states", "creature": "creatures"}


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
        if not config.startswith(("multi_rule", "compare")):
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
        shared_words=_shared_words(folder, manifest["shards"]),
        bytes=sum(shard["bytes"] for shard in manifest["shards"]),
    )


def _counts(column: pa.ChunkedArray) -> Counter[str]:
    return Counter({row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()})


def _shared_words(folder: Path, shards: list[dict[str, Any]]) -> dict[str, float]:
    columns = ["question", "steps", "gold_rule_ids"]
    tables = {
        shard["config"]: read_shard(folder / shard["path"], columns)
        for shard in shards
        if shard["split"] == "test"
    }
    gold = pa.concat_arrays(
        [pc.list_flatten(table["gold_rule_ids"]).combine_chunks() for table in tables.values()]
    )
    texts: dict[int, str] = {}
    for shard in shards:
        if (shard["config"], shard["split"]) == ("rules", "train"):
            rules = read_shard(folder / shard["path"], ["id", "nl"])
            rules = rules.filter(pc.is_in(rules["id"], gold.unique()))
            texts |= dict(zip(*(rules[name].to_pylist() for name in ("id", "nl")), strict=True))
    shares = {}
    for subtask, table in tables.items():
        shared = []
        for row in table.to_pylist():
            steps, parts, before = row["steps"], row["question"].split("; "), ""
            if subtask.startswith(CHAINS):
                parts = [row["question"]] * len(steps)
            for part, step in zip(parts, steps, strict=True):
                at_hand = _names_in(f"{part} {before}")
                shared += [bool(at_hand & _names_in(texts[rule])) for rule in step["rule_ids"]]
                before = step["nl"] if subtask.startswith(CHAINS) else ""
        shares[subtask] = sum(shared) / len(shared)
    return shares


def _names_in(text: str) -> set[str]:
    """Return the words of a text that names of things are made of."""
    return {word for word in re.findall(r"[a-z]+", text.lower()) if word in load_forms().words}


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
