"""RMS norm and layer norm."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from stoker.model.lean_autograd import rms_norm


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm (Zhang & Sennrich 2019), computed in the precision of its weight."""

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """The same shape, in the dtype of the weight: under autocast a 16-bit input is raised to it."""
        return rms_norm(x, self.weight, self.eps)


def build_norm(kind: Literal["rms", "layer"], size: int, epsilon: float) -> RMSNorm | nn.LayerNorm:
    """A norm over the last `size` elements: RMS, or layer norm with bias (Ba et al. 2016)."""
    return RMSNorm(size, eps=epsilon) if kind == "rms" else nn.LayerNorm(size, eps=epsilon)
