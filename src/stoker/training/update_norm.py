"""How large an update was: the norm of the change of the weights, from a sample of them.

The norm of all would take a second copy of the weights. Of every parameter a few thousand elements, evenly spaced
and others at every step, are copied before the optimizer moves them and compared afterwards, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.parallel import World
from stoker.parallel.placement import Held, local

_SAMPLE = 4096
"""Elements of each parameter on a rank, at most."""


class UpdateNorm:
    """Measures each step of an optimizer. Collective: all ranks ask after the same steps."""

    def __init__(self, held: Sequence[Held], optimizer: Optimizer, world: World) -> None:
        self._held = [one for one in held if one.is_parameter and local(one.parameter).numel()]
        self._world = world
        self._steps = 0
        self._before: Tensor | None = None
        self._square: Tensor | None = None
        optimizer.register_step_pre_hook(self._note)
        optimizer.register_step_post_hook(self._compare)

    def take(self) -> float | None:
        """Euclidean norm of the last update, estimated; None where the optimizer has made no step. Collective."""
        square, self._square = self._square, None
        if self._world.layout.world_size == 1:
            return None if square is None else math.sqrt(float(square))
        made = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        if square is not None:
            made += torch.stack([square, torch.ones_like(square)]).to(made.device)
        total, steps = self._world.sum(made).tolist()
        return math.sqrt(total) if steps else None

    @torch.no_grad()
    def _note(self, *_: Any) -> None:
        self._before = self._sample() if self._held else None

    @torch.no_grad()
    def _compare(self, *_: Any) -> None:
        if self._before is not None:
            moved = (self._sample() - self._before).to(torch.float64)
            self._square = (moved.square() * self._shares(moved.device)).sum()
        self._before = None
        self._steps += 1

    def _sample(self) -> Tensor:
        return torch.cat([_flat(one)[self._places(one)].float() for one in self._held])

    def _places(self, one: Held) -> slice:
        stride = -(-local(one.parameter).numel() // _SAMPLE)
        return slice(self._steps % stride, None, stride)

    def _shares(self, device: torch.device) -> Tensor:
        """How many elements of the whole model each sampled one stands for; copies of one are shared among them."""
        counts, shares = [], []
        for one in self._held:
            size, places = local(one.parameter).numel(), self._places(one)
            counts.append(len(range(*places.indices(size))))
            shares.append(size / counts[-1] / (one.placement.holders * one.copies))
        each = torch.tensor(shares, dtype=torch.float64)
        return each.repeat_interleave(torch.tensor(counts)).to(device)


def _flat(held: Held) -> Tensor:
    return local(held.parameter.detach()).reshape(-1)
