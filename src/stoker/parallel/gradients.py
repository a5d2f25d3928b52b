"""The gradient as one vector spread over ranks: its true global norm, its clipping.

This is the only place that knows how parts of gradients on different ranks add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.parallel.placement import Held, local
from stoker.parallel.world import World


class Gradients:
    """All gradients of a model, after backward has summed them over ranks."""

    def __init__(self, names: Sequence[str], held: Sequence[Held], world: World, exact: bool = False) -> None:
        """`names` are those of all parameters of the whole model, `held` are this rank's.

        `exact` sums squares as whole numbers, so that norms are the same to the bit in every layout.
        """
        self._exact = exact
        self.names = tuple(names)
        self._held, self._world = list(held), world
        index = {name: place for place, name in enumerate(self.names)}
        self._places = [index[one.name] for one in self._held]
        # A part that several ranks hold counts once in all.
        self._shares = [1.0 / (one.placement.holders * one.copies) for one in self._held]
        self._released: dict[Tensor, Tensor] = {}
        """Norms of gradients that were used as soon as they were complete, by parameter."""

    def release(self, ready: Iterable[Tensor], update: Callable[[Tensor], None]) -> None:
        """Have the gradients of `ready`, which no later sum changes, used by `update` at once and forgotten.

        A gradient that is not finite is forgotten without being used; its norm tells.
        """
        for parameter in ready:
            parameter.register_post_accumulate_grad_hook(partial(self._use, update))  # type: ignore[no-untyped-call]

    def _use(self, update: Callable[[Tensor], None], parameter: Tensor) -> None:
        assert parameter.grad is not None
        gradient = local(parameter.grad)
        norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        self._released[parameter] = norm.to(torch.float64)
        if bool(norm.isfinite()):
            update(parameter)
        parameter.grad = None

    def is_released(self, parameter: Tensor) -> bool:
        """Whether its gradient was used already."""
        return parameter in self._released

    def scale(self, factor: float) -> None:
        """Multiply every gradient by `factor`, in place."""
        gradients = [local(one.parameter.grad) for one in self._held if one.parameter.grad is not None]
        if gradients and factor != 1.0:
            torch._foreach_mul_(gradients, factor)

    def norms(self) -> Tensor:
        """Euclidean norm of each parameter's whole gradient: float64 [names], the same on every rank.

        A parameter without a gradient counts as zero.
        """
        if self._exact:
            return self._exact_norms()
        squares = torch.zeros(len(self.names), dtype=torch.float64, device=self._world.device)
        present = [place for place, one in enumerate(self._held) if one.parameter.grad is not None]
        gradients = [_gradient_of(self._held[place]) for place in present]
        if gradients:
            # A NaN or Inf anywhere shows in the norm; fp16 and bf16 gradients are summed in fp32.
            wide = torch.float32 if gradients[0].dtype.itemsize < 4 else None
            norms = torch.stack(torch._foreach_norm(gradients, 2, dtype=wide)).to(torch.float64)
            shares = norms.new_tensor([self._shares[place] for place in present])
            where = torch.tensor([self._places[place] for place in present], device=squares.device)
            # Gradients may rest on the host.
            squares.index_add_(0, where, (norms.square() * shares).to(squares.device))
        for place, one, share in zip(self._places, self._held, self._shares, strict=True):
            if one.parameter in self._released:
                squares[place] += self._released[one.parameter].square() * share
        return self._world.sum(squares).sqrt()

    def _exact_norms(self) -> Tensor:
        """Norms to about nine digits, from sums of whole numbers, which no order of addition changes."""
        device = self._world.device
        largest = torch.zeros(len(self.names), dtype=torch.float64, device=device)
        counts = torch.zeros(len(self.names), dtype=torch.int64, device=device)
        gradients: dict[int, Tensor] = {}
        for place, one in zip(self._places, self._held, strict=True):
            counts[place] = math.prod(one.shape)
            if one.parameter.grad is not None and local(one.parameter.grad).numel():
                gradients[place] = local(one.parameter.grad).to(device, torch.float64)  # it may rest on the host
                largest[place] = gradients[place].abs().max().nan_to_num(nan=math.inf)
        if self._world.layout.world_size > 1:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        _, exponents = torch.frexp(largest)
        # So many bits for each square that the sum of all fits into 63.
        bits = 62 - torch.frexp(counts.clamp(min=1).to(torch.float64))[1]
        sums = torch.zeros(len(self.names), dtype=torch.int64, device=device)
        for place, gradient in gradients.items():
            if largest[place].isfinite():
                scaled = torch.ldexp(gradient, -exponents[place]).square()
                sums[place] = torch.ldexp(scaled, bits[place]).round().to(torch.int64).sum()
        self._world.sum(sums)
        copies = torch.ones_like(sums)
        copies[self._places] = torch.tensor(
            [one.placement.holders * one.copies for one in self._held], device=device
        )
        squares = torch.ldexp((sums // copies).to(torch.float64), 2 * exponents - bits)
        return torch.where(largest.isfinite(), squares.sqrt(), largest)

    def total_norm(self, norms: Tensor) -> float:
        """The global norm, from the norms of all parameters."""
        return float(norms.square().sum().sqrt())

    def by_module(self, norms: Tensor) -> dict[str, float]:
        """Norm by module: `embedding`, `blocks.0` …, `norm`, `head`."""
        squares: dict[str, float] = {}
        for name, square in zip(self.names, norms.square().tolist(), strict=True):
            parts = name.split(".")
            module = ".".join(parts[:2]) if parts[0] in ("blocks", "mtp") else parts[0]
            squares[module] = squares.get(module, 0.0) + square
        return {module: math.sqrt(square) for module, square in squares.items()}

    def clear(self) -> None:
        """Forget all gradients."""
        for one in self._held:
            one.parameter.grad = None
        self._released.clear()


def _gradient_of(held: Held) -> Tensor:
    gradient = held.parameter.grad
    assert gradient is not None
    return local(gradient)
