"""Calls of the Python interface that are wrong: each is refused in words that say what to give."""

import pytest
from ruleworld_data.environments import instance
from ruleworld_data.fresh import fresh_world
from ruleworld_data.generate import table
from ruleworld_data.io import export
from ruleworld_data.plugins import TaskOptions, ask
from ruleworld_data.pools import pool_rules, question_pool
from ruleworld_data.questions import boxed, training_text
from ruleworld_data.text import paragraphs
from ruleworld_data.verify import solve

from .cases import blocks, question_table, rule_table

TINY = TaskOptions(scale="tiny", pool_size=20)
CALLS = {one.__name__: one for one in (instance, fresh_world, table, export, ask, pool_rules, question_pool)}
CALLS |= {one.__name__: one for one in (boxed, training_text, paragraphs, solve)}


@pytest.mark.parametrize(("call", "told"), blocks(__file__, "misuses.txt")[0])
def test_a_wrong_call_says_what_to_give(call, told):
    rows = question_table("multi_hop_3", "test", "tiny").to_pylist()
    with pytest.raises(ValueError) as caught:
        eval(call, CALLS | {"TINY": TINY, "rows": rows, "rules": rule_table(scale="tiny")})
    assert told in str(caught.value)
