"""reasoning-gym creates, iterates and scores our dataset by its own functions."""

import pytest
from ruleworld_data.environments import EnvConfig, instance

reasoning_gym = pytest.importorskip(
    "reasoning_gym", reason='reasoning-gym is missing: pip install "ruleworld-data[reasoning-gym]"'
)


@pytest.fixture(scope="module")
def data():
    import ruleworld_data.plugins.reasoning_gym_task  # noqa: F401

    return reasoning_gym.create_dataset(
        "ruleworld", seed=5, size=30, subtasks=["multi_hop_2", "multi_rule_2"], pool_size=40
    )


def test_items_are_the_environments(data):
    items = list(data)
    assert len(items) == 30
    config = EnvConfig(("multi_hop_2", "multi_rule_2"), seed=5, pool_size=40)
    assert [item["question"] for item in items] == [instance(config, i).prompt for i in range(30)]
    assert all(item["metadata"]["source_dataset"] == "ruleworld" for item in items)


def test_it_scores_as_reasoning_gym_extracts(data):
    from reasoning_gym.utils import extract_answer

    for item in data:
        said = extract_answer(f"<think>12?</think><answer>{item['answer'].upper()}</answer>")
        assert data.score_answer(said, item) == 1.0
        assert data.score_answer(rf"I say \boxed{{{item['answer']}}}", item) == 1.0
        assert [data.score_answer(bad, item) for bad in (None, "", "nothing", 3)] == [0.0] * 4


def test_other_seeds_give_other_items_and_bad_options_are_refused(data):
    first = reasoning_gym.create_dataset("ruleworld", seed=6, size=30, subtasks=["multi_hop_2"], pool_size=40)
    again = reasoning_gym.create_dataset("ruleworld", seed=7, size=30, subtasks=["multi_hop_2"], pool_size=40)
    assert not {item["question"] for item in first} & {item["question"] for item in again}
    with pytest.raises(ValueError, match="pool_size must be from 3"):
        reasoning_gym.create_dataset("ruleworld", subtasks=["multi_hop_2"], pool_size=2)


def test_the_composite():
    from reasoning_gym.composite import CompositeConfig, CompositeDataset, DatasetSpec

    spec = DatasetSpec(name="ruleworld", weight=1, config={"subtasks": ["single_rule"], "pool_size": 30})
    mixed = CompositeDataset(CompositeConfig(size=5, seed=1, datasets=[spec]))
    assert all(mixed.score_answer(item["answer"], item) == 1.0 for item in mixed)
