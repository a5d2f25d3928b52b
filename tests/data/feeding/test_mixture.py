from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.feeding.mixture import LONGEST_PATTERN, Mixture, pattern_counts

hundredths = st.lists(st.integers(0, 400).map(lambda n: n / 100), min_size=1, max_size=7).filter(any)


def sources_of(mixture: Mixture, samples: int) -> np.ndarray:
    return mixture.locate(np.arange(samples))[0]


def hundreds(weights: list[float]) -> np.ndarray:
    """The weights as whole numbers."""
    return np.array([round(weight * 100) for weight in weights])


@given(hundredths)
def test_every_prefix_holds_each_share_to_within_one_sample(weights: list[float]) -> None:
    mixture = Mixture(weights)
    shares, n = hundreds(weights), np.arange(1, 2 * mixture.length + 1)
    taken = np.cumsum(sources_of(mixture, len(n))[:, None] == np.arange(len(weights)), axis=0)
    # |taken - n share / total| <= 1 - 1 / (2S - 2), in whole numbers
    slack = max(2 * int((shares > 0).sum()) - 2, 1)
    deviation = np.abs(taken * shares.sum() - n[:, None] * shares) * slack
    assert (deviation <= (slack - 1) * shares.sum()).all()


@given(hundredths, st.integers(0, 10**12), st.integers(1, 500))
def test_any_window_holds_each_share_to_within_less_than_two_samples(
    weights: list[float], first: int, length: int
) -> None:
    sources, _ = Mixture(weights).locate(np.arange(first, first + length))
    for source, weight in enumerate(weights):
        share = Fraction(str(weight)) / sum(Fraction(str(w)) for w in weights)
        assert abs(int((sources == source).sum()) - length * share) < 2


@given(hundredths)
def test_a_source_of_weight_zero_never_appears(weights: list[float]) -> None:
    mixture = Mixture(weights)
    appearing = set(sources_of(mixture, mixture.length).tolist())
    assert appearing == {source for source, weight in enumerate(weights) if weight > 0}


@given(hundredths, st.integers(0, 2000))
def test_numbers_within_a_source_count_its_samples_without_a_gap(weights: list[float], first: int) -> None:
    mixture = Mixture(weights)
    seen = mixture.count_before(first).tolist()
    assert sum(seen) == first
    sources, numbers = mixture.locate(np.arange(first, first + 300))
    for source, number in zip(sources.tolist(), numbers.tolist(), strict=True):
        assert number == seen[source]
        seen[source] += 1
    assert seen == mixture.count_before(first + 300).tolist()


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([0.7, 0.2, 0.1], (7, 2, 1)),
        ([1, 1, 1], (1, 1, 1)),
        ([3.0, 0.0, 1.5], (2, 0, 1)),
        ([0.12345, 0.87655], (2469, 17531)),
        ([5e-05, 0.99995], (1, 19999)),
    ],
)
def test_decimals_are_represented_exactly_by_the_shortest_pattern(
    weights: list[float], counts: tuple[int, ...]
) -> None:
    assert pattern_counts(weights) == counts


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=20))
def test_token_counts_are_represented_to_the_nearest_sample(tokens: list[int]) -> None:
    counts = pattern_counts(tokens)
    length, total = sum(counts), sum(tokens)
    assert length <= LONGEST_PATTERN
    assert all(count >= 1 for count in counts)
    tiny = sum(count * length < total for count in tokens)
    for count, own in zip(counts, tokens, strict=True):
        assert abs(count - Fraction(own * length, total)) < 1 + tiny


def test_tiny_weights_take_their_samples_from_the_large() -> None:
    weights = [1e-9] * 50 + [1.0]
    counts = pattern_counts(weights)
    assert counts[:50] == (1,) * 50
    assert sum(counts) == LONGEST_PATTERN


def test_equal_weights_take_turns() -> None:
    sources = sources_of(Mixture([2, 2, 2]), 30).reshape(-1, 3)
    assert (np.sort(sources, axis=1) == np.arange(3)).all()
