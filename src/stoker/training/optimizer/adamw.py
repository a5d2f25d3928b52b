"""Adam with decoupled weight decay (Loshchilov & Hutter 2019), by torch's kernels on this rank's parts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from stoker.parallel.placement import local
from stoker.recipe import AdamW, Muon


class AdamWOptimizer(Optimizer):
    """State of each parameter: `step`, and `exp_avg` and `exp_avg_sq` of this rank's part. Fresh state is zeros.

    Sharded and whole parameters stand side by side: torch's own AdamW refuses them together.
    """

    def __init__(self, groups: list[dict[str, Any]], settings: AdamW, fused: bool) -> None:
        """`fused`: one kernel for all of the arithmetic."""
        super().__init__(groups, {})
        self._settings, self._fused = settings, fused

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            update(moving, group, self.state, self._settings, self._fused)


def update(
    moving: list[Tensor],
    group: dict[str, Any],
    states: defaultdict[Tensor, Any],
    settings: AdamW | Muon,
    fused: bool,
) -> None:
    """One step of `moving`, with the learning rate and weight decay of their param group."""
    if not moving:
        return
    parts = [local(parameter) for parameter in moving]
    for parameter, part in zip(moving, parts, strict=True):
        if not states[parameter]:
            states[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=part.device),
                "exp_avg": torch.zeros_like(part),
                "exp_avg_sq": torch.zeros_like(part),
            }
    own = [states[parameter] for parameter in moving]
    adamw(
        parts,
        [local(parameter.grad) for parameter in moving if parameter.grad is not None],
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
