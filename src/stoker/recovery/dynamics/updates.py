"""What a recipe or a framework does wrong with an update: rate, scale of gradients, state of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.recovery.dynamics.batches import spread
from stoker.recovery.faults import Fault
from stoker.training.trainer import Trainer

_HALVINGS = 12


def jump_rate(trainer: Trainer, faults: Sequence[Fault]) -> None:
    """Have the scheduled learning rate be another one while `faults` last; the record has the rate that is used."""
    guard = trainer.step.guard
    usual = guard.learning_rate_factor

    def factor(step: int) -> float:
        found = usual(step)
        for fault in faults:
            if fault.covers(step):
                found *= 10.0 ** fault.option("strength")
        return found

    guard.learning_rate_factor = factor  # type: ignore[method-assign]


def divide_by_another_count(trainer: Trainer, faults: Sequence[Fault]) -> None:
    """Have gradients come out too large by the number of micro-batches while `faults` last."""
    model, recipe = trainer.step.model, trainer.recipe
    usual: Callable[..., Any] = model.forward_backward

    def scaled(batches: Any, *, step: int, loss_scale: float, **others: Any) -> Any:
        for fault in faults:
            if fault.covers(step):
                loss_scale *= recipe.accumulation_at(step) ** fault.option("strength")
        return usual(batches, step=step, loss_scale=loss_scale, **others)

    model.forward_backward = scaled  # type: ignore[method-assign]


@torch.no_grad()
def lose_optimizer_state(trainer: Trainer, share: float) -> None:
    """Zero what the optimizer remembers of a share of the parameters: fresh state is zeros."""
    optimizer = trainer.step.optimizer
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for parameter, lost in zip(parameters, spread(len(parameters), share), strict=True):
        if not lost:
            continue
        for value in optimizer.state[parameter].values():
            if isinstance(value, torch.Tensor):
                value.zero_()


def overflows_at(fault: Fault, step: int) -> bool:
    """Whether a gradient overflows in `step`."""
    return fault.step <= step < fault.step + max(1, round(_HALVINGS * fault.option("strength")))
