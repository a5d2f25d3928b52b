"""Which ranks belong together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.layout import DIMENSIONS, Layout
from stoker.layout.ranks import along, among_experts, expert_coordinate, expert_sizes, replicas, shards

small = st.integers(1, 3)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    sizes = {name: draw(small) for name in DIMENSIONS}
    expert_tp = draw(st.booleans())
    plain = Layout(**sizes, expert_tp=expert_tp)
    divisors = [d for d in range(1, plain.expert_ranks + 1) if plain.expert_ranks % d == 0]
    return plain.model_copy(update={"ep": draw(st.sampled_from(divisors))})


@given(layouts())
def test_coordinates_number_the_ranks_with_tensor_parallel_neighbours(layout: Layout) -> None:
    coordinates = [layout.coordinate(rank) for rank in range(layout.world_size)]
    assert coordinates == sorted(set(coordinates))
    assert {layout.data_parallel_rank(rank) for rank in range(layout.world_size)} == set(
        range(layout.data_parallel_size)
    )


@given(layouts(), st.sets(st.sampled_from(DIMENSIONS)))
def test_groups_along_dimensions_divide_the_world(layout: Layout, dimensions: set[str]) -> None:
    groups = {along(layout, rank, sorted(dimensions)) for rank in range(layout.world_size)}
    assert sorted(rank for group in groups for rank in group) == list(range(layout.world_size))


@given(layouts())
def test_parameters_are_held_by_replicas_of_shards(layout: Layout) -> None:
    for rank in range(layout.world_size):
        same, parts = replicas(layout, rank), shards(layout, rank)
        assert (len(same), len(parts)) == (layout.replicate_size, layout.shard_size)
        assert set(same) & set(parts) == {rank}


@given(layouts())
def test_experts_have_a_place_for_every_rank_of_a_stage(layout: Layout) -> None:
    sizes = expert_sizes(layout)
    of_stage = layout.world_size // layout.pp
    assert sizes.replicate * sizes.shard * sizes.ep * sizes.tp == of_stage
    stage = along(layout, 0, ("dp_replicate", "dp_shard", "cp", "tp"))
    assert len({expert_coordinate(layout, rank) for rank in stage}) == of_stage
    assert len(among_experts(layout, 0, ("ep",))) == layout.ep
