"""The questions of a sub-task as prompts, with a pool of rules each, for tools that ask once and read an answer."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np

from ..generate import question_table, rule_table
from ..pools import pool_rules, question_pool
from ..prompts import answer_template
from ..questions import boxed
from ..spec import QUESTION_SPLITS, SCALES, check_name, check_seed

RULES = ("pool", "gold", "none")


@dataclass(frozen=True)
class Setting:
    """How a sub-task is asked. Names and values as the tools' command lines give them."""

    split: str = field(default="test", metadata={"help": "validation, test, mini or heldout"})
    scale: str = field(default="paper", metadata={"help": "tiny, paper or full"})
    world_seed: int = field(default=0, metadata={"help": "seed of the world"})
    representation: str = field(default="nl", metadata={"help": "language of the rules: nl or fol"})
    rules: str = field(
        default="pool",
        metadata={"help": "pool; or gold: the question's own rules, a ceiling; or none: no rules, a floor"},
    )
    pool_size: int = field(
        default=100, metadata={"help": "rules in each question's pool, the gold ones among them"}
    )
    pool_seed: int = field(default=0, metadata={"help": "another pool for the same question"})

    def __post_init__(self) -> None:
        check_name("split", self.split, QUESTION_SPLITS)
        check_name("scale", self.scale, SCALES)
        check_seed(self.world_seed)
        check_name("representation", self.representation, ("nl", "fol"))
        check_name("rules", self.rules, RULES)
        for name in ("pool_size", "pool_seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be a whole number, 0 or more, got {value!r}")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], strict: bool = False) -> Setting:
        """Pick the setting out of a tool's options.

        Parameters
        ----------
        options : mapping
        strict : bool
            All options are ours; without it those of other names are left alone, unless they are a slip of ours.

        Raises
        ------
        ValueError
            For a bad value or name.
        """
        ours = [f.name for f in fields(cls)]
        for name in sorted(set(options) - set(ours)):
            if strict or difflib.get_close_matches(name, ours, n=1, cutoff=0.85):
                check_name("option", name, ours)
        return cls(**{name: options[name] for name in ours if name in options})


def prompt_rows(subtask: str, setting: Setting | None = None) -> list[dict[str, Any]]:
    """Return the questions of a sub-task as they are asked.

    Parameters
    ----------
    subtask : str
        A name of `ruleworld_data.spec.SUBTASKS`.
    setting : Setting, optional

    Returns
    -------
    list of dict
        In table order: ``id``, ``subtask``, ``world_id``, ``question``, ``prompt``, ``answers`` (list of str),
        ``target`` (the answers as a model should write them), ``rule_ids`` (of the prompt, in its order).

    Raises
    ------
    ValueError
        For an unknown sub-task, or a pool that cannot hold a question's gold rules.
    """
    setting = setting or Setting()
    table = question_table(subtask, setting.split, setting.scale, setting.world_seed)
    columns = ["id", "subtask", "world_id", "question", "answers", "gold_rule_ids"]
    rows = table.select(columns).to_pylist()
    return [row | asked for row, asked in zip(rows, (ask(row, setting) for row in rows), strict=True)]


def ask(row: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return ``prompt``, ``target`` and ``rule_ids`` of one row of a question table."""
    ids = _rule_ids(row, setting)
    texts: Sequence[str] = ()
    if len(ids):
        texts = pool_rules(_rules(setting), ids).column(setting.representation).to_pylist()
    section = "answer" if setting.rules != "none" else "answer_without_rules"
    prompt = answer_template().render(section, setting.representation, row["question"], texts)
    return {
        "prompt": prompt.text,
        "target": boxed(row["answers"]),
        "rule_ids": [int(rule) for rule in ids],
    }


def _rule_ids(row: Mapping[str, Any], setting: Setting) -> np.ndarray:
    if setting.rules == "none":
        return np.empty(0, dtype=np.int32)
    gold = sorted(set(row["gold_rule_ids"]))
    if setting.rules == "gold":
        return np.asarray(gold, dtype=np.int32)
    universe = _rules(setting).column("id").to_numpy()
    return question_pool(universe, row["id"], gold, setting.pool_size, setting.pool_seed)


def _rules(setting: Setting) -> Any:
    return _rule_table(
        "heldout" if setting.split == "heldout" else "train", setting.scale, setting.world_seed
    )


@lru_cache(maxsize=2)
def _rule_table(split: str, scale: str, seed: int) -> Any:
    return rule_table(split, scale, seed)
