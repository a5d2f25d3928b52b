from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.counter_random import permuted


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 600))
def test_every_place_has_one_image(key: int, size: int) -> None:
    assert sorted(permuted(key, size, np.arange(size)).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [10**6 + 3, 2**40, 2**61 + 1])
def test_images_of_a_few_places_do_not_need_the_rest(size: int) -> None:
    places = np.concatenate([np.arange(5000), size - 1 - np.arange(5000)])
    images = permuted(7, size, places)
    assert len(np.unique(images)) == len(places)
    assert images.min() >= 0
    assert images.max() < size
    assert (permuted(7, size, places[4321:4322]) == images[4321:4322]).all()
    assert abs(float(images.mean()) / size - 0.5) < 0.02


def test_all_orders_of_three_are_about_equally_likely() -> None:
    orders = Counter(tuple(permuted(key, 3, np.arange(3)).tolist()) for key in range(3000))
    assert len(orders) == 6
    assert all(400 < count < 600 for count in orders.values())


def test_neighbours_are_scattered() -> None:
    steps = np.diff(permuted(3, 10**6, np.arange(10**5)))
    assert (np.abs(steps) < 1000).mean() < 0.01


@pytest.mark.parametrize("place", [-1, 10])
def test_a_place_outside_is_refused(place: int) -> None:
    with pytest.raises(ValueError, match="of a permutation of 10"):
        permuted(0, 10, np.array([3, place]))
