"""Lanes between the ranks of a pipeline do not wait for one another."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.parallel.pipeline.lanes import Lanes, colour_of, groups_by_colour, lanes_of
from stoker.pipeline_schedule import Lane, Payload, loop_placement, v_placement
from tests.distributed import run_ranks
from tests.parallel.pipeline.pipelines import Runner, batches_of, config_of, gradients_of, model_of, pipeline_of


@pytest.mark.parametrize("ranks", range(2, 10))
def test_lanes_of_one_colour_have_no_rank_in_common(ranks: int) -> None:
    for placement in (loop_placement(ranks, 1), loop_placement(ranks, 3), v_placement(ranks)):
        by_colour: dict[Any, list[int]] = {}
        for lane in lanes_of(placement):
            by_colour.setdefault(colour_of(lane), []).extend(lane[:2])
        for members in by_colour.values():
            assert len(members) == len(set(members))


def _groups(rank: int, ranks: int, store: Any) -> None:
    """As over NCCL, whose groups know no tags."""
    model = model_of(config_of(layers=4))
    with join_world(Layout(pp=2, dp_replicate=2), rank, torch.device("cpu"), store, 60) as world:
        for schedule in ("zbv", "interleaved_1f1b"):
            layout = Layout(pp=2, dp_replicate=2, pipeline_schedule=schedule)
            found = []
            for grouped in (False, True):
                pipeline, stages = pipeline_of(model, layout, world)
                if grouped:
                    owners = pipeline._owners
                    pipeline._lanes._groups = groups_by_colour(world, owners)
                    pipeline._lanes.meet(owners)
                pipeline.forward_backward(batches_of(4), Runner())
                found.append(gradients_of(list(stages.values())))
            for name, gradient in found[0].items():
                assert torch.equal(gradient, found[1][name])


def test_a_group_for_each_colour_carries_a_step() -> None:
    run_ranks(_groups, 4)


def _empty(rank: int, ranks: int, store: Any) -> None:
    with join_world(Layout(pp=2), rank, torch.device("cpu"), store, 60) as world:
        lanes = Lanes(world, (0, 1))
        lane = Lane(0, 1, Payload.ACTIVATION)
        sizes = (3, 0, 2, 1, 4)
        if rank == 0:
            for size in sizes:
                lanes.send(lane, torch.full((size,), float(size)).expand(2, size).T)
            lanes.finish()
        else:
            arrivals = [lanes.receive(lane, (size, 2), torch.float32) for size in sizes]
            for size, arrival in zip(sizes, arrivals, strict=True):
                assert torch.equal(arrival.wait(), torch.full((size, 2), float(size)))


def test_tensors_arrive_in_order_empty_ones_too() -> None:
    run_ranks(_empty, 2)
