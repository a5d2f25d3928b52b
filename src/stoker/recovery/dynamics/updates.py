"""What a recipe or a framework does wrong with an update: rate, scale of gradients, state of the optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.parallel.placement import local
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
    """Have gradients come out too large by the number of micro-batches while `faults` last.

    Also where a rank computes what another one did: a fault of the framework's is everywhere the same.
    """
    model, recipe = trainer.step.model, trainer.recipe
    usual: Callable[..., Any] = type(model).forward_backward

    def scaled(self: Any, batches: Any, *, step: int, loss_scale: float, **others: Any) -> Any:
        for fault in faults:
            if fault.covers(step):
                loss_scale *= recipe.accumulation_at(step) ** fault.option("strength")
        return usual(self, batches, step=step, loss_scale=loss_scale, **others)

    model.__class__ = type("Miscounting", (type(model),), {"forward_backward": scaled})


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


@torch.no_grad()
def burst(trainer: Trainer, times: float, step: int) -> None:
    """Add noise to this rank's gradients, `times` as large as each of them is."""
    dice = torch.Generator().manual_seed(trainer.recipe.seed + step)
    for one in trainer.step.model.held:
        gradient = one.parameter.grad if one.is_parameter else None
        if gradient is not None and local(gradient).numel():
            own = local(gradient)
            noise = torch.randn(own.shape, generator=dice, dtype=torch.float32).to(own.device, own.dtype)
            own += times * own.norm() / math.sqrt(own.numel()) * noise


def overflows_at(fault: Fault, step: int) -> bool:
    """Whether a gradient overflows in `step`."""
    return fault.step <= step < fault.step + max(1, round(_HALVINGS * fault.option("strength")))
