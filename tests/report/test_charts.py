from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import wording
from stoker.report.charts import Sampling, heat_map


@settings(deadline=None, max_examples=60)
@given(count=st.integers(1, 400), pixels=st.integers(1, 40), seed=st.integers(0, 2**16), holes=st.floats(0, 1))
def test_lowest_and_highest_of_every_bucket_are_drawn(count: int, pixels: int, seed: int, holes: float) -> None:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=count)
    values[draw.random(count) < holes] = math.nan
    sampling = Sampling(count, pixels)
    drawn = sampling.points(values)
    assert drawn.size == sampling.places.size <= max(2 * pixels, count if count <= 2 * pixels else 0)
    assert (np.diff(sampling.places) >= 0).all()
    finite = values[np.isfinite(values)]
    if finite.size:
        assert np.nanmax(drawn) == finite.max()
        assert np.nanmin(drawn) == finite.min()
    else:
        assert np.isnan(drawn).all()
    means = sampling.means(values)
    sizes = [np.isfinite(part).sum() for part in np.split(values, range(sampling.size, count, sampling.size))]
    if finite.size:
        assert np.average(np.nan_to_num(means), weights=sizes) == pytest.approx(finite.mean())


def test_the_order_of_lowest_and_highest_is_kept() -> None:
    falling = Sampling(6, pixels=1).points(np.array([6.0, 5, 4, 3, 2, 1]))
    rising = Sampling(6, pixels=1).points(np.array([1.0, 2, 3, 4, 5, 6]))
    assert falling.tolist() == [6, 1]
    assert rising.tolist() == [1, 6]


def test_infinite_values_are_no_points() -> None:
    assert Sampling(6, pixels=1).points(np.array([1.0, math.inf, 3, -math.inf, 2, math.nan])).tolist() == [1, 3]


def test_a_heat_map_keeps_each_rows_largest_values() -> None:
    steps = np.arange(1.0, 5001)
    spike = np.ones(5000)
    spike[3210] = 50
    packed = heat_map(steps, {"a": np.ones(5000), "b": spike}, columns=100)
    import base64

    values = np.frombuffer(base64.b64decode(packed["values"]), "<f4").reshape(2, -1)
    assert values.shape[1] <= 100
    assert (values[0] == 1).all()
    assert values[1].max() == 50


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (wording.count(1234), "1,234"),
        (wording.count(27_800_000), "27.8M"),
        (wording.count(999_960), "1.00M"),
        (wording.count(None), "–"),
        (wording.count(math.nan), "–"),
        (wording.size(1536), "1.50 KiB"),
        (wording.size(2**40), "1.00 TiB"),
        (wording.duration(0.0123), "12.3 ms"),
        (wording.duration(75), "1 min 15 s"),
        (wording.duration(3600 * 30), "1 d 6 h"),
        (wording.figure(3.14159), "3.142"),
        (wording.figure(0.0), "0.000"),
        (wording.figure(math.nan), "NaN"),
        (wording.figure(-math.inf), "-Inf"),
        (wording.figure(1e-9), "1.000e-09"),
        (wording.percent(0.12345), "12.3%"),
        (wording.percent(1.0), "100%"),
        (wording.percent(0.0001), "<0.1%"),
        (wording.moment(0), "1970-01-01 00:00:00"),
        (
            wording.detail({"samples": [3, 7], "path": "步", "none": None, "x": 0.5}),
            "samples 3–7, path 步, x 0.5000",
        ),
    ],
)
def test_figures_are_spelled_for_people(spelled: str, expected: str) -> None:
    assert spelled == expected
