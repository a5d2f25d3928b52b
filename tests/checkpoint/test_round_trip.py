"""Save, load, step equals the step of a run that was never interrupted, whoever saved and whoever loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import load, read_weights, save
from stoker.layout import Layout
from stoker.parallel import World, join_world, single_process_world
from stoker.training.optimizer import set_learning_rate
from tests.checkpoint.tiny_training import (
    KEEP_ALL,
    LAYOUTS,
    OPTIMIZERS,
    PRECISIONS,
    TinyTraining,
    assert_same,
)
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow

State = dict[str, torch.Tensor]


def _resumed_and_uninterrupted(world: World, folder: Path, optimizer: str, precision: str) -> tuple[State, State]:
    straight = TinyTraining(world, optimizer, precision)
    straight.train(1, 2)
    kept = straight.progress(2)
    path = save(folder, 2, straight.model.held, straight.optimizer, kept, KEEP_ALL)
    straight.train(3, 4)
    resumed = TinyTraining(world, optimizer, precision, seed=1)
    progress = load(path, resumed.model.held, resumed.optimizer)
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
            states = {name: value for name, value in straight.items() if "/" in name}
            assert states, "no optimizer state was compared"
            assert all(value.any() for value in states.values()), "a state that never moved proves nothing"


def _saving_rank(rank: int, ranks: int, store: Any, layout: Layout, folder: Path) -> dict[str, State]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        states = {}
        for optimizer in OPTIMIZERS:
            training = TinyTraining(world, optimizer)
            training.train(1, 2)
            save(folder / optimizer, 2, training.model.held, training.optimizer, {}, KEEP_ALL)
            states[optimizer] = training.whole_state()
        return states


def _loading_rank(rank: int, ranks: int, store: Any, layout: Layout, folder: Path) -> dict[str, State]:
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return _loaded(world, folder)


def _loaded(world: World, folder: Path) -> dict[str, State]:
    states = {}
    for optimizer in OPTIMIZERS:
        training = TinyTraining(world, optimizer, seed=1)
        load(folder / optimizer / "step-00000002", training.model.held, training.optimizer)
        states[optimizer] = training.whole_state()
    return states


@pytest.mark.parametrize(
    "saver",
    [
        Layout(),
        pytest.param(Layout(dp_shard=4), marks=pytest.mark.thorough),
        Layout(dp_replicate=2, dp_shard=2),
        pytest.param(Layout(dp_replicate=2), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_every_layout_loads_what_any_other_saved(saver: Layout, tmp_path: Path) -> None:
    expected = run_ranks(_saving_rank, saver.world_size, saver, tmp_path)[0]
    found = [_loaded(single_process_world(torch.device("cpu")), tmp_path)]
    for layout in (Layout(dp_shard=2), Layout(dp_replicate=2), Layout(dp_shard=3)):
        found += run_ranks(_loading_rank, layout.world_size, layout, tmp_path)
    for states in found:
        for optimizer in OPTIMIZERS:
            assert_same(states[optimizer], expected[optimizer])
    for optimizer in OPTIMIZERS:
        weights = read_weights(tmp_path / optimizer / "step-00000002")
        assert_same(weights, {name: value for name, value in expected[optimizer].items() if "/" not in name})


def _saving_after_evaluation(rank: int, ranks: int, store: Any, folder: Path) -> tuple[State, State]:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 60) as world:
        training = TinyTraining(world, "adamw")
        training.step(1)
        training.model.last_logits(torch.arange(10).reshape(2, 5))  # FSDP leaves the root's weights gathered
        path = save(folder, 1, training.model.held, training.optimizer, {}, KEEP_ALL)
        fresh = TinyTraining(world, "adamw", seed=1)
        fresh.model.last_logits(torch.arange(10).reshape(2, 5))
        load(path, fresh.model.held, fresh.optimizer)
        return fresh.whole_state(), training.whole_state()


def test_sharded_weights_are_saved_and_loaded_right_after_an_evaluation(tmp_path: Path) -> None:
    for found, expected in run_ranks(_saving_after_evaluation, 2, tmp_path):
        assert_same(found, expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_saving_before_the_first_update_does_not_change_the_run(optimizer: str, tmp_path: Path) -> None:
    """fp16 may skip the first updates: then there is a checkpoint before there is optimizer state."""
    straight, saved, resumed = (TinyTraining.alone(optimizer, seed=0) for _ in range(3))
    weights = saved.whole_state()
    path = save(tmp_path, 0, saved.model.held, saved.optimizer, {}, KEEP_ALL)
    assert_same({name: value for name, value in saved.whole_state().items() if "/" not in name}, weights)
    load(path, resumed.model.held, resumed.optimizer)
    for training in (straight, saved, resumed):
        training.train(1, 3)
    assert_same(saved.whole_state(), straight.whole_state())
    assert_same(resumed.whole_state(), straight.whole_state())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_in_use_follows_the_schedule_after_a_load(optimizer: str, tmp_path: Path) -> None:
    trained = TinyTraining.alone(optimizer)
    trained.train(1, 2)
    path = save(tmp_path, 2, trained.model.held, trained.optimizer, {}, KEEP_ALL)
    resumed = TinyTraining.alone(optimizer)
    groups = list(resumed.optimizer.param_groups)
    base = [group["base_learning_rate"] for group in groups]
    load(path, resumed.model.held, resumed.optimizer)
    assert all(ours is theirs for ours, theirs in zip(groups, resumed.optimizer.param_groups, strict=True))
    set_learning_rate(resumed.optimizer, 0.5)
    assert [group["lr"] for group in groups] == [0.5 * rate for rate in base]
    before = resumed.whole_state()
    resumed.step(3)
    after = resumed.whole_state()
    assert not torch.equal(after["head.weight"], before["head.weight"])


def test_settings_of_the_recipe_win_over_those_of_the_checkpoint(tmp_path: Path) -> None:
    trained = TinyTraining.alone("adamw")
    trained.train(1, 2)
    path = save(tmp_path, 2, trained.model.held, trained.optimizer, {}, KEEP_ALL)
    resumed = TinyTraining.alone("adamw")
    for group in resumed.optimizer.param_groups:
        group["base_learning_rate"] = 0.125
    load(path, resumed.model.held, resumed.optimizer)
    assert set_learning_rate(resumed.optimizer, 1.0) == 0.125
