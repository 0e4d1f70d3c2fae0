"""verifiers finds our taskset by its id, iterates it, serves its tool and scores with it."""

import asyncio
from types import SimpleNamespace

import pytest
from ruleworld_data.environments import EnvConfig, instance

pytest.importorskip("verifiers", reason='verifiers is missing: pip install "ruleworld-data[verifiers]"')
OPTIONS = {"subtasks": ["multi_hop_2"], "pool_size": 200, "reward": {"search_cost": 0.1}}


@pytest.fixture
def tasks():
    from verifiers.v1.utils.loaders import import_taskset

    found = import_taskset("ruleworld-taskset")
    kind = getattr(found, "RuleWorldTaskset", found)
    config = next(base for base in kind.__orig_bases__).__args__[1](id="ruleworld-taskset", options=OPTIONS)
    taskset = kind(config)
    assert not taskset.bounded
    with pytest.raises(ValueError, match=r"access must be 'tool', .* got 'prompt'"):
        next(kind(config.model_copy(update={"options": OPTIONS | {"access": "prompt"}})).load())
    return list(taskset.take(4))


def test_tasks_are_the_environments(tasks):
    config = EnvConfig.from_dict(OPTIONS | {"access": "tool"})
    assert [task.data.prompt for task in tasks] == [instance(config, i).prompt for i in range(4)]
    assert [task.data.idx for task in tasks] == [0, 1, 2, 3] and len({task.key for task in tasks}) == 4
    assert all(asyncio.run(task.validate(None)) for task in tasks)


def test_the_tool_counts_and_the_reward_takes_it_off(tasks):
    task = tasks[0]
    (server,) = type(task).toolsets(task.config)
    asyncio.run(server.setup_task(task.data))
    assert asyncio.run(server.search("if A")).startswith("If ")
    for _ in range(4):
        asyncio.run(server.search("if A"))
    assert server.state.searches == 5
    (hook,) = task.hooks("reward")
    answer = instance(EnvConfig.from_dict(OPTIONS | {"access": "tool"}), 0)
    free = len(answer.metadata["gold_rule_ids"])
    trace = SimpleNamespace(last_reply=answer.answer, state=server.state)
    assert asyncio.run(hook(trace)) == pytest.approx(1 - 0.1 * (5 - free))
    assert asyncio.run(hook(SimpleNamespace(last_reply="no", state=server.state))) == 0
