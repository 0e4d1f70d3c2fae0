"""RuleWorld as a retrieval task of MTEB: the rules that a question needs, out of a pool.

``mteb.evaluate(model, RuleWorldRetrieval())`` reports one subset per sub-task. All questions of a sub-task search one
pool, which holds the gold rules of all of them; a single search per question, so multi-hop questions name rules that
they do not mention.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from ruleworld_data import GENERATOR_VERSION
from ruleworld_data.generate import table
from ruleworld_data.plugins import TaskOptions, tool
from ruleworld_data.pools import pool_rules, shared_pool
from ruleworld_data.scoring import union_recall
from ruleworld_data.spec import SUBTASKS, read_fields, subtasks_of

with tool("mteb", "mteb"):
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

DEFAULTS = TaskOptions(pool_size=10_000)
_DESCRIPTION = """Find the rules that a question needs among a pool of rules of an abstract world. One to eight rules
are relevant to a question; its answer is provable from them."""


class RuleWorldRetrieval(AbsTaskRetrieval):
    """Retrieval of gold rules, one subset per sub-task.

    Parameters
    ----------
    seed : int
        MTEB's own.
    **options
        ``split``, ``scale``, ``world_seed``, ``representation``, ``pool_size`` (rules of the pool that a sub-task's
        questions share), ``pool_seed``, ``data_version`` and ``dials`` of `ruleworld_data.plugins.TaskOptions`.
        Whatever differs from the defaults becomes part of the task's name, so that MTEB's cache never mixes two
        settings.

    Raises
    ------
    ValueError
        For a wrong name or value.
    """

    data_loaded: bool  # MTEB's own flag
    metadata = TaskMetadata(
        name="RuleWorldRetrieval",
        description=_DESCRIPTION,
        dataset={"path": "ruleworld", "revision": GENERATOR_VERSION},
        reference=None,
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs={name: ["eng-Latn"] for name in SUBTASKS},
        main_score="ruleworld_recall_at_gold",
        date=None,
        domains=["Constructed"],
        task_subtypes=["Reasoning as Retrieval"],
        license="apache-2.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="created",
        bibtex_citation="",
        prompt={"query": "Given a question, retrieve the rules that its answer follows from"},
    )

    def __init__(self, seed: int = 42, **options: Any) -> None:
        self.options = read_fields(TaskOptions, {"pool_size": DEFAULTS.pool_size} | options, "option")
        if self.options.rules != "pool":
            raise ValueError(f"rules must be 'pool' to search among, got {self.options.rules!r}")
        changed = [f"{k}={v}" for k, v in vars(self.options).items() if v != getattr(DEFAULTS, k)]
        name = ",".join(["RuleWorldRetrieval", *changed])
        data = self.metadata.dataset | {"revision": self.options.spec.generator}
        update = {"name": name, "eval_splits": [self.options.split], "dataset": data}
        update["eval_langs"] = {key: ["eng-Latn"] for key in subtasks_of(self.options.spec.dials)}
        self.metadata = self.metadata.model_copy(update=update)
        super().__init__(seed=seed)

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Generate the questions and their pools; nothing is downloaded."""
        if self.data_loaded:
            return
        self.dataset = {name: {self.options.split: self._split(name)} for name in self.hf_subsets}
        self.data_loaded = True

    def _split(self, subtask: str) -> Any:
        from datasets import Dataset

        options, rules = self.options, self.options.rule_table
        questions = table(subtask, options.spec).select(["id", "question", "gold_rule_ids"]).to_pylist()
        gold = {rule for row in questions for rule in row["gold_rule_ids"]}
        key = ("mteb", subtask, options.split, options.pool_seed)
        pool = shared_pool(rules["id"].to_numpy(), gold, options.pool_size, *key)
        texts = pool_rules(rules, pool)[options.representation].to_pylist()
        queries = [{"id": row["id"], "text": row["question"]} for row in questions]
        return {
            "corpus": Dataset.from_dict({"id": [str(rule) for rule in pool], "text": texts}),
            "queries": Dataset.from_list(queries),
            "relevant_docs": {row["id"]: {str(r): 1 for r in row["gold_rule_ids"]} for row in questions},
            "top_ranked": None,
        }

    def task_specific_scores(
        self,
        scores: Mapping[str, Mapping[str, float]],
        qrels: Mapping[str, Mapping[str, int]],
        results: Mapping[str, Mapping[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """Return our recall of the same rankings, with our order of ties: by score, then by rule id.

        ``ruleworld_recall_at_gold`` looks at as many rules as the question has gold rules.
        """
        pairs = []
        for question, gold in qrels.items():
            ranked = sorted((-value, int(rule)) for rule, value in results.get(question, {}).items())
            pairs.append(([[rule for _, rule in ranked]], [[int(rule) for rule in gold]]))
        budgets: tuple[Any, ...] = ("gold", 1, 10, 100)
        return {
            f"ruleworld_recall_at_{k}": fmean([union_recall(*pair, k) for pair in pairs]) for k in budgets
        }
