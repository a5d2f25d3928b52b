"""How a model knows where a token stands: rotary angles, and ALiBi's slopes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.model.lean_autograd import rotated


class Places(NamedTuple):
    """Where the tokens at hand stand in their sequences, when they are only a part of them."""

    own: Tensor
    """int64 [L]: place of each token in the whole sequence."""
    length: int
    """Tokens of the whole sequence."""


class Rotary(NamedTuple):
    """Cosines and sines of the rotary angles: [B or 1, L, 1, K/2] each, for every head alike."""

    cosine: Tensor
    sine: Tensor


def rotary_angles(positions: Tensor, head_size: int, theta: float, dtype: torch.dtype) -> Rotary:
    """Rotary position embedding (Su et al. 2021) for `positions` [B or 1, L].

    Angles are computed in fp32, as everywhere else (fp64 for an fp64 model): another precision
    would be another model at long positions.
    """
    dtype = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, head_size, 2, device=positions.device).to(dtype) / head_size
    frequencies = 1.0 / theta**exponents
    angles = positions[:, :, None, None].to(dtype) * frequencies
    return Rotary(angles.cos(), angles.sin())


def rotate(x_BLHK: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair (element k, element k + K/2) of each head by its angle; keeps dtype."""
    return rotated(x_BLHK, rotary.cosine, rotary.sine)


def alibi_slopes(heads: int) -> list[float]:
    """ALiBi's slope of each head (Press et al. 2022): geometric for powers of two; for other counts,
    those of the power of two below, then every other one of the power of two above."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return slopes
