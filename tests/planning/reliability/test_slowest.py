"""The slowest of many ranks, against closed forms and against drawing them all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stoker.planning.reliability.slowest import draw_maximum, expected_maximum, slowness_of


def test_the_larger_of_two_normal_values_is_known() -> None:
    assert expected_maximum(1) == 0
    assert expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-4)


def test_the_largest_of_many_is_what_drawing_them_gives() -> None:
    values = np.random.default_rng(0).standard_normal((2000, 1000)).max(axis=1)
    assert expected_maximum(1000) == pytest.approx(values.mean(), abs=4 * values.std() / math.sqrt(2000))
    drawn = draw_maximum(1000, np.random.default_rng(1).random(2000))
    assert drawn.mean() == pytest.approx(expected_maximum(1000), abs=4 * drawn.std() / math.sqrt(2000))


def test_delays_of_the_network_alone_grow_as_harmonic_numbers_do() -> None:
    harmonic = sum(1 / k for k in range(1, 513))
    slowness = slowness_of(4096, 8, 0.0, 0.0, 0.01)
    assert slowness.jitter == pytest.approx(0.01 * harmonic, rel=0.01)
    assert slowness.lasting == 0


def test_all_together_is_what_drawing_every_rank_gives() -> None:
    random = np.random.default_rng(2)
    lasting = 0.02 * random.standard_normal((4000, 128, 4))
    steps = lasting + 0.01 * random.standard_normal((4000, 128, 4))
    slowest = (steps.max(axis=2) + random.exponential(0.01, (4000, 128))).max(axis=1)
    assert slowness_of(512, 4, 0.02, 0.01, 0.01).total == pytest.approx(
        slowest.mean(), abs=4 * slowest.std() / math.sqrt(4000)
    )


def test_a_larger_run_has_slower_steps() -> None:
    sizes = [slowness_of(ranks, 8, 0.01, 0.005, 0.001).total for ranks in (8, 1024, 16384, 131072)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
