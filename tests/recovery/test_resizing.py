"""Layouts for fewer nodes, over drawn ones: the largest that is valid, and nothing else changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.recipe import Recipe
from stoker.recovery.resizing import largest
from tests.end_to_end.small_job import recipe as small


def _recipe(replicate: int, shard: int, tp: int, batch: int, micro: int | None) -> Recipe:
    changes: dict[str, Any] = {"dp_replicate": replicate, "dp_shard": shard, "tp": tp}
    return Recipe.model_validate(
        small(layout=changes, training__global_batch_size=batch, training__micro_batch_size=micro)
    )


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    replicate, shard, tp = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.sampled_from([1, 2]))
    micro = draw(st.sampled_from([None, 1, 2]))
    batch = replicate * shard * (micro or 1) * draw(st.integers(1, 6))
    return _recipe(replicate, shard, tp, batch, micro)


def _is_possible(full: Recipe, replicate: int, shard: int) -> bool:
    parts = replicate * shard
    per_rank = full.training.global_batch_size // parts
    fits = full.training.global_batch_size % parts == 0
    return fits and per_rank % (full.training.micro_batch_size or 1) == 0


@given(recipes(), st.data())
def test_the_largest_possible_layout_is_found_and_everything_else_stays(full: Recipe, data: st.DataObject) -> None:
    layout = full.layout
    ranks = data.draw(st.integers(1, layout.world_size))
    possible = [
        (replicate, shard)
        for replicate in range(1, layout.dp_replicate + 1)
        for shard in range(1, layout.dp_shard + 1)
        if replicate * shard * layout.tp <= ranks and _is_possible(full, replicate, shard)
    ]
    found = largest(full, ranks)
    if not possible:
        assert found is None
        return
    assert found is not None
    sizes = (found.layout.dp_replicate, found.layout.dp_shard)
    assert sizes in possible
    assert sizes[0] * sizes[1] == max(replicate * shard for replicate, shard in possible)
    others = {"dp_replicate": layout.dp_replicate, "dp_shard": layout.dp_shard}
    back = {**found.model_dump(), "layout": {**found.layout.model_dump(), **others}}
    assert Recipe.model_validate(back) == full


def test_copies_are_given_up_before_shards() -> None:
    found = largest(_recipe(2, 2, 1, 8, None), 3)
    assert found is not None
    assert (found.layout.dp_replicate, found.layout.dp_shard) == (1, 2)


def test_with_all_ranks_the_recipe_is_the_same() -> None:
    full = _recipe(3, 2, 2, 12, 2)
    assert largest(full, 12) is full
    assert largest(full, 100) is full


def test_what_nothing_can_be_taken_from_does_not_shrink() -> None:
    assert largest(_recipe(1, 1, 2, 8, None), 1) is None
