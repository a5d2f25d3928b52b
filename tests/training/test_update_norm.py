"""Updates that stand out: how they are measured, and what a run does about them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import Settings, World, apply, join_world, single_process_world
from stoker.parallel.placement import local
from stoker.recipe import AdamW, Recipe, Training
from stoker.record import Record
from stoker.training import update_norm
from stoker.training.optimizer import build_optimizer
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from stoker.training.update_norm import UpdateNorm
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow

STEPS, WRONG_AT = 16, 14


def _recipe(**recovery: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "update",
            "data": {"sources": [{"name": "one", "paths": ["x"], "weight": 1}]},
            "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32},
            "training": {
                "steps": STEPS,
                "sequence_length": 32,
                "global_batch_size": 4,
                "micro_batch_size": 4,
                "schedule": {"name": "cosine", "warmup_steps": 5},
                "device": "cpu",
                "threads": 1,
            },
            "checkpoint": {"every": 4, "keep_last": 2},
            "evaluation": {"every": 0},
            "recovery": {"window": 8, **recovery},
        }
    )


def _trainer(corpus: Corpus, run: Path, **recovery: Any) -> Trainer:
    job = Job(_recipe(**recovery), run, corpus.folder, 1)
    return build_trainer(job, single_process_world(torch.device("cpu")), StopRequest(), lambda message: None)


def _fit(trainer: Trainer) -> list[torch.Tensor]:
    trainer.fit()
    trainer.close()
    return [one.tensor.detach().clone() for one in trainer.step.model.held]


def _states(optimizer: torch.optim.Optimizer, name: str) -> list[torch.Tensor]:
    return [state[name] for state in optimizer.state.values()]


def _higher_learning_rate(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group["lr"] *= 10


def _no_second_moments(optimizer: torch.optim.Optimizer) -> None:
    for moments in _states(optimizer, "exp_avg_sq"):
        moments.zero_()


def _flipped_first_moment(optimizer: torch.optim.Optimizer) -> None:
    _states(optimizer, "exp_avg")[2].view(-1)[:1].view(torch.int32)[0] ^= 1 << 30


def _no_steps_counted(optimizer: torch.optim.Optimizer) -> None:
    for step in _states(optimizer, "step"):
        step.zero_()


FAULTS = [_higher_learning_rate, _no_second_moments, _flipped_first_moment, _no_steps_counted]


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> list[torch.Tensor]:
    return _fit(_trainer(corpus, tmp_path_factory.mktemp("undisturbed")))


def _spoil(trainer: Trainer, fault: Callable[[torch.optim.Optimizer], None], times: int = 1) -> None:
    left = [times]

    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if trainer.position.step == WRONG_AT - 1 and left[0]:
            left[0] -= 1
            fault(optimizer)

    trainer.step.optimizer.register_step_pre_hook(hook)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_an_update_that_stands_out_is_gone_back_from_and_done_again(
    corpus: Corpus, tmp_path: Path, undisturbed: list[torch.Tensor], fault: Any
) -> None:
    trainer = _trainer(corpus, tmp_path)
    _spoil(trainer, fault)
    found = _fit(trainer)
    (event,) = [event for event in Record(tmp_path / "record").events() if event["event"] == "spike"]
    assert (event["step"], event["detail"]["measure"]) == (WRONG_AT, "update norm")
    assert event["detail"]["response"] == "rollback"
    assert event["detail"]["observed"] > event["detail"]["limit"] > event["detail"]["expected"]
    assert all(torch.equal(one, other) for one, other in zip(found, undisturbed, strict=True))


def test_what_comes_out_again_is_gone_on_with(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(corpus, tmp_path)
    _spoil(trainer, _higher_learning_rate, times=2)
    _fit(trainer)
    events = [event for event in Record(tmp_path / "record").events() if event["event"] == "spike"]
    assert [event["detail"]["response"] for event in events] == ["rollback", "wait"]


def test_it_can_be_recorded_only(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(corpus, tmp_path, on_large_update="wait")
    _spoil(trainer, _no_second_moments)
    _fit(trainer)
    found = [event["event"] for event in Record(tmp_path / "record").events()]
    assert "spike" in found
    assert "went_back" not in found


def _measured(world: World, sample: int) -> tuple[float, float]:
    """The norm of an update as it is measured, and as the weights say, of this rank's share of them."""
    config = _recipe().model.model_copy(update={"hidden_size": 32})
    with torch.device("meta"):
        plain = Decoder(config, 300, 32)
    model = apply(plain, world, Settings(seed=1))
    training = Training(steps=3, sequence_length=32, global_batch_size=4, optimizer=AdamW(learning_rate=1e-2))
    optimizer = build_optimizer(model.held, training)
    update_norm._SAMPLE = sample
    measure = UpdateNorm(model.held, optimizer, world)
    assert measure.take() is None
    parameters = [one.parameter for one in model.held if one.is_parameter]
    before = [local(parameter.detach()).clone() for parameter in parameters]
    for one in model.held:
        generator = torch.Generator().manual_seed(sum(map(ord, one.name)))
        whole = torch.randn(one.shape, generator=generator)
        one.parameter.grad = torch.zeros_like(one.parameter)
        local(one.parameter.grad).copy_(whole[tuple(slice(*bounds) for bounds in one.box)])
    optimizer.step()
    square = sum(
        float((local(one.parameter.detach()) - old).double().square().sum()) / (one.placement.holders * one.copies)
        for one, old in zip((one for one in model.held if one.is_parameter), before, strict=True)
    )
    found = measure.take()
    assert found is not None
    return found, math.sqrt(float(world.sum(torch.tensor(square, dtype=torch.float64))))


def _on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> list[tuple[float, float]]:
    torch.set_num_threads(1)
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return [_measured(world, sample) for sample in (10**6, 50)]


@pytest.mark.parametrize("layout", [Layout(dp_replicate=2), Layout(dp_shard=2, tp=2)], ids=str)
def test_every_layout_measures_the_norm_of_the_whole_update(layout: Layout) -> None:
    expected, _ = _measured(single_process_world(torch.device("cpu")), 10**6)
    for (whole, true), (sampled, _) in run_ranks(_on_rank, layout.world_size, layout):
        assert whole == pytest.approx(true, rel=1e-6)
        assert whole == pytest.approx(expected, rel=1e-5)
        assert sampled == pytest.approx(true, rel=0.05)
