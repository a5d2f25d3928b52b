"""When a rank's computing became longer, whether it came at once, and whether it is over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.diagnosis import Finding
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.slowness import slowness, with_its_beginning
from stoker.diagnosis.step_parts import Parts

ROWS = 220


def computing(seed: int, begin: int, length: int, factor: float, end: int = ROWS) -> dict[int, Parts]:
    """Two ranks; rank 1 becomes `factor` times slower over `length` rows from `begin` on, until `end`."""
    draw = np.random.default_rng(seed)
    seconds = 0.01 * np.exp(0.08 * np.abs(draw.standard_normal((2, ROWS))))
    rows = np.arange(ROWS)
    course = 1 + (factor - 1) * np.clip((rows - begin + 1) / length, 0, 1) * (rows < end)
    seconds[1] *= course
    steps = rows + 1
    return {rank: Parts(steps, {"compute": own}, own * 2) for rank, own in enumerate(seconds)}


def seen(first: int, last: int) -> Finding:
    return Finding(
        kind="slow_rank", part="compute", severity="warning", first_step=first, last_step=last, ranks=(1,),
        confidence=0.9, evidence=(), remedy=remedy("check_machine", ranks=[1]),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    begin=st.integers(90, 130),
    factor=st.floats(1.4, 2.6),
    late=st.integers(0, 5),
)
def test_a_rank_that_is_slow_at_once_is_known_to_the_row(seed: int, begin: int, factor: float, late: int) -> None:
    course = slowness(computing(seed, begin, 1, factor), seen(begin + 1 + late, ROWS))
    assert course is not None
    assert abs(course.first - (begin + 1)) <= 2
    assert course.gradual < 0
    assert not course.over


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    begin=st.integers(90, 120),
    factor=st.floats(1.6, 2.6),
    late=st.integers(5, 25),
    length=st.integers(25, 40),
)
def test_a_rank_that_is_throttled_over_tens_of_rows_is_told_from_one_that_is_slow_at_once(
    seed: int, begin: int, factor: float, late: int, length: int
) -> None:
    course = slowness(computing(seed, begin, length, factor), seen(begin + 1 + late, ROWS))
    assert course is not None
    assert course.gradual > 0
    assert begin - 8 <= course.first - 1 <= begin + length // 2
    assert not course.over


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), begin=st.integers(90, 120), rows=st.integers(25, 50))
def test_a_slowness_that_ended_is_over(seed: int, begin: int, rows: int) -> None:
    course = slowness(computing(seed, begin, 1, 1.8, begin + rows), seen(begin + 1, begin + rows))
    assert course is not None
    assert course.over


def test_the_beginning_of_a_late_finding_is_mended_and_nothing_else_of_it() -> None:
    found = seen(125, ROWS)
    mended = with_its_beginning(computing(4, 110, 1, 2.0), found)
    assert mended.first_step == 111
    assert mended.model_copy(update={"first_step": 125}) == found


@pytest.mark.parametrize("kind", ["jitter", "memory_growth"])
def test_findings_of_something_else_are_left_alone(kind: str) -> None:
    found = seen(125, ROWS).model_copy(update={"kind": kind})
    assert with_its_beginning(computing(4, 110, 1, 2.0), found) == found
