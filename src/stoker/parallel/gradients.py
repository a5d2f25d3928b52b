"""The gradient as one vector spread over ranks: its true global norm, its clipping.

This is the only place that knows how parts of gradients on different ranks add up.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from stoker.parallel.world import World


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Gradients:
    """All gradients of a model, after backward has summed them over ranks."""

    def __init__(self, parameters: dict[str, nn.Parameter], world: World) -> None:
        self._parameters = parameters
        self._world = world
        self._sharded = torch.tensor(
            [isinstance(parameter, DTensor) for parameter in parameters.values()], device=world.device
        )

    def scale(self, factor: float) -> None:
        """Multiply every gradient by `factor`, in place."""
        local = self._local_gradients()
        if local and factor != 1.0:
            torch._foreach_mul_(local, factor)

    def norms(self) -> torch.Tensor:
        """Euclidean norm of each parameter's whole gradient: float64 [parameters], the same on every rank.

        A parameter without a gradient counts as zero.
        """
        squares = torch.zeros(len(self._parameters), dtype=torch.float64, device=self._world.device)
        present = [i for i, p in enumerate(self._parameters.values()) if p.grad is not None]
        local = self._local_gradients()
        if local:
            # A NaN or Inf anywhere shows in the norm; fp16 and bf16 gradients are summed in fp32.
            norms = torch._foreach_norm(local, 2, dtype=torch.float32 if local[0].dtype.itemsize < 4 else None)
            squares[present] = torch.stack(norms).to(torch.float64) ** 2
        # Sharded parameters add up over shards; whole ones are the same everywhere and count once.
        if self._world.layout.dp_shard > 1:
            summed = self._world.sum_over_shards(torch.where(self._sharded, squares, 0.0))
            squares = torch.where(self._sharded, summed, squares)
        return squares.sqrt()

    def total_norm(self, norms: torch.Tensor) -> float:
        """The global norm, from the norms of all parameters."""
        return float(norms.square().sum().sqrt())

    def by_module(self, norms: torch.Tensor) -> dict[str, float]:
        """Norm by module: `embedding`, `blocks.0` …, `norm`, `head`."""
        squares: dict[str, float] = {}
        for name, square in zip(self._parameters, norms.square().tolist(), strict=True):
            parts = name.split(".")
            module = ".".join(parts[:2]) if parts[0] == "blocks" else parts[0]
            squares[module] = squares.get(module, 0.0) + square
        return {module: math.sqrt(square) for module, square in squares.items()}

    def clear(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def _local_gradients(self) -> list[torch.Tensor]:
        return [_local(p.grad) for p in self._parameters.values() if p.grad is not None]
