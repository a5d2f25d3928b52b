"""RMS norm and layer norm."""

from __future__ import annotations

from typing import Literal

from torch import nn


def build_norm(kind: Literal["rms", "layer"], size: int, epsilon: float) -> nn.RMSNorm | nn.LayerNorm:
    """A norm over the last `size` elements: RMS (Zhang & Sennrich 2019), or layer norm with bias (Ba 2016)."""
    if kind == "rms":
        return nn.RMSNorm(size, eps=epsilon)
    return nn.LayerNorm(size, eps=epsilon)
