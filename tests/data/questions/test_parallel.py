"""How parallel questions are put together, against plainer ways."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from ruleworld_data.questions.parallel import _packed, _ranks


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
