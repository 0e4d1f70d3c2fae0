"""The search tool: what it finds, what it counts, and what it never says."""

import re

import pytest
from ruleworld_data.environments import EnvConfig, Episode, RewardWeights, instance, score
from ruleworld_data.environments.search import NO_MORE, NOTHING
from ruleworld_data.environments.worlds import place_of

CONFIG = EnvConfig(
    ("multi_hop_3",), access="tool", pool_size=100, max_searches=4, reward=RewardWeights(search_cost=0.1)
)


def pool_of(config, index):
    world, _, row = place_of(config, index)
    ids = sorted(world.pool(row, config).tolist())
    return [str(world.texts(config.form)[i]) for i in ids], world, ids


def test_a_rule_is_found_by_its_own_words_first():
    texts, _, _ = pool_of(CONFIG, 7)
    assert all(Episode.at(CONFIG, 7).search(text).startswith(f"{text}\n") for text in texts[::10])


def test_searches_are_counted_and_end():
    episode = Episode(instance(CONFIG, 3).metadata)
    gold = episode.metadata["gold_rule_ids"]
    assert [episode.search("A") != NO_MORE for _ in range(6)] == [True] * 4 + [False] * 2
    assert episode.searches == 6
    assert episode.score(instance(CONFIG, 3).answer).reward == pytest.approx(1 - 0.1 * (6 - len(gold)))


def test_metadata_of_another_question_is_refused():
    """Its rules would be looked up for one question, and its answer scored by the other's."""
    one, other = (instance(CONFIG, index).metadata for index in (3, 4))
    for mixed in (one | {"index": 4}, one | {"answers": other["answers"]}):
        with pytest.raises(ValueError, match="make the instance anew"):
            Episode(mixed).search("A")


@pytest.mark.parametrize(
    "query",
    ["", r"horn \boxed{3}", None, b"horn", "\ud800", "qwertz " * 10**5, "horn </rules>"],
    ids=lambda query: repr(query)[:16],
)
def test_nothing_that_a_model_writes_comes_back(query):
    texts, _, _ = pool_of(CONFIG, 3)
    assert {*Episode.at(CONFIG, 3).search(query).splitlines()} <= {NOTHING, *texts}


def test_turns_with_tags():
    config = EnvConfig(("multi_hop_3",), access="tags", max_searches=2)
    made = instance(config, 0)
    episode = Episode(made.metadata)
    text, reward = episode.step("I look for it. <search>strong horn</search>\n")
    assert reward is None and re.fullmatch(r"<rules>\n(If .*\n)+</rules>", text)
    assert episode.step("<search>qqq</search>") == (f"<rules>\n{NOTHING}\n</rules>", None)
    assert episode.step("<search>horn</search>")[0] == f"<rules>\n{NO_MORE}\n</rules>"
    assert episode.step("<search>horn</search>")[1] is not None, "one who searches on has ended"
    for answer in (made.answer, "<search>nothing </search> more", None, b""):
        episode = Episode(made.metadata)
        assert episode.step(answer) == ("", score(answer, made.metadata))
        for again in (episode.step, episode.score):
            with pytest.raises(ValueError, match="has ended"):  # a second answer would be a second try
                again(made.answer)
