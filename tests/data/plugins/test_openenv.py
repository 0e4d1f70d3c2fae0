"""OpenEnv's server runs our environment, and a client plays an episode of it."""

import pytest
from ruleworld_data.environments import EnvConfig, instance

openenv = pytest.importorskip("openenv", reason='openenv is missing: pip install "ruleworld-data[openenv]"')
CONFIG = {"subtasks": ["multi_hop_2"], "pool_size": 50}


def test_an_episode():
    from ruleworld_data.plugins.openenv_server import RuleWorldAction, RuleWorldEnvironment

    env = RuleWorldEnvironment()
    with pytest.raises(ValueError, match="call reset first"):
        env.step(RuleWorldAction(text="12"))
    first = env.reset(seed=3, config=CONFIG)
    made = instance(EnvConfig.from_dict(CONFIG | {"access": "tags"}), 3)
    assert first.text == made.prompt and not first.done
    found = env.step(RuleWorldAction(text="<search>if A</search>"))
    assert found.text.startswith("<rules>") and found.reward is None and not found.done
    last = env.step(RuleWorldAction(text=made.answer))
    assert last.done and last.reward == 1.0 and last.metadata["searches"] == 1 and env.state.step_count == 2


def test_the_server_answers():
    from fastapi.testclient import TestClient
    from ruleworld_data.plugins.openenv_server import app

    client = TestClient(app)
    began = client.post("/reset", json={"seed": 3, "config": CONFIG})
    assert began.status_code == 200, began.text
    assert "Question:" in began.json()["observation"]["text"]
    assert client.get("/health").status_code == 200
    assert client.post("/reset", json={"seed": -1}).status_code == 422
