"""Adafactor: second moments of a matrix kept as one row and one column (Shazeer & Stern 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.parallel.placement import Held, local
from stoker.parallel.whole import sum_over_parts
from stoker.recipe import Adafactor
from stoker.training.optimizer.descent import descend


class AdafactorOptimizer(Optimizer):
    """Algorithm 4 with a given learning rate, without momentum.

    State of a matrix [rows, columns]: `step`, `row` [rows] (means over columns) and `column` [columns]
    (means over rows); stacked matrices [E, rows, columns] have one of each for each. Of another
    parameter: `step` and `exp_avg_sq`. Statistics are fp32 for 16-bit weights too. Fresh state is zeros.
    Statistics and the update's root mean square are those of the whole matrix, however it is divided.
    """

    def __init__(self, groups: list[dict[str, Any]], held: Mapping[Tensor, Held], settings: Adafactor) -> None:
        super().__init__(groups, {})
        self._held, self._settings = held, settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. Collective when parameters are divided."""
        moving = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        parameters = [parameter for _, parameter in moving]
        means = self._update_statistics(parameters)
        # Directions are computed twice rather than kept: they would be another copy of all gradients.
        squares = [self._direction(p, means.get(p)).square().sum(dim=_within_matrix(p)) for p in parameters]
        squares = self._sum(squares, parameters, [_within_matrix(p) for p in parameters])
        for (group, parameter), square in zip(moving, squares, strict=True):
            within = _within_matrix(parameter)
            count = math.prod(self._held[parameter].shape[dim] for dim in within)
            root_mean_square = (square / count).sqrt().view(square.shape + (1,) * len(within))
            direction = self._direction(parameter, means.get(parameter))
            direction.div_((root_mean_square / self._settings.clip_threshold).clamp(min=1.0))
            descend(local(parameter), direction, group["lr"], group["weight_decay"])

    def _update_statistics(self, parameters: list[Tensor]) -> dict[Tensor, Tensor]:
        """Take in the gradients; returns the mean of each matrix's column statistics."""
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        rows, columns = [(p.ndim - 2,) for p in matrices], [(p.ndim - 1,) for p in matrices]
        row_sums = self._sum([self._squares(p).sum(dim=-1) for p in matrices], matrices, columns)
        column_sums = self._sum([self._squares(p).sum(dim=-2) for p in matrices], matrices, rows)
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = _fresh_state(parameter)
            self.state[parameter]["step"] += 1
            if parameter.ndim < 2:
                self.state[parameter]["exp_avg_sq"].lerp_(self._squares(parameter), self._new(parameter))
        for parameter, row_sum, column_sum in zip(matrices, row_sums, column_sums, strict=True):
            *_, R, C = self._held[parameter].shape
            self.state[parameter]["row"].lerp_(row_sum / C, self._new(parameter))
            self.state[parameter]["column"].lerp_(column_sum / R, self._new(parameter))
        totals = self._sum([self.state[p]["column"].sum(dim=-1) for p in matrices], matrices, columns)
        return {p: total / self._held[p].shape[-1] for p, total in zip(matrices, totals, strict=True)}

    def _sum(self, values: list[Tensor], parameters: list[Tensor], dims: Sequence[tuple[int, ...]]) -> list[Tensor]:
        return sum_over_parts(values, [self._held[parameter] for parameter in parameters], dims)

    def _new(self, parameter: Tensor) -> float:
        """Weight of this step's squares in the running means."""
        return math.pow(float(self.state[parameter]["step"]), -self._settings.decay_exponent)

    def _squares(self, parameter: Tensor) -> Tensor:
        return _wide_gradient(parameter).square_().add_(self._settings.epsilon)

    def _direction(self, parameter: Tensor, column_mean: Tensor | None) -> Tensor:
        """This rank's part of the gradient over the root of its second moment."""
        state, gradient = self.state[parameter], _wide_gradient(parameter)
        if column_mean is None:
            return gradient.mul_(state["exp_avg_sq"].rsqrt())
        # The mean of the column statistics is that of the row statistics.
        row = (state["row"] / column_mean[..., None]).rsqrt_()
        return gradient.mul_(row[..., None]).mul_(state["column"].rsqrt()[..., None, :])


def _within_matrix(parameter: Tensor) -> tuple[int, ...]:
    return (0,) if parameter.ndim == 1 else (parameter.ndim - 2, parameter.ndim - 1)


def _wide(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)


def _wide_gradient(parameter: Tensor) -> Tensor:
    """A copy of this rank's part of the gradient, at least fp32."""
    assert parameter.grad is not None
    return local(parameter.grad).to(_wide(parameter), copy=True)


def _fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    part, dtype = local(parameter), _wide(parameter)
    # `step` stays on the CPU: it is read every time.
    state = {"step": torch.zeros((), dtype=torch.float32, device="cpu")}
    if part.ndim < 2:
        return {**state, "exp_avg_sq": torch.zeros_like(part, dtype=dtype)}
    *stacked, rows, columns = part.shape
    row = torch.zeros((*stacked, rows), dtype=dtype, device=part.device)
    return {**state, "row": row, "column": torch.zeros((*stacked, columns), dtype=dtype, device=part.device)}
