"""Sizes of weights and updates by module, from the parts that ranks hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.parallel.parallel_model import ParallelModel
from stoker.parallel.placement import local


class ModuleSums(NamedTuple):
    """Of one module, over all ranks."""

    parameters: int
    weight_square: float
    """Of the norm of its weights."""
    gradient_square: float
    update_square: float | None
    """None where there was no update, or it was not measured."""


@torch.no_grad()
def module_sums(
    model: ParallelModel, gradient_norms: Tensor, updates: Mapping[str, float] | None
) -> dict[str, ModuleSums]:
    """By module: see `modules_of`. Collective.

    `gradient_norms` are those of all parameters, as `Gradients` gives them; `updates` are this rank's shares of the
    squares of the norms of its parameters' updates, on every rank or on none.
    """
    names, device = model.gradients.names, model.world.device
    sums = torch.zeros(len(names), 3, dtype=torch.float64, device=device)
    held = [one for one in model.held if one.is_parameter and local(one.parameter).numel()]
    if held:
        weights = [local(one.parameter.detach()) for one in held]
        wide = torch.float32 if weights[0].dtype.itemsize < 4 else None
        squares = torch.stack(torch._foreach_norm(weights, 2, dtype=wide)).to(device, torch.float64).square()
        share = [1.0 / (one.placement.holders * one.copies) for one in held]
        moved = [0.0 if updates is None else updates[one.name] for one in held]
        numbers = torch.tensor([weight.numel() for weight in weights], dtype=torch.float64)
        shares = torch.tensor(share, dtype=torch.float64)
        own = torch.stack(
            [
                (numbers * shares).to(device),
                squares * shares.to(device),
                torch.tensor(moved, dtype=torch.float64).to(device),
            ],
            dim=1,
        )
        places = {name: place for place, name in enumerate(names)}
        sums.index_add_(0, torch.tensor([places[one.name] for one in held], device=device), own.to(torch.float64))
    model.world.sum(sums)
    return _by_module(names, sums.tolist(), gradient_norms.square().tolist(), measured=updates is not None)


def modules_of(name: str) -> Iterator[str]:
    """The modules that the parameter `name` counts for: `blocks.3` and `blocks.3.attention`, `mtp.0`, `head` …

    Norms before and after attention count for it, and those of the feed-forward likewise.
    """
    parts = name.split(".")
    if parts[0] not in ("blocks", "mtp"):
        yield parts[0]
        return
    yield ".".join(parts[:2])
    if parts[0] == "blocks":
        yield f"{parts[0]}.{parts[1]}.{'attention' if parts[2].startswith('attention') else 'feed_forward'}"


def _by_module(
    names: Sequence[str], sums: list[list[float]], gradients: list[float], measured: bool
) -> dict[str, ModuleSums]:
    totals: dict[str, list[float]] = {}
    for name, own, gradient in zip(names, sums, gradients, strict=True):
        for module in modules_of(name):
            total = totals.setdefault(module, [0.0] * 4)
            for place, value in enumerate((*own, gradient)):
                total[place] += value
    return {
        module: ModuleSums(round(count), weight, gradient, update if measured else None)
        for module, (count, weight, update, gradient) in totals.items()
    }
