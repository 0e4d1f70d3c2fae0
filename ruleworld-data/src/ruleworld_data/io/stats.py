"""What is in a build, counted from its shards."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..show import table_text
from ..spec import CHAINS, EXTRA_TYPES, RULE_SPLITS, RULE_TYPES, splits_of, subtasks_of
from ..world.names import name_words
from .builds import read_build, world_spec
from .shards import read_shard

_ANSWERS = {"count": "counts", "environment": "environments", "state": "states", "creature": "creatures"}


@dataclass(frozen=True)
class BuildStats:
    """Counts of a build."""

    built: dict[str, Any]  # as in the manifest, with its `dials` and its size in `bytes`
    rules: pd.DataFrame  # by type and split, all of them last
    # By sub-task and split, all of them last; over all splits their mean length in characters and the shares of answers
    # of each type; and the shared words: the share of test's gold rules that have a name's word in common with what is
    # at hand when they are looked for, the question, or its part, and the step before. By it searches by words are
    # judged.
    questions: pd.DataFrame
    skeletons: pd.DataFrame  # questions that are one chain, by sub-task, skeleton and split

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The three tables by name."""
        return {name: getattr(self, name) for name in ("rules", "questions", "skeletons")}

    def texts(self) -> dict[str, str]:
        """Return the tables as text, see `ruleworld_data.show.table_text`."""
        shares = {
            name: self.questions[name].map("{:.1%}".format) for name in (*_ANSWERS.values(), "shared words")
        }
        characters = self.questions["characters"].map("{:.0f}".format)
        shown = self.tables | {"questions": self.questions.assign(characters=characters, **shares)}
        return {
            name: table_text([*map(str, table.columns)], table.to_numpy().tolist())
            for name, table in shown.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON holds them."""
        return self.built | {name: table.to_dict("records") for name, table in self.tables.items()}


def build_stats(folder: str | Path) -> BuildStats:
    """Count what a build holds.

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no complete build, or a shard was changed.
    """
    folder = Path(folder)
    manifest = read_build(folder)
    spec = world_spec(manifest)
    splits = splits_of(spec.version)
    rules, questions, skeletons = [], [], []
    for shard in manifest["shards"]:
        config, split, path = shard["config"], shard["split"], folder / shard["path"]
        if config == "rules":
            rules += [
                {"rules": kind, "split": split, "n": n}
                for kind, n in _counts(read_shard(path, ["type"])["type"])
            ]
            continue
        table = read_shard(path, ["question", "answer_types", "skeleton"])
        characters = pc.sum(pc.utf8_length(table["question"])).as_py() or 0
        types = dict(_counts(pc.list_flatten(table["answer_types"])))
        row = {"questions": config, "split": split, "n": shard["rows"], "characters": characters}
        questions.append(row | dict.fromkeys(_ANSWERS, 0) | types)
        if not config.startswith(("multi_rule", "compare")):
            chain = {"sub-task": config, "split": split}
            skeletons += [chain | {"skeleton": name, "n": n} for name, n in _counts(table["skeleton"])]
    # The paper's types are listed where there are none of them, too.
    rules += [{"rules": kind, "split": split, "n": 0} for kind in RULE_TYPES for split in RULE_SPLITS]
    order = {name: i for i, name in enumerate((*RULE_TYPES, *EXTRA_TYPES, *subtasks_of(spec.dials)))}
    rules.sort(key=lambda row: order[row["rules"]])
    skeletons.sort(key=lambda row: (order[row["sub-task"]], row["skeleton"]))
    kinds, asked = _by_split(rules, ["rules"], RULE_SPLITS), _by_split(questions, ["questions"], splits)
    kinds.loc["all"], asked.loc["all"] = kinds.sum(), asked.sum()
    whole = pd.DataFrame(questions).drop(columns="split").groupby("questions").sum()
    whole.loc["all"] = whole.sum()
    answers = whole[[*_ANSWERS]].rename(columns=_ANSWERS)
    words = pd.Series(_shared_words(folder, manifest["shards"]))
    words["all"] = words.mean()
    asked["characters"] = whole["characters"] / whole["n"]
    return BuildStats(
        {"dials": {}, **spec.to_dict(), "bytes": sum(shard["bytes"] for shard in manifest["shards"])},
        kinds.reset_index(),
        asked.join(answers.div(answers.sum(axis=1), axis=0)).join(words.rename("shared words")).reset_index(),
        _by_split(skeletons, ["sub-task", "skeleton"], splits).reset_index(),
    )


def _by_split(counts: list[dict[str, Any]], names: list[str], splits: tuple[str, ...]) -> pd.DataFrame:
    """Return the sums of ``n``, a column for each split."""
    table = pd.DataFrame(counts).pivot_table("n", names, "split", aggfunc="sum", fill_value=0, sort=False)
    return table.reindex(columns=list(splits), fill_value=0).rename_axis(columns=None)


def _counts(column: pa.ChunkedArray) -> list[tuple[str, int]]:
    return sorted((row["values"], row["counts"]) for row in pc.value_counts(column).to_pylist())


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
    return {word for word in re.findall(r"[a-z]+", text.lower()) if word in name_words()}
