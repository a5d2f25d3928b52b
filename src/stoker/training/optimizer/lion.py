"""Lion: the sign of interpolated momentum (Chen et al. 2023, algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

from stoker.parallel.placement import local
from stoker.recipe import Lion


class LionOptimizer(Optimizer):
    """State of each parameter: `momentum`, of its shape and type. Fresh state is zeros."""

    def __init__(self, groups: list[dict[str, Any]], settings: Lion) -> None:
        super().__init__(groups, {})
        self._settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        beta1, beta2 = self._settings.beta1, self._settings.beta2
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moving:
                continue
            for parameter in moving:
                if not self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(local(parameter))
            weights = [local(parameter) for parameter in moving]
            gradients = [local(parameter.grad) for parameter in moving]
            momenta = [local(self.state[parameter]["momentum"]) for parameter in moving]
            directions = torch._foreach_lerp(gradients, momenta, beta1)
            torch._foreach_sign_(directions)
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, directions, alpha=-group["lr"])
            torch._foreach_lerp_(momenta, gradients, 1.0 - beta2)
