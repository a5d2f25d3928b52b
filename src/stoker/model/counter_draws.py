"""The draws of `counter_random` as torch tensors, and normal draws made from them.

Only operations that IEEE 754 rounds exactly are used (no library logarithm or cosine, whose last bit
depends on vector width, thread count and device): any device, any number of threads and any
partition of the counters give the same bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_LOGARITHM_SERIES = [2.0 / (2 * i + 1) for i in range(12)]
_SINE_SERIES = [(-1) ** i / math.factorial(2 * i + 1) for i in range(12)]


def draw_bits(key: int | Tensor, counters: Tensor) -> Tensor:
    """`counter_random.draw_u64` for int64 `counters`: its 64 bits in an int64 tensor.

    A key that is a tensor holds its 64 bits as int64.
    """
    z = (counters + 1).mul_(_signed(_GOLDEN)).add_(_signed(key) if isinstance(key, int) else key)
    z = z.bitwise_xor_(_shift_right(z, 30)).mul_(_signed(_MIX_1))
    z = z.bitwise_xor_(_shift_right(z, 27)).mul_(_signed(_MIX_2))
    return z.bitwise_xor_(_shift_right(z, 31))


def uniform(key: int, counters: Tensor) -> Tensor:
    """Uniform float64 in (0, 1], multiples of 2^-53, one for each int64 counter."""
    return _shift_right(draw_bits(key, counters), 11).add_(1).to(torch.float64).mul_(2.0**-53)


def normal(key: int, start: int, stop: int, device: torch.device) -> Tensor:
    """Standard normal float64 for the counters start … stop - 1 (Box & Muller 1958).

    Each counter has its own two uniforms, so that any range can be drawn by itself.
    """
    counters = torch.arange(start, stop, dtype=torch.int64, device=device).mul_(2)
    radius = _logarithm(uniform(key, counters)).mul_(-2.0).sqrt_()
    return radius.mul_(_cosine_of_turn(uniform(key, counters.add_(1))))


def _signed(value: int) -> int:
    """The int64 with the same bits as the unsigned `value`."""
    return value - 2**64 if value >= 2**63 else value


def _shift_right(x: Tensor, count: int) -> Tensor:
    """Logical shift: torch's own carries the sign bit along."""
    return (x >> count).bitwise_and_(2 ** (64 - count) - 1)


def _logarithm(u: Tensor) -> Tensor:
    """Natural logarithm of u in (0, 1], by the series of 2 artanh((m - 1) / (m + 1)) around 1."""
    mantissa, exponent = torch.frexp(u)
    small = mantissa < math.sqrt(0.5)
    mantissa = torch.where(small, mantissa * 2, mantissa)
    exponent = (exponent - small.to(exponent.dtype)).to(u.dtype)
    ratio = (mantissa - 1.0).div_(mantissa + 1.0)
    return _odd_series(ratio, _LOGARITHM_SERIES).add_(exponent.mul_(math.log(2.0)))


def _cosine_of_turn(u: Tensor) -> Tensor:
    """cos(2 pi u) for u in (0, 1], as 1 - 2 sin²(pi (u - 1/2)) with its sign turned."""
    sine = _odd_series((u - 0.5).mul_(math.pi), _SINE_SERIES)
    return sine.mul_(sine).mul_(2.0).sub_(1.0)


def _odd_series(x: Tensor, coefficients: list[float]) -> Tensor:
    """x (c0 + c1 x² + c2 x⁴ + …)."""
    square = x * x
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total.mul_(square).add_(coefficient)
    return total.mul_(x)
