from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stoker.errors import BadInput
from stoker.layout import Layout

sizes = st.integers(1, 64)


@given(sizes, sizes)
def test_the_world_is_the_product_of_all_dimensions(replicate: int, shard: int) -> None:
    layout = Layout(dp_replicate=replicate, dp_shard=shard)
    assert layout.world_size == replicate * shard


@given(sizes, sizes, st.integers(1, 10_000))
def test_a_batch_is_split_evenly_or_refused_with_batches_that_are(replicate: int, shard: int, batch: int) -> None:
    layout = Layout(dp_replicate=replicate, dp_shard=shard)
    ranks = layout.data_parallel_size
    if batch % ranks == 0:
        assert layout.sequences_per_rank(batch) * ranks == batch
        return
    with pytest.raises(BadInput) as caught:
        layout.sequences_per_rank(batch)
    message = str(caught.value)
    suggested = message.split("; use ")[1].split(", or")[0].split(" or ")
    for size in map(int, suggested):
        assert layout.sequences_per_rank(size) * ranks == size
        assert abs(size - batch) < ranks


@pytest.mark.parametrize("values", [{"dp_shard": 0}, {"dp_replicate": -1}, {"tensor": 2}, {"dp_shard": "many"}])
def test_an_impossible_layout_cannot_be_made(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Layout.model_validate(values)


def test_a_layout_is_a_value() -> None:
    layout = Layout(dp_shard=2)
    assert layout == Layout(dp_shard=2)
    with pytest.raises(ValidationError):
        layout.dp_shard = 3  # type: ignore[misc]
    assert str(layout) == "dp_shard=2"
    assert str(Layout()) == "one process"
