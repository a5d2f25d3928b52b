"""The last line of every optimizer."""

from __future__ import annotations

from torch import Tensor


def descend(weights: Tensor, direction: Tensor, learning_rate: float, weight_decay: float) -> None:
    """weights ← weights · (1 - learning_rate · weight_decay) - learning_rate · direction, in place.

    Both are of one shape. 16-bit weights are computed with in the direction's type and rounded once.
    """
    keep = 1.0 - learning_rate * weight_decay
    if weights.dtype == direction.dtype:
        weights.mul_(keep).add_(direction, alpha=-learning_rate)
    else:
        weights.copy_(weights.to(direction.dtype).mul_(keep).add_(direction, alpha=-learning_rate))
