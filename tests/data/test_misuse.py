"""Calls of the Python interface that are wrong: each is refused in words that say what to give."""

import pytest
from ruleworld_data import environments, fresh, generate, io, plugins, pools, questions, scoring, text, verify

from .cases import blocks, question_table, rule_table

HOMES = (environments, fresh, generate, io, plugins, pools, questions, scoring, text, verify)
CALLS = {name: getattr(home, name) for home in HOMES for name in home.__all__ if name[0].islower()}
TINY = plugins.TaskOptions(scale="tiny", pool_size=20)


@pytest.mark.parametrize(("call", "told"), blocks(__file__, "misuses.txt")[0])
def test_a_wrong_call_says_what_to_give(call, told):
    rows = question_table("multi_hop_3", "test", "tiny").to_pylist()
    with pytest.raises(ValueError) as caught:
        eval(call, CALLS | {"TINY": TINY, "rows": rows, "rules": rule_table(scale="tiny")})
    assert told in str(caught.value)
