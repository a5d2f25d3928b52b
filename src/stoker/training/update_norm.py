"""How large an update was: the norm of the change of the weights, from a sample of them.

The norm of all would take a second copy of the weights. Of every parameter a few hundred elements, evenly spaced
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

_SAMPLE = 512
"""Elements of each parameter on a rank, at most."""


class UpdateNorm:
    """Measures each step of an optimizer. Collective: all ranks ask after the same steps."""

    def __init__(self, held: Sequence[Held], optimizer: Optimizer, world: World) -> None:
        held = [one for one in held if one.is_parameter and local(one.parameter).numel()]
        self._world = world
        self._flats = [local(one.parameter.detach()).view(-1) for one in held]
        self._strides = [-(-flat.numel() // _SAMPLE) | 1 for flat in self._flats]  # odd: columns of matrices vary
        counts = [flat.numel() // stride for flat, stride in zip(self._flats, self._strides, strict=True)]
        self._ends = [count * stride for count, stride in zip(counts, self._strides, strict=True)]
        # How many elements of the whole model a sampled one stands for; copies of one share that.
        shares = [
            flat.numel() / count / (one.placement.holders * one.copies)
            for one, flat, count in zip(held, self._flats, counts, strict=True)
        ]
        each = torch.tensor(shares, dtype=torch.float64).repeat_interleave(torch.tensor(counts, dtype=torch.int64))
        self._shares = each.to(self._flats[0].device if held else world.device)
        self._steps = 0
        self._before: Tensor | None = None
        self._square: Tensor | None = None
        self._squares: Tensor | None = None
        """Of each sampled element's change in the last update."""
        self._counts = counts
        self._names = tuple(one.name for one in held)
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

    def by_parameter(self) -> dict[str, float]:
        """This rank's share of the square of the norm of each of its parameters' last updates, estimated.

        Summed over all ranks they are the squares of the whole update's norms.
        """
        squares, self._squares = self._squares, None
        if squares is None:
            return dict.fromkeys(self._names, 0.0)
        parts = torch.split(squares * self._shares, self._counts)
        return dict(zip(self._names, torch.stack([part.sum() for part in parts]).tolist(), strict=True))

    @torch.no_grad()
    def _note(self, *_: Any) -> None:
        self._before = self._sample() if self._flats else None

    @torch.no_grad()
    def _compare(self, *_: Any) -> None:
        if self._before is not None:
            moved = self._sample().to(torch.float64) - self._before
            self._squares = moved.square_()
            self._square = self._squares @ self._shares
        self._before = None
        self._steps += 1

    def _sample(self) -> Tensor:
        places = zip(self._flats, self._strides, self._ends, strict=True)
        # Others at every step: each element's turn comes.
        return torch.cat([flat[(at := self._steps % stride) : at + end : stride] for flat, stride, end in places])
