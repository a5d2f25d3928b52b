"""Save, load, step equals the step of a run that was never interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import load, read_weights, save
from stoker.layout import Layout
from stoker.parallel import World, join_world, single_process_world
from tests.checkpoint.tiny_training import (
    KEEP_ALL,
    LAYOUTS,
    OPTIMIZERS,
    PRECISIONS,
    TinyTraining,
    assert_same,
)
from tests.distributed import run_ranks

State = dict[str, torch.Tensor]


def _resumed_and_uninterrupted(world: World, folder: Path, optimizer: str, precision: str) -> tuple[State, State]:
    straight = TinyTraining(world, optimizer, precision)
    straight.train(1, 2)
    kept = straight.progress(2)
    path = save(folder, 2, straight.model.plain, straight.optimizer, kept, KEEP_ALL)
    straight.train(3, 4)
    resumed = TinyTraining(world, optimizer, precision, seed=1)
    progress = load(path, resumed.model.plain, resumed.optimizer)
    if resumed.loss_scale:
        resumed.loss_scale.load_state_dict(progress["loss_scale"])
    resumed.train(3, 4)
    assert progress == kept
    if straight.loss_scale and resumed.loss_scale:
        assert resumed.loss_scale.state_dict() == straight.loss_scale.state_dict()
    return resumed.whole_state(), straight.whole_state()


def _rank_of_pair(
    rank: int, ranks: int, store: Any, layout: Layout, folder: Path, pairs: list[tuple[str, str]]
) -> list[tuple[State, State]]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return [_resumed_and_uninterrupted(world, folder / "-".join(pair), *pair) for pair in pairs]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_run_is_bit_identical_in_every_precision(optimizer: str, layout: str, tmp_path: Path) -> None:
    pairs = [(optimizer, precision) for precision in PRECISIONS]
    if layout == "plain":
        world = single_process_world(torch.device("cpu"))
        results = [[_resumed_and_uninterrupted(world, tmp_path / "-".join(pair), *pair) for pair in pairs]]
    else:
        results = run_ranks(_rank_of_pair, 2, LAYOUTS[layout], tmp_path, pairs)
    for result in results:
        for resumed, straight in result:
            assert_same(resumed, straight)
            assert any("/" in name for name in straight), "no optimizer state was compared"
