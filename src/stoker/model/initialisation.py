"""Initial values: a function of (seed, parameter name, place in the whole parameter), so that no layout,
dtype or device can change them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from stoker.counter_random import key_of
from stoker.model.counter_draws import normal
from stoker.recipe import Model

_CHUNK = 2**16
_WRITES_TO_RESIDUAL = (
    "attention.output.weight",
    "feed_forward.down.weight",
    "feed_forward.experts.down",
    "feed_forward.shared.down.weight",
)


def standard_deviation(name: str, shape: Sequence[int], config: Model) -> float:
    """Standard deviation of a parameter's initial values; 0 for those that start at a constant."""
    if _constant(name, shape) is not None:
        return 0.0
    is_embedding = name.rsplit(".", 2)[0] in ("embedding", "position_embedding")
    if config.initialisation == "fan_in" and not is_embedding:
        std = 1.0 / math.sqrt(shape[-1])
    else:
        std = config.initial_std
    writes_to_residual = name.endswith(_WRITES_TO_RESIDUAL)
    if writes_to_residual and config.initialisation != "normal":
        std /= math.sqrt(2 * config.layers)
    return std


def initial_values(
    name: str,
    shape: Sequence[int],
    config: Model,
    seed: int,
    start: int = 0,
    stop: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Initial values `start` … `stop` - 1 of the flattened parameter `name` of whole shape `shape`.

    Norms begin at 1, biases at 0, matrices and stacks of them at N(0, standard_deviation²). Any range can
    be asked for by itself. Values are computed in float64 and rounded once, to `dtype`.
    """
    stop = math.prod(shape) if stop is None else stop
    filled = torch.empty(stop - start, dtype=dtype, device=device)
    _fill(filled, name, shape, config, seed, start)
    return filled


@torch.no_grad()
def initialise(model: nn.Module, config: Model, seed: int) -> None:
    """Fill every parameter of `model`, wherever it lies, with its initial values, and every buffer with 0."""
    for buffer in model.buffers():
        buffer.zero_()
    for name, parameter in model.named_parameters():
        if parameter.is_contiguous():
            _fill(parameter.detach().view(-1), name, parameter.shape, config, seed, 0)
        else:
            values = initial_values(name, parameter.shape, config, seed, 0, None, parameter.device, parameter.dtype)
            parameter.copy_(values.view(parameter.shape))


def _fill(flat: Tensor, name: str, shape: Sequence[int], config: Model, seed: int, start: int) -> None:
    """Fill `flat` in place, in chunks, so that little memory is needed besides it."""
    constant = _constant(name, shape)
    if constant is not None:
        flat.fill_(constant)
        return
    std, key = standard_deviation(name, shape, config), key_of(seed, "initial", name)
    for first, last in _chunks(start, start + flat.numel()):
        flat[first - start : last - start] = normal(key, first, last, flat.device).mul_(std)


def _constant(name: str, shape: Sequence[int]) -> float | None:
    if name.endswith(".bias"):
        return 0.0
    return 1.0 if len(shape) == 1 else None


def _chunks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, _CHUNK):
        yield first, min(first + _CHUNK, stop)
