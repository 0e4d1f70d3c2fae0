"""Instances and scores a second on one core, beside two datasets of reasoning-gym, and the page that shows them.

``python tests/data/environments/test_speed.py FILE.json`` measures and prints the page's table. Worlds are drawn within
the time; a score is that of a perfect answer, the slowest kind.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ruleworld_data.environments import EnvConfig, Episode, RewardWeights, instance, score

INSTANCES, SCORES, SEED = 4_096, 20_000, 20_261_123
CHAIN = ("multi_hop_3",)
CASES = {
    "multi_hop_3, 1,000 rules to search": EnvConfig(CHAIN, SEED, access="tool", pool_size=1_000),
    "all sub-tasks, 1,000 rules to search": EnvConfig(seed=SEED + 1, access="tool", pool_size=1_000),
    "multi_hop_3, 100 rules in the prompt": EnvConfig(CHAIN, SEED + 2),
    "multi_hop_3, 1,000 rules in the prompt": EnvConfig(CHAIN, SEED + 3, pool_size=1_000),
    "all sub-tasks, 1,000 rules in the prompt": EnvConfig(seed=SEED + 4, pool_size=1_000),
}
PEERS = ("propositional_logic", "syllogism")
DOCS = Path(__file__).parents[3] / "ruleworld-data/docs"


def rate(do: Callable[[int], object], count: int) -> float:
    start = time.process_time()
    for i in range(count):
        do(i)
    return round(count / (time.process_time() - start), 1)


def ours(config: EnvConfig) -> dict[str, float]:
    made = [instance(config, 0)]
    rates = {"instances": rate(lambda i: made.append(instance(config, i)), INSTANCES)}
    some = made[1:65]
    rates["scores"] = rate(lambda i: score(some[i % 64].answer, some[i % 64].metadata), SCORES)
    weighed = config.to_dict() | {"reward": vars(RewardWeights(steps=0.2, format=0.1))}
    full = [(one.answer, one.metadata | {"config": weighed}) for one in some]
    rates["scores with steps"] = rate(lambda i: score(*full[i % 64]), SCORES)
    if config.access != "prompt":
        episodes = [Episode(one.metadata) for one in some]
        rates["searches"] = rate(lambda i: episodes[i % 64].find(some[i % 64].metadata["question"]), 1_000)
    return rates


def theirs(name: str) -> dict[str, float]:
    import reasoning_gym

    data = reasoning_gym.create_dataset(name, seed=SEED, size=INSTANCES)
    made: list[Any] = []
    instances = rate(lambda i: made.append(data[i]), INSTANCES)
    scores = rate(lambda i: data.score_answer(made[i % 64]["answer"], made[i % 64]), SCORES)
    return {"instances": instances, "scores": scores}


def measure() -> dict[str, Any]:
    instance(EnvConfig(), 0)  # tables of the vocabulary
    rows = {name: ours(config) for name, config in CASES.items()}
    rows |= {f"reasoning-gym {name}": theirs(name) for name in PEERS}
    versions = {name: version(name) for name in ("ruleworld-data", "reasoning-gym")}
    counts = {"instances": INSTANCES, "scores": SCORES, "python": platform.python_version()}
    return counts | versions | {"rows": rows}


def table(measured: dict[str, Any]) -> str:
    names = ("instances", "scores", "scores with steps", "searches")
    lines = ["| a second, one core | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for case, row in measured["rows"].items():
        lines.append(f"| {case} | " + " | ".join(f"{row[n]:,.0f}" if n in row else "" for n in names) + " |")
    return "\n".join(lines)


def test_the_page_shows_the_committed_run():
    committed = json.loads((DOCS / "environments-speed.json").read_text())
    assert table(committed) in (DOCS / "environments.md").read_text()
    assert committed["rows"].keys() == {*CASES, *(f"reasoning-gym {name}" for name in PEERS)}


if __name__ == "__main__":
    measured = measure()
    Path(sys.argv[1]).write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print(table(measured))
