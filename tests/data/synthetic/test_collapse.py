"""The warning of collapse: seen where tails go, and not where there is only chance."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from stoker.data.synthetic.collapse import MEASURES, collapse_over, falling_chance
from stoker.errors import BadInput

_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "")]


def corpus(seed: int, tail: float, documents: int = 240) -> list[str]:
    """Texts of words whose frequencies fall as rank to the power of `tail`."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) ** tail for rank in range(len(_WORDS))]
    return [" ".join(draw.choices(_WORDS, weights, k=60)) for _ in range(documents)]


def test_falling_tails_are_warned_of_by_every_measure() -> None:
    found = collapse_over({str(n): corpus(n, 1 + 0.15 * n) for n in range(4)})
    assert found.warns
    for trend in found.trends:
        assert all(before > after for before, after in pairwise(trend.means)), trend
        assert trend.warns
        assert trend.change < -0.1


def test_generations_that_are_alike_seldom_give_a_warning() -> None:
    warned = [
        collapse_over({str(n): corpus(10 * trial + n, 1.0, 120) for n in range(3)}).warns for trial in range(20)
    ]
    assert sum(warned) <= 1, "one in a hundred is what chance gives"


def test_rising_diversity_is_no_collapse() -> None:
    assert not collapse_over({str(n): corpus(n, 1.5 - 0.15 * n) for n in range(4)}).warns


def test_a_fall_that_is_sure_but_tiny_is_not_warned_of() -> None:
    found = collapse_over({str(n): corpus(n, 1 + 0.004 * n, 2000) for n in range(2)})
    assert not found.warns
    assert {trend.measure for trend in found.trends} == set(MEASURES)


def test_the_chance_is_that_of_permuted_groups() -> None:
    draw = np.random.default_rng(3)
    groups = [draw.normal(-0.5 * place, 1, 6) for place in range(3)]

    def falls(parts: list[np.ndarray]) -> int:
        return sum((a[:, None] > b[None, :]).sum() for i, a in enumerate(parts) for b in parts[i + 1 :])

    observed, pooled = falls(groups), np.concatenate(groups)
    drawn = [falls(np.split(draw.permutation(pooled), 3)) for _ in range(4000)]
    assert falling_chance(groups) == pytest.approx(np.mean(np.asarray(drawn) >= observed), abs=0.02)


def test_one_generation_and_short_ones_are_refused() -> None:
    with pytest.raises(BadInput, match="at least two"):
        collapse_over({"one": corpus(1, 1.0)})
    with pytest.raises(BadInput, match="short has"):
        collapse_over({"long": corpus(1, 1.0), "short": corpus(2, 1.0, 20)})
