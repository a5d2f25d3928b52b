"""Muon: momentum orthogonalised by Newton-Schulz for the blocks' matrices (Jordan 2024), AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.parallel.placement import Held, local
from stoker.parallel.whole import gathered, own_part
from stoker.recipe import Muon
from stoker.training.optimizer.adamw import update
from stoker.training.optimizer.descent import descend

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic whose slope at zero is steepest (Jordan 2024); singular values end within about 0.7 to 1.2."""
_SMALLEST_NORM = 1e-7


class MuonOptimizer(Optimizer):
    """Groups with `orthogonalise` hold matrices; the others are AdamW's.

    State of a matrix: `momentum`; of another parameter: `step`, `exp_avg`, `exp_avg_sq`. Fresh state is
    zeros. A divided matrix is gathered, orthogonalised whole on every rank, and each keeps its own part,
    so that a layout does not change the update. Stacked matrices [E, rows, columns] are each its own.
    """

    def __init__(
        self, groups: list[dict[str, Any]], held: Mapping[Tensor, Held], settings: Muon, fused: bool
    ) -> None:
        """`fused` is AdamW's: one kernel for all of its arithmetic."""
        super().__init__(groups, {})
        self._held, self._settings, self._fused = held, settings, fused

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. Collective when matrices are divided."""
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not group["orthogonalise"]:
                update(moving, group, self.state, self._settings, self._fused)
                continue
            for parameter in moving:
                self._orthogonal_step(group, parameter)

    def _orthogonal_step(self, group: dict[str, Any], parameter: Tensor) -> None:
        state, beta = self.state[parameter], self._settings.momentum
        if not state:
            state["momentum"] = torch.zeros_like(local(parameter))
        assert parameter.grad is not None
        gradient, momentum = local(parameter.grad), local(state["momentum"])
        momentum.lerp_(gradient, 1.0 - beta)
        ahead = torch.lerp(gradient, momentum, beta)  # Nesterov's
        held, within = self._held[parameter], (parameter.ndim - 2, parameter.ndim - 1)
        direction = orthogonalise(gathered(ahead, held, within), self._settings.newton_schulz_steps)
        rows, columns = held.shape[-2:]
        direction.mul_(math.sqrt(max(1.0, rows / columns)))
        own = own_part(direction, held, within).to(local(parameter).device)  # which may be the host
        descend(local(parameter), own, group["lr"], group["weight_decay"])


def orthogonalise(matrix: Tensor, steps: int) -> Tensor:
    """The matrix [..., rows, columns] with its singular values brought near 1, by Newton-Schulz iteration.

    Computed in bf16 on CUDA, where the iteration is stable enough and twice as fast, elsewhere in fp32
    or the matrix's own wider type, and returned in the type it was computed in, at least fp32.
    """
    wide = torch.promote_types(matrix.dtype, torch.float32)
    x = matrix.to(torch.bfloat16 if matrix.is_cuda else wide)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / matrix.to(wide).norm(dim=(-2, -1), keepdim=True).clamp(min=_SMALLEST_NORM).to(x.dtype)
    a, b, c = _COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = b * gram + c * (gram @ gram)
        x = a * x + polynomial @ x
    x = x.mT if tall else x
    result: Tensor = x.to(wide).contiguous()
    return result
