"""The certificate: it passes where it should, and a reward that is spoilt on purpose fails it."""

import json
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from ruleworld_data.cli import app
from ruleworld_data.environments import Certificate, EnvConfig, Reward, RewardWeights, certify, instance
from ruleworld_data.environments import certificate as module
from ruleworld_data.environments.instances import SCHEMA
from ruleworld_data.environments.policies import POLICIES, QUERIES, Kind, View
from ruleworld_data.environments.worlds import EnvWorld, place_of
from typer.testing import CliRunner

gaming = runpy.run_path(str(Path(__file__).parent / "gaming.py"))
CHAINS = EnvConfig(("multi_hop_3",), reward=RewardWeights(exact=0.8, steps=0.1, format=0.1))


def test_a_sound_environment_is_certified():
    found = certify(CHAINS, 24)
    assert found.passes, found.to_text(99)
    assert {each["checked"] for each in found.checks.values()} == {24}
    assert found.floor == pytest.approx(0.1)
    assert json.loads(json.dumps(found.to_dict()))["config"] == CHAINS.to_dict()
    assert "All pass." in found.to_text()


def test_no_way_to_write_an_output_or_a_query_games_the_reward(monkeypatch):
    policies, queries = POLICIES + gaming["MORE_POLICIES"], QUERIES | gaming["MORE_QUERIES"]
    monkeypatch.setattr(module, "POLICIES", policies)
    monkeypatch.setattr(module, "QUERIES", queries)
    found = certify(replace(CHAINS, access="tool"), 24)
    assert found.passes, found.to_text(99)
    assert len({each.name for each in found.policies}) == len(policies) + len(queries) >= 80


def test_frequent_answers_begin_again_where_few_are_known():
    seen = View(
        "", "", (), ("state", "count", "environment"), {"state": ["tiny", "sleepy"], "count": ["3"]}, 1
    )
    assert [seen.each(rank) for rank in (0, 1, 2)] == [
        ["tiny", "3", "12"],
        ["sleepy", "3", "12"],
        ["tiny", "3", "12"],
    ]


def test_pools_that_begin_with_their_gold_rules_are_found(monkeypatch):
    """Also where the last instance has so many gold rules that its own pool tells nothing."""
    config = EnvConfig(("single_rule", "multi_rule_8"), pool_size=16)
    drawn = EnvWorld.pool

    def told(world, row, config):
        gold = set(row["gold_rule_ids"])
        return np.array(sorted(drawn(world, row, config).tolist(), key=lambda rule: rule not in gold))

    monkeypatch.setattr(module, "POLICIES", POLICIES[:1])
    name = "instances share no question, seeds no world, places tell nothing"
    assert not certify(config, 40).checks[name]["failed"]
    monkeypatch.setattr(EnvWorld, "pool", told)
    assert "gold rules stand at 0." in certify(config, 40).checks[name]["example"]


def test_policies_that_search():
    found = certify(replace(CHAINS, access="tool", pool_size=60, reward=RewardWeights(search_cost=0.2)), 10)
    searched = {each.name: each.mean for each in found.policies if each.name.startswith("queries")}
    assert len(searched) == len(QUERIES) and searched["queries: without end"] == 0


def test_a_pool_without_rivals_is_given_away():
    """What the default mends: the one rule about what is asked for."""
    found = certify(replace(CHAINS, pool_size=30, rivals=0.0, reward=RewardWeights()), 60)
    failed = {each.name for each in found.policies if not each.passes}
    assert "count and a change, no chain" in failed and not found.passes
    assert "FAILED: " in found.to_text()
    proved = certify(replace(CHAINS, pool_size=30, rivals=0.0, reward=RewardWeights(exact=0, proved=1)), 30)
    assert proved.passes and proved.policies[0].mean == 0
    assert {each.allowed for each in proved.policies if each.kind == Kind.RULES} == {0.0}


def test_the_limit_of_a_skipped_chain_is_a_blind_choice_of_sixteen():
    """Counted on the rules of a world: as many changes, none much likelier than another; the weights share it out."""
    world, _, _ = place_of(CHAINS, 0)
    changing = world.rules.filter(pc.is_valid(world.rules.column("operator")))
    seen = Counter(zip(changing["operator"].to_pylist(), changing["amount"].to_pylist(), strict=True))
    assert len(seen) == module.CHANGES
    alike = 1 / len(seen)
    assert max(seen.values()) / seen.total() == pytest.approx(alike, rel=0.25)
    chance = alike + (1 - alike) / 16
    assert (
        module.chain_bar(RewardWeights())
        == module.chain_bar(RewardWeights(strict=1))
        == pytest.approx(chance)
    )
    assert module.chain_bar(CHAINS.reward) == pytest.approx(0.8 * chance)
    assert module.chain_bar(RewardWeights(exact=0, strict=0.5, proved=0.5)) == pytest.approx(chance / 2)


@pytest.mark.parametrize(
    "spoil, check",
    [
        (lambda one: one.metadata.update(answers=["9999"]), "clingo derives the answer from the pool"),
        (lambda one: one.metadata["conclusions"].reverse(), "the golden answer scores 1"),
        (lambda one: one.metadata.update(question="How many?"), "instances share no question"),
    ],
)
def test_a_spoilt_instance_is_found(spoil, check, monkeypatch):
    def spoilt(config, index):
        made = instance(config, index)
        if config == CHAINS:
            spoil(made)
        return made

    monkeypatch.setattr(module, "instance", spoilt)
    monkeypatch.setattr(module, "POLICIES", POLICIES[:1])
    found = certify(CHAINS, 3)
    (name,) = [name for name in found.checks if name.startswith(check)]
    assert found.checks[name]["failed"] >= 2 and found.checks[name]["example"]


def test_a_scorer_that_finds_the_answer_anywhere_is_found(monkeypatch):
    def careless(answer, metadata, searches=0):
        record = json.loads(metadata) if isinstance(metadata, str) else metadata
        good = all(part in str(answer) for part in record["answers"])
        return Reward(float(good), *[0.0] * 6)

    monkeypatch.setattr(module, "score", careless)
    failed = {each.name for each in certify(CHAINS, 6).policies if not each.passes}
    assert {"every candidate in one box", "every number with or"} <= failed


def test_the_command(tmp_path):
    out, config = tmp_path / "certificate.json", tmp_path / "config.json"
    config.write_text(json.dumps({"subtasks": ["single_rule"], "pool_size": 40}))
    words = ["certify", str(config), "--set", "form=fol", "--set", "seed=3", "--instances", "5"]
    done = CliRunner().invoke(app, [*words, "--out", str(out)])
    written = json.loads(out.read_text())
    assert done.exit_code == (0 if written["passes"] else 1), done.output
    assert written["config"]["form"] == "fol" and written["instances"] == 5
    for wrong, said in (["--set", "forms=fol"], "'form'"), (["--set", "seed"], "--set pool_size=1000"):
        done = CliRunner().invoke(app, ["certify", *wrong])
        assert done.exit_code == 2 and said in done.output


def test_the_page_shows_the_committed_certificate():
    """Policies and configuration are today's; run the page's command anew when either changes."""
    docs = Path(__file__).parents[3] / "ruleworld-data/docs"
    found = json.loads((docs / "environments-certificate.json").read_text())
    assert found["passes"] and found["schema"] == SCHEMA and found["config"] == EnvConfig().to_dict()
    assert {each["name"] for each in found["policies"]} == {policy.name for policy in POLICIES}
    policies = [
        module.PolicyResult(**{k: v for k, v in each.items() if k != "passes"}) for each in found["policies"]
    ]
    told = Certificate(found["config"], found["instances"], found["floor"], found["checks"], policies)
    text, page = told.to_text(), (docs / "environments.md").read_text()
    assert told.passes
    table = text[text.index("| policy") :].splitlines()[:6]
    assert "\n".join(table) in page and f"{len(POLICIES)} gaming policies" in page
