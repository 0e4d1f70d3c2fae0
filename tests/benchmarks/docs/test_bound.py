"""The documented limit of methods that cannot look ahead, counted anew from the pools and proofs."""

import re
from collections import Counter
from pathlib import Path

from rwbench.methods.solver import Solver
from rwbench.recipes import Options, runs
from rwbench.run.data import DataSource, select
from rwbench.run.pools import build_pools
from rwbench.score.results import read_results

PAGE = Path(__file__).parents[3] / "benchmarks/docs/bundled-models.md"
ARENA = PAGE.parents[1] / "results/arena"
CHAINS = ("multi_hop_2", "multi_hop_3", "multi_hop_4")
OVER_OTHERS = ("state2attr", "action2attr")
"""Types of the step before the last of a chain that goes by way of another thing."""


def test_the_limit_without_looking_ahead_is_that_of_the_pools():
    """One over the number of a pool's rules with the premise of the step before the last, mean over chains."""
    said = re.search(
        r"([\d.]+), ([\d.]+) and ([\d.]+) of the cases at most among 100, 1,000 and 10,000 rules \(one over the "
        r"number of rules with its premise, mean of (\d+) chains of `mini`",
        " ".join(PAGE.read_text().split()),
    )
    source = DataSource("paper", 0)
    rules = source.rules("mini")
    columns = rules.table.select(["id", "premise_fol", "type"]).to_pydict().values()
    premise, kind = {}, {}
    for rule, words, name in zip(*columns, strict=True):
        premise[rule], kind[rule] = words, name
    found = {}
    for spec in runs(
        Options(source=source, split="mini", forms=("fol",)), [100, 1000, 10000], lambda *_: [Solver()]
    ):
        assert read_results(ARENA / spec.run_id)  # the pools are those that the table is about
        questions = {name: select(source.questions(name, "mini"), spec.limit) for name in spec.subtasks}
        shares = []
        for pool in build_pools(spec, questions, rules):
            alike = Counter(premise[rule] for rule in pool.ids.tolist())
            chains = [question for question in pool.questions if question.subtask in CHAINS]
            golds = [question.row["steps"][-2]["rule_ids"][0] for question in chains]
            shares += [1 / alike[premise[gold]] for gold in golds if kind[gold] in OVER_OTHERS]
        found[spec.pool_size] = f"{sum(shares) / len(shares):.2f}", str(len(shares))
    assert said is not None, f"{PAGE.name} no longer gives the limit"
    *values, chains = said.groups()
    assert found == {size: (value, chains) for size, value in zip((100, 1000, 10000), values, strict=True)}
