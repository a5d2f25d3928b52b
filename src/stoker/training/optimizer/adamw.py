"""Adam with decoupled weight decay (Loshchilov & Hutter 2019), by torch's kernels on this rank's parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from stoker.parallel.placement import local
from stoker.recipe import AdamW, Muon
from stoker.training.optimizer.on_host import OnHost, at_rest


class AdamWOptimizer(Optimizer):
    """State of each parameter: `step`, and `exp_avg` and `exp_avg_sq` of this rank's part. Fresh state is zeros.

    Sharded and whole parameters stand side by side: torch's own AdamW refuses them together.
    """

    def __init__(
        self, groups: list[dict[str, Any]], settings: AdamW, fused: bool, host: OnHost | None = None
    ) -> None:
        """`fused`: one kernel for all of the arithmetic. With a `host` state rests and updates are made there."""
        super().__init__(groups, {})
        self._settings, self._fused, self._host = settings, fused, host

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            update(moving, group, self.state, self._settings, self._fused, self._host)

    @torch.no_grad()
    def step_one(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter of `group`, which has a gradient."""
        update([parameter], group, self.state, self._settings, self._fused, self._host)


def update(
    moving: list[Tensor],
    group: dict[str, Any],
    states: defaultdict[Tensor, Any],
    settings: AdamW | Muon,
    fused: bool,
    host: OnHost | None = None,
) -> None:
    """One step of `moving`, with the learning rate and weight decay of their param group."""
    if not moving:
        return
    weights = [local(parameter) for parameter in moving]
    gradients = [local(parameter.grad) for parameter in moving if parameter.grad is not None]
    for parameter, weight in zip(moving, weights, strict=True):
        if not states[parameter]:
            states[parameter] = _fresh_state(weight, weight.device if host is None else torch.device("cpu"))
        elif host is not None:
            states[parameter] = at_rest(states[parameter])
    own = [states[parameter] for parameter in moving]
    if host is None:
        _step(weights, gradients, own, group, settings, fused)
        return
    for (weight, gradient), state in zip(host.each(weights, gradients), own, strict=True):
        _step([weight], [gradient], [state], group, settings, fused)


def _fresh_state(weight: Tensor, device: torch.device) -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), dtype=torch.float32, device=device),
        "exp_avg": torch.zeros_like(weight, device=device),
        "exp_avg_sq": torch.zeros_like(weight, device=device),
    }


def _step(
    weights: list[Tensor],
    gradients: list[Tensor],
    own: Sequence[dict[str, Tensor]],
    group: dict[str, Any],
    settings: AdamW | Muon,
    fused: bool,
) -> None:
    adamw(
        weights,
        gradients,
        [state["exp_avg"] for state in own],
        [state["exp_avg_sq"] for state in own],
        [],
        [state["step"] for state in own],
        fused=fused,
        foreach=not fused,
        amsgrad=False,
        beta1=settings.beta1,
        beta2=settings.beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=settings.epsilon,
        maximize=False,
    )
