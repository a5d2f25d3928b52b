"""A batch of few sequences of many sources cannot keep the mixture's shares exactly; another mixture is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.feeding.staged_mixture import StagedMixture
from stoker.data.feeding.stages import segments_of
from stoker.diagnosis.mixture_change import find_mixture_changes
from stoker.recipe import Recipe

TOKENS = 128.0


def counts_of(weights: list[float], steps: int, batch: int) -> np.ndarray:
    """Samples of each source in each step [sources, steps], as the feed deals them."""
    sources = [{"name": f"s{at}", "paths": ["text"], "weight": weight} for at, weight in enumerate(weights)]
    recipe = Recipe.model_validate(
        {
            "name": "small",
            "data": {"sources": sources},
            "model": {"hidden_size": 8, "layers": 1, "heads": 2, "ffn_hidden_size": 16},
            "training": {"steps": steps, "sequence_length": 8, "global_batch_size": batch},
        }
    )
    segments = segments_of(recipe, {str(one["name"]): 10_000_000 for one in sources})
    dealt, _ = StagedMixture(segments).locate(np.arange(steps * batch))
    rows = dealt.reshape(steps, batch)
    return np.stack([np.bincount(row, minlength=len(weights)) for row in rows]).T.astype(float)


def found_in(counts: np.ndarray) -> list[tuple[int | None, int | None, tuple[str, ...]]]:
    tokens = {f"s{at}": np.where(own > 0, own * TOKENS, np.nan) for at, own in enumerate(counts)}
    found = find_mixture_changes(np.arange(1, counts.shape[1] + 1), tokens, samples=counts.sum(axis=0))
    return [(one.first_step, one.last_step, one.sources) for one in found]


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12),
    steps=st.sampled_from([40, 60, 120]),
    batch=st.sampled_from([4, 8, 16]),
)
def test_a_mixture_that_is_kept_is_no_finding_however_small_its_batches(
    weights: list[float], steps: int, batch: int
) -> None:
    assert found_in(counts_of(weights, steps, batch)) == []


@pytest.mark.parametrize("batch", [8, 32])
def test_a_source_that_takes_the_batches_for_twenty_steps_is_found_among_nine(batch: int) -> None:
    counts = counts_of([0.19, 0.2, 0.03, 0.23, 0.09, 0.06, 0.06, 0.08, 0.06], 120, batch)
    counts[:, 60:80] = 0
    counts[8, 60:80] = batch
    assert found_in(counts) == [(61, 80, ("s8",))]


def test_shares_in_the_reverse_order_are_found_among_nine_in_batches_of_eight() -> None:
    weights = [0.3, 0.25, 0.15, 0.1, 0.06, 0.05, 0.04, 0.03, 0.02]
    counts = np.concatenate([counts_of(weights, 60, 8), counts_of(weights[::-1], 60, 8)], axis=1)
    ((first, last, sources),) = found_in(counts)
    assert first == pytest.approx(61, abs=2)
    assert last == 120
    assert "s8" in sources
