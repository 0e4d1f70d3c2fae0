"""How parallel questions are put together, against plainer ways."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from ruleworld_data.questions.parallel import ParallelBlock, _packed, _ranks


@given(
    arrays(
        np.uint64,
        array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.integers(0, 3) | st.just(2**63),
    )
)
def test_ranks_are_places_in_a_stable_order(values):
    expected = np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1, kind="stable")
    assert (_ranks(values) == expected).all()


@given(st.integers(0, 6) | st.integers(0, 2**40), st.data())
def test_packed_rows_are_equal_where_rows_are_and_in_their_order(most, data):
    width = data.draw(st.integers(1, 9))
    row = st.lists(st.integers(0, most), min_size=width, max_size=width)
    rows = data.draw(st.lists(row, min_size=8, max_size=16))
    rows += rows[:1]
    packed = _packed(np.array(rows, np.int32 if most < 2**31 else np.int64), most)
    told = [tuple(column) for column in packed.T.tolist()]
    order = sorted(range(len(rows)), key=lambda at: rows[at])
    assert order == sorted(range(len(rows)), key=lambda at: told[at])
    assert [rows[a] == rows[b] for a in order for b in order] == [
        told[a] == told[b] for a in order for b in order
    ]


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
