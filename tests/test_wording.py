from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from stoker.wording import NOTHING, count, duration, exact, moment, percent, size


@pytest.mark.parametrize("spell", [count, exact, size, duration, percent, moment])
@pytest.mark.parametrize("odd", [None, math.nan, math.inf, "3", [3], {"a": 3}, 10**400, -(10**400)])
def test_what_is_no_number_is_told_as_absent(spell: Callable[[Any], str], odd: Any) -> None:
    """A record may hold anything in place of a number, and no page ends for it."""
    assert spell(odd) == NOTHING


@pytest.mark.parametrize("time", [-1.0, 1e12, 1e300])
def test_a_time_that_no_calendar_has_is_told_as_absent(time: float) -> None:
    assert moment(time) == NOTHING
    assert moment(0.0) == "1970-01-01 00:00:00"
