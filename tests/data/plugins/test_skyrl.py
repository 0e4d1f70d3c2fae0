"""skyrl-gym makes our environment by its name and plays episodes of it."""

import pytest
from ruleworld_data.environments import EnvConfig, RewardWeights, instance

skyrl_gym = pytest.importorskip(
    "skyrl_gym", reason='skyrl-gym is missing: pip install "ruleworld-data[skyrl]"'
)


@pytest.fixture(scope="module")
def plugin():
    from ruleworld_data.plugins import skyrl_environment

    skyrl_environment.register()
    return skyrl_environment


def test_one_turn(plugin):
    config = EnvConfig(("multi_hop_2",), pool_size=30)
    row = plugin.rows(config, [4])[0]
    env = skyrl_gym.make(row["env_class"], env_config={}, extras=row)
    prompt, _ = env.init(row["prompt"])
    assert prompt[0]["content"] == instance(config, 4).prompt
    done = env.step(instance(config, 4).answer)
    assert done["done"] and done["reward"] == 1.0 and done["observations"] == []


def test_turns_that_search_and_the_last_is_the_answer(plugin):
    config = EnvConfig(("multi_hop_2",), access="tags", max_searches=2, reward=RewardWeights(search_cost=0.1))
    row = plugin.rows(config, [4])[0]
    env = skyrl_gym.make("ruleworld", env_config={}, extras=row)
    first = env.step("<search>if A</search>")
    assert not first["done"] and first["reward"] == 0.0
    assert first["observations"][0]["content"].startswith("<rules>\nIf ")
    assert env.step("<search>fin</search>")["done"] is False
    last = env.step("<search>leaf</search>")
    assert last["done"] and last["reward"] == 0.0 and env.get_metrics() == {"searches": 2}, (
        "the last is not looked up"
    )


def test_a_row_without_a_record_is_refused(plugin):
    with pytest.raises(ValueError, match="needs reward_spec"):
        skyrl_gym.make("ruleworld", env_config={}, extras={})
