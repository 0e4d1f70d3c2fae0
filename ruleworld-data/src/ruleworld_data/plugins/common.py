"""What the tools share: the options of a task, its questions as prompts with a pool of rules each, and the scores."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from ..generate import table, world_of
from ..pools import pool_rules, question_pool
from ..prompts import answer_template, with_refusal
from ..questions import boxed
from ..scoring import score_output
from ..spec import FORMS, VERSION, Dials, WorldSpec, check_columns, check_count, check_name, data_version

RULES = ("pool", "gold", "none")
METRICS = ("exact_match", "strict_match", "missing_box")
"""What every tool reports."""


@dataclass(frozen=True)
class TaskOptions:
    """How a sub-task is asked. Names and values as the tools' command lines give them.

    Attributes
    ----------
    split, scale : str
        Of the questions.
    world_seed : int
    representation : {"nl", "fol"}
        Language of the rules.
    rules : {"pool", "gold", "none"}
        ``gold``: the question's own rules, a ceiling; ``none``: no rules, a floor.
    pool_size : int
        Rules in each question's pool, the gold ones among them.
    pool_seed : int
        Another pool for the same question.
    data_version : str
        A name of `ruleworld_data.spec.VERSIONS`.
    dials : str
        Where the world departs from the paper's, as `ruleworld_data.spec.Dials.parse` reads it: "hops=6,crowd=16".
    """

    split: str = "test"
    scale: str = "paper"
    world_seed: int = 0
    representation: str = "nl"
    rules: str = "pool"
    pool_size: int = 100
    pool_seed: int = 0
    data_version: str = VERSION
    dials: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_version", data_version(self.data_version))
        object.__setattr__(self, "dials", str(self.spec.dials))
        check_name("representation", self.representation, FORMS)
        check_name("rules", self.rules, RULES)
        check_count("pool_size", self.pool_size)
        check_count("pool_seed", self.pool_seed)

    @classmethod
    def pick(cls, options: Mapping[str, Any]) -> Self:
        """Pick ours out of a tool's options; others are left alone, unless they are a slip of ours.

        Raises
        ------
        ValueError
            For a bad value or name.
        """
        ours = [f.name for f in fields(cls)]
        for name in sorted(set(options) - set(ours)):
            if difflib.get_close_matches(name, ours, n=1, cutoff=0.85):
                check_name("option", name, ours)
        return cls(**{name: options[name] for name in ours if name in options})

    @property
    def spec(self) -> WorldSpec:
        """The split of the world that is asked about."""
        return WorldSpec(self.scale, self.split, self.world_seed, self.data_version, Dials.parse(self.dials))

    @property
    def rule_table(self) -> Any:
        """The rules of the split's world, a pyarrow.Table."""
        return _rules(replace(self.spec, split="heldout" if self.split == "heldout" else "train"))


def prompt_rows(subtask: str, options: TaskOptions | None = None) -> list[dict[str, Any]]:
    """Return the questions of a sub-task as they are asked.

    Parameters
    ----------
    subtask : str
        A name of `ruleworld_data.spec.ALL_SUBTASKS`; one beyond the paper's turns the dial that it needs.
    options : TaskOptions, optional

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
    options = options or TaskOptions()
    options = replace(options, dials=str(options.spec.dials.reaching(subtask)))
    columns = ["id", "subtask", "world_id", "question", "answers", "gold_rule_ids"]
    rows = table(subtask, options.spec).select(columns).to_pylist()
    return [row | ask(row, options) for row in rows]


def ask(row: Mapping[str, Any], options: TaskOptions) -> dict[str, Any]:
    """Return ``prompt``, ``target`` and ``rule_ids`` of one row of a question table.

    Raises
    ------
    ValueError
        For a row without what is read of it, one of another world than the options', or too small a pool.
    """
    check_columns("a question", row, "id", "subtask", "world_id", "question", "answers", "gold_rule_ids")
    if row["world_id"] != (made := world_of(options.spec).world_id):
        raise ValueError(
            f"question {row['id']} is about world {row['world_id']}, its options make {made}; give them the split, the "
            "world_seed and the dials of the question"
        )
    gold = sorted(set(row["gold_rule_ids"]))
    ids = np.asarray(gold if options.rules == "gold" else [], dtype=np.int32)
    if options.rules == "pool":
        universe = options.rule_table.column("id").to_numpy()
        ids = question_pool(universe, row["id"], gold, options.pool_size, options.pool_seed, row["world_id"])
    texts: Sequence[str] = ()
    if len(ids):
        rules = pool_rules(options.rule_table, ids)
        texts = rules.column(options.representation).to_pylist()
    section = "answer" if options.rules != "none" else "answer_without_rules"
    question = with_refusal(row["question"], row["subtask"])
    template = answer_template(options.spec.version)
    prompt = template.render(section, options.representation, question, texts)
    return {"prompt": prompt.text, "target": boxed(row["answers"]), "rule_ids": ids.tolist()}


@lru_cache(maxsize=2)
def _rules(spec: WorldSpec) -> Any:
    return table("rules", spec)


def output_scores(output: str, answers: Sequence[str]) -> dict[str, float]:
    """Return the `METRICS` of one output against its gold answers, each 0 to 1."""
    score = score_output(output, answers)
    return {name: float(getattr(score, name)) for name in METRICS}
