"""A layout that cannot train a model is refused with layouts that can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.layout.validity import ModelShape, nearest, problems, remarks, require_valid, require_world_size

SHAPE = ModelShape(
    layers=6, heads=6, kv_heads=2, ffn_hidden_size=64, sequence_length=64, experts=8, batch_sizes=(8,)
)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(pp=8), "pp=8 needs at least 8 layers, but the model has 6"),
        (
            Layout(pp=4, pipeline_schedule="zbv"),
            "pp=4 with 2 stages on each rank needs at least 8 layers, but the model has 6",
        ),
        (Layout(dp_shard=3, ep=3), "ep=3 does not divide the 8 experts"),
        (Layout(dp_shard=2, ep=4), "ep=4 does not divide the 2 ranks of dp_replicate × dp_shard × cp"),
        (Layout(cp=64), "cp=64 cuts each sequence into 128 chunks, but a sequence has 64 tokens"),
        (Layout(dp_replicate=3), "global_batch_size 8 cannot be split evenly over 3"),
    ],
)
def test_an_impossible_layout_is_refused_with_the_reason_and_with_layouts_that_work(
    layout: Layout, said: str
) -> None:
    with pytest.raises(BadInput, match="nearest layouts that work") as refused:
        require_valid(layout, SHAPE)
    assert said in str(refused.value)
    first = nearest(layout, SHAPE, layout.world_size)[0]
    require_valid(first, SHAPE)
    assert first.world_size == layout.world_size


def test_experts_that_are_not_there_and_windows_shorter_than_a_shard_are_refused() -> None:
    dense = ModelShape(layers=4, heads=4, kv_heads=4, ffn_hidden_size=8, sequence_length=64, sliding_window=16)
    assert problems(Layout(dp_shard=2, ep=2), dense) == ["ep=2 divides experts, but the model has none"]
    assert "more than the sliding window of 16" in problems(Layout(cp=2), dense)[0]
    assert not problems(Layout(cp=4), dense)


def test_another_number_of_processes_is_refused_with_layouts_for_it() -> None:
    with pytest.raises(BadInput, match=r"needs 4 processes, but 8 were started.*layout\.dp_"):
        require_world_size(Layout(tp=2, dp_shard=2), SHAPE, 8)
    require_world_size(Layout(tp=2, dp_shard=2), SHAPE, 4)


def test_what_is_uneven_is_said() -> None:
    said = " ".join(remarks(Layout(tp=4, cp=3, pp=4), SHAPE))
    assert "query heads" in said
    assert "more than the 2 key and value heads" in said
    assert "6 equal chunks" in said
    assert "6 layers on 4 pipeline stages" in said
    assert not remarks(Layout(tp=2, cp=2, pp=2), SHAPE)


@given(st.integers(1, 16), st.integers(1, 4), st.integers(1, 8))
def test_every_suggestion_is_possible(ranks: int, tp: int, pp: int) -> None:
    asked = Layout(tp=tp, pp=pp)
    found = nearest(asked, SHAPE, ranks)
    assert all(one.world_size == ranks and not problems(one, SHAPE) for one in found)
