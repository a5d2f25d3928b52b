"""Which copy is kept."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.data.deduplication.preference import ranks
from stoker.recipe import Deduplication
from tests.data.deduplication.test_exact import digests

TEXTS = ["bb", "a", "dddd", "cc", "eeee", "a"]
LENGTHS = np.asarray([len(text) for text in TEXTS])


def test_the_earliest_is_the_first_given() -> None:
    assert ranks(Deduplication(), digests(TEXTS), LENGTHS, None).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_longest_and_the_best_do_not_depend_on_the_order() -> None:
    quality = np.asarray([0.5, 0.1, 0.5, np.nan, 0.9, 0.1])
    order = np.asarray([3, 5, 0, 2, 4, 1])
    for settings in (Deduplication(keep="longest"), Deduplication(keep="best", quality="fluency")):
        first = ranks(settings, digests(TEXTS), LENGTHS, quality)
        other = ranks(settings, digests(TEXTS)[order], LENGTHS[order], quality[order])
        preferred = [TEXTS[i] for i in np.argsort(first)]
        assert preferred == [TEXTS[order[i]] for i in np.argsort(other)]
        value = LENGTHS if settings.keep == "longest" else quality
        ordered = value[np.argsort(first)]
        assert (np.diff(ordered[~np.isnan(ordered)]) <= 0).all()
        assert not np.isnan(ordered[:-1]).any()  # what was not measured is the worst


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": "best"}, "wants the name of a measure"),
        ({"quality": "fluency"}, "wants the name of a measure"),
        ({"bands": 20}, "go together"),
        ({"bands": 30, "rows": 5}, "want 150 permutations"),
        ({"bands": 9, "rows": 14}, "find only 33% of the pairs"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deduplication.model_validate(given)
