"""The certificate: it passes where it should, and an environment that is spoilt on purpose fails it."""

import json
from dataclasses import replace

import pytest
from ruleworld_data.cli import app
from ruleworld_data.environments import EnvConfig, RewardWeights, certificate_text, certify, instance
from ruleworld_data.environments import certificate as module
from typer.testing import CliRunner

CHAINS = EnvConfig(("multi_hop_3",), reward=RewardWeights(exact=0.8, steps=0.1, format=0.1))


@pytest.mark.parametrize(
    "changes",
    [
        {"access": "tool"},
        {"version": "1.2"},
        {"version": "1.2", "dials": "words=1", "access": "tags"},
        {"version": "1.2", "dials": "exceptions=2,words=0.8", "subtasks": ("exceptions_2",)},
        {"version": "1.2", "dials": "compare=true", "subtasks": ("compare_3",), "form": "fol"},
        {"version": "1.2", "dials": "unknown=true", "subtasks": ("unknown_2", "multi_hop_2")},
    ],
)
def test_a_sound_environment_is_certified(changes):
    config = replace(CHAINS, **changes)
    found = certify(config, 24)
    assert found["passes"] and "All pass." in certificate_text(found), found
    assert {check["checked"] for check in found["checks"].values()} == {24}
    assert json.loads(json.dumps(found))["config"] == config.to_dict()


@pytest.mark.parametrize(
    "spoil, check",
    [
        (lambda one: one.metadata.update(answers=["9999"]), "clingo derives the answer from the pool"),
        (lambda one: one.metadata["conclusions"].reverse(), "the golden answer scores 1"),
    ],
)
def test_a_spoilt_instance_is_found(spoil, check, monkeypatch):
    def spoilt(config, index):
        made = instance(config, index)
        if config == CHAINS:
            spoil(made)
        return made

    monkeypatch.setattr(module, "instance", spoilt)
    found = certify(CHAINS, 3)
    assert found["checks"][check]["failed"] >= 2 and found["checks"][check]["example"] and not found["passes"]


def test_nothing_is_not_certified():
    with pytest.raises(ValueError, match="count must be"):
        certify(CHAINS, 0)


def test_the_command(tmp_path):
    out, words = tmp_path / "certificate.json", ["certify", "--instances", "5"]
    for option in ('subtasks=["single_rule"]', "pool_size=40", "form=fol", "seed=3"):
        words += ["--set", option]
    done = CliRunner().invoke(app, [*words, "--out", str(out)])
    written = json.loads(out.read_text())
    assert done.exit_code == (0 if written["passes"] else 1), done.output
    assert written["config"]["form"] == "fol" and written["instances"] == 5
    for wrong, said in (["--set", "forms=fol"], "'form'"), (["--set", "seed"], "--set pool_size=1000"):
        done = CliRunner().invoke(app, ["certify", *wrong])
        assert done.exit_code == 2 and said in done.output
