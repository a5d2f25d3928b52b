"""Number formats of training: what is computed in 16 bits, and how fp16's narrow range is kept.

Weights and optimizer state are fp32 for every precision but `pure_bf16`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from stoker.errors import NonFinite
from stoker.parallel.placement import Held, local
from stoker.recipe import LossScale, Training
from stoker.recipe.training import Precision


def compute_dtype(precision: Precision) -> torch.dtype:
    """The type matrix products are computed in."""
    match precision:
        case "fp32":
            return torch.float32
        case "fp16":
            return torch.float16
        case "bf16" | "pure_bf16":
            return torch.bfloat16


def parameter_dtype(precision: Precision) -> torch.dtype:
    """The type weights and optimizer moments are kept in."""
    return torch.bfloat16 if precision == "pure_bf16" else torch.float32


def reduction_dtype(training: Training) -> torch.dtype | None:
    """The type gradients are summed over ranks in; None is their own."""
    if training.gradient_reduction == "bf16":
        return torch.bfloat16
    return torch.float32 if training.precision == "pure_bf16" else None


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context forward passes run in. fp32 and pure_bf16 compute in the weights' own type."""
    if compute_dtype(precision) == parameter_dtype(precision):
        return nullcontext()
    return torch.autocast(device.type, dtype=compute_dtype(precision))


class DynamicLossScale:
    """Multiplies the fp16 loss so that small gradients survive (Micikevicius et al. 2018).

    An overflow halves the scale; `growth_interval` updates without one double it.
    """

    def __init__(self, settings: LossScale) -> None:
        self._settings = settings
        self.scale = settings.initial
        self._updates_since_change = 0

    def update(self, overflow: bool) -> None:
        """Note whether this step's gradients overflowed (and its update was left out).

        Raises `NonFinite` when the scale would fall below `minimum`.
        """
        if overflow:
            if self.scale / 2 < self._settings.minimum:
                raise NonFinite(
                    f"fp16 gradients overflow even at a loss scale of {self.scale:g}, and "
                    f"training.loss_scale.minimum is {self._settings.minimum:g}: the gradients themselves are "
                    "broken. Nothing was updated. Lower the learning rate, look at the batch, or use bf16."
                )
            self.scale /= 2
            self._updates_since_change = 0
            return
        self._updates_since_change += 1
        if self._updates_since_change >= self._settings.growth_interval:
            self.scale *= 2
            self._updates_since_change = 0

    def state_dict(self) -> dict[str, float]:
        """Everything a resumed run needs, as plain numbers."""
        return {"scale": self.scale, "updates_since_change": float(self._updates_since_change)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state."""
        self.scale = state["scale"]
        self._updates_since_change = int(state["updates_since_change"])


@torch.no_grad()
def dead_updates(before: Iterable[Tensor], after: Iterable[Held]) -> Tensor:
    """float64 [2]: weights that are bit for bit what they were before the update, and all of them.

    Of this rank's share: summed over all ranks they are those of the model, each weight counted once.
    """
    counts = torch.zeros(2, dtype=torch.float64)
    for old, held in zip(before, after, strict=True):
        ours = local(held.parameter)
        unmoved = (local(old) == ours).sum()
        counts += torch.tensor([float(unmoved), float(ours.numel())], dtype=torch.float64) / (
            held.placement.holders * held.copies
        )
    return counts
