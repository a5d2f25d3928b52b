"""Lion: the sign of interpolated momentum (Chen et al. 2023, algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.parallel.placement import local
from stoker.recipe import Lion
from stoker.training.optimizer.on_host import OnHost, at_rest


class LionOptimizer(Optimizer):
    """State of each parameter: `momentum`, of its shape and type. Fresh state is zeros."""

    def __init__(self, groups: list[dict[str, Any]], settings: Lion, host: OnHost | None = None) -> None:
        """With a `host` state rests and updates are made there."""
        super().__init__(groups, {})
        self._settings, self._host = settings, host

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            self._update([parameter for parameter in group["params"] if parameter.grad is not None], group)

    @torch.no_grad()
    def step_one(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter of `group`, which has a gradient."""
        self._update([parameter], group)

    def _update(self, moving: list[Tensor], group: dict[str, Any]) -> None:
        if not moving:
            return
        weights = [local(parameter) for parameter in moving]
        gradients = [local(parameter.grad) for parameter in moving if parameter.grad is not None]
        for parameter, weight in zip(moving, weights, strict=True):
            if not self.state[parameter]:
                device = weight.device if self._host is None else torch.device("cpu")
                self.state[parameter]["momentum"] = torch.zeros_like(weight, device=device)
            elif self._host is not None:
                self.state[parameter] = at_rest(self.state[parameter])
        momenta = [local(self.state[parameter]["momentum"]) for parameter in moving]
        if self._host is None:
            self._step(weights, gradients, momenta, group)
            return
        for (weight, gradient), momentum in zip(self._host.each(weights, gradients), momenta, strict=True):
            self._step([weight], [gradient], [momentum], group)

    def _step(
        self, weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], group: dict[str, Any]
    ) -> None:
        beta1, beta2 = self._settings.beta1, self._settings.beta2
        directions = torch._foreach_lerp(gradients, momenta, beta1)
        torch._foreach_sign_(directions)
        torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, directions, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - beta2)
