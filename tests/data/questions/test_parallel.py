"""How parallel questions are put together, against plainer ways."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ruleworld_data.questions.parallel import ParallelBlock


@given(st.sampled_from([2, 5, 70]), st.data())
def test_questions_are_kept_that_use_no_rule_twice_and_were_not_there_before(size, data):
    """As loops and sets keep them: sub-questions 0 to ``size`` have one rule, as many after them two; -1 is none."""
    ids = [[at % 13, -1] for at in range(size)] + [[at % 11, 11 + at % 7] for at in range(size)]
    member = st.sampled_from([*range(4), *range(2 * size - 4, 2 * size)])
    # Ten places of 70 sub-questions do not fit into one number of 64 bits.
    row = st.lists(member, min_size=1, max_size=3).map(
        lambda members: [*members, *[-1] * (10 - len(members))]
    )
    rows = data.draw(st.lists(row, min_size=20, max_size=40))
    kept, seen = [], set()
    for place, members in enumerate(rows):
        used = [rule for member in members if member >= 0 for rule in ids[member] if rule >= 0]
        if tuple(sorted(members)) not in seen and len(set(used)) == len(used):
            kept.append(place)
        seen.add(tuple(sorted(members)))
    block = SimpleNamespace(size=size, id_matrix=np.array(ids, dtype=np.int32))
    units = np.array(rows)
    assert ParallelBlock._distinct(block, (units >= 0).sum(axis=1), units).tolist() == kept
