"""Adafactor: second moments of a matrix kept as one row and one column (Shazeer & Stern 2018)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from stoker.recipe import Adafactor
from stoker.training.optimizer.descent import descend
from stoker.training.optimizer.shards import local, sum_over_shards


class AdafactorOptimizer(Optimizer):
    """Algorithm 4 with a given learning rate, without momentum.

    State of a matrix [rows, columns]: `step`, `row` [rows] (means over columns) and `column` [columns]
    (means over rows); of another parameter: `step` and `exp_avg_sq`. Statistics are fp32 for 16-bit
    weights too. Fresh state is zeros. Statistics and the update's root mean square are those of the
    whole parameter, however it is sharded.
    """

    def __init__(self, groups: list[dict[str, Any]], settings: Adafactor) -> None:
        super().__init__(groups, {})
        self._settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. Collective when parameters are sharded."""
        moving = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        self._update_statistics([parameter for _, parameter in moving])
        # Directions are computed twice rather than kept: they would be another copy of all gradients.
        squares = [self._direction(parameter).square().sum() for _, parameter in moving]
        squares = sum_over_shards(squares, [parameter for _, parameter in moving])
        for (group, parameter), square in zip(moving, squares, strict=True):
            root_mean_square = (square / parameter.numel()).sqrt()
            direction = self._direction(parameter)
            direction.div_((root_mean_square / self._settings.clip_threshold).clamp(min=1.0))
            descend(local(parameter), direction, group["lr"], group["weight_decay"])

    def _update_statistics(self, parameters: list[Tensor]) -> None:
        matrices = [parameter for parameter in parameters if parameter.ndim == 2]
        sums = sum_over_shards([self._squares(parameter).sum(dim=0) for parameter in matrices], matrices)
        column_sums = dict(zip(matrices, sums, strict=True))
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = _fresh_state(parameter)
            state = self.state[parameter]
            state["step"] += 1
            new = math.pow(float(state["step"]), -self._settings.decay_exponent)
            if parameter.ndim != 2:
                local(state["exp_avg_sq"]).lerp_(self._squares(parameter), new)
                continue
            rows, columns = parameter.shape
            local(state["row"]).lerp_(self._squares(parameter).sum(dim=1) / columns, new)
            state["column"].lerp_(column_sums[parameter] / rows, new)

    def _squares(self, parameter: Tensor) -> Tensor:
        return _wide_gradient(parameter).square_().add_(self._settings.epsilon)

    def _direction(self, parameter: Tensor) -> Tensor:
        """This rank's part of the gradient over the root of its second moment."""
        state, gradient = self.state[parameter], _wide_gradient(parameter)
        if parameter.ndim != 2:
            return gradient.mul_(local(state["exp_avg_sq"]).rsqrt())
        # The mean of the row statistics is that of the column statistics, which every rank has whole.
        row = (local(state["row"]) / state["column"].mean()).rsqrt_()
        return gradient.mul_(row[:, None]).mul_(state["column"].rsqrt()[None, :])


def _wide(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)


def _wide_gradient(parameter: Tensor) -> Tensor:
    """A copy of this rank's part of the gradient, at least fp32."""
    assert parameter.grad is not None
    return local(parameter.grad).to(_wide(parameter), copy=True)


def _fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    dtype = _wide(parameter)
    # `step` stays on the CPU: it is read every time.
    state = {"step": torch.zeros((), dtype=torch.float32, device="cpu")}
    if parameter.ndim != 2:
        return {**state, "exp_avg_sq": torch.zeros_like(parameter, dtype=dtype)}
    rows, columns = parameter.shape
    row = torch.zeros(local(parameter).shape[0], dtype=dtype, device=parameter.device)
    if isinstance(parameter, DTensor):
        assert all(placement.is_replicate() or placement == Shard(0) for placement in parameter.placements)
        row = DTensor.from_local(
            row, parameter.device_mesh, parameter.placements, run_check=False, shape=torch.Size([rows]), stride=(1,)
        )
    return {**state, "row": row, "column": torch.zeros(columns, dtype=dtype, device=parameter.device)}
