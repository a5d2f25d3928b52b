"""What a row of the record says of a step's samples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.training.rows import stretches_of


@given(st.lists(st.integers(0, 40), min_size=1, max_size=64))
def test_stretches_hold_every_sample_in_its_order_as_often_as_it_was_given(samples: list[int]) -> None:
    found = stretches_of(np.array(samples, dtype=np.int64))
    assert [one for first, after in found for one in range(first, after)] == samples
    assert all(first < after for first, after in found)


@given(st.integers(0, 2**40), st.integers(1, 300))
def test_samples_that_follow_each_other_are_one_stretch(first: int, count: int) -> None:
    assert stretches_of(np.arange(first, first + count)) == [[first, first + count]]
