"""The state of model and optimizer as one flat mapping of names to the parts of tensors this rank holds.

torch's own `get_state_dict` and `set_state_dict` are not used, for two reasons. They begin fresh optimizer
state with an optimizer step and leave its step count at 1, so that saving before the first update would
change the run; and loading through them replaces the param groups' objects and settings by the saved ones,
so that whoever holds the old objects steers an optimizer that nobody uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

MODEL = "model."
OPTIMIZER = "optimizer."
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Part:
    """The elements of one whole tensor that this rank holds."""

    tensor: Tensor
    """They, sharing the memory of model or optimizer."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    box: Box
    """First and last + 1 of the part on each dimension of the whole."""


class HeldTensor(Protocol):
    """A parameter or buffer of the model, of which this rank holds a part."""

    @property
    def name(self) -> str:
        """In the whole model."""

    @property
    def tensor(self) -> Tensor:
        """The object that model and optimizer know it by."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""

    @property
    def box(self) -> Box:
        """The part."""


def model_state(held: Iterable[HeldTensor]) -> dict[str, Part]:
    """`model.<name>` → the part of it. What a rank holds twice appears once."""
    return {MODEL + one.name: Part(_local(one.tensor), one.shape, one.box) for one in held}


def optimizer_state(held: Iterable[HeldTensor], optimizer: Optimizer) -> dict[str, Part]:
    """`optimizer.<parameter>.<state>` → the part of it.

    State is of the parameter's shape, a single number, or a matrix's `row` (without its last dimension)
    or `column` (without the one before).
    """
    found: dict[str, Part] = {}
    for one in held:
        for key, value in optimizer.state.get(one.tensor, {}).items():
            if not isinstance(value, Tensor):
                raise TypeError(f"optimizer state {key!r} is a {type(value).__name__}, not a tensor")
            found[f"{OPTIMIZER}{one.name}.{key}"] = _part_of_state(key, _local(value), one)
    return found


def _part_of_state(key: str, value: Tensor, parameter: HeldTensor) -> Part:
    if value.ndim == 0:
        return Part(value, (), ())
    shape, box = parameter.shape, parameter.box
    if key == "row":
        shape, box = shape[:-1], box[:-1]
    elif key == "column":
        shape, box = (*shape[:-2], shape[-1]), (*box[:-2], box[-1])
    return Part(value, shape, box)


def _local(tensor: Tensor) -> Tensor:
    part: Tensor = tensor.detach()
    return part.to_local() if isinstance(part, DTensor) else part


@torch.no_grad()
def allocate_state(optimizer: Optimizer) -> list[Tensor]:
    """Give every parameter that has no optimizer state yet the state it would begin with.

    A step with zero gradients at learning rate zero allocates it and moves no weight; it is then set to
    zeros, which is what fresh state is in every optimizer of Stoker, its step count included. Collective
    when parameters are sharded. Returns the parameters whose state is new.
    """
    parameters = _parameters(optimizer)
    fresh = [parameter for parameter in parameters if not optimizer.state.get(parameter)]
    if not fresh:
        return []
    gradients = [parameter.grad for parameter in parameters]
    learning_rates = [group["lr"] for group in optimizer.param_groups]
    is_fresh = {id(parameter) for parameter in fresh}
    try:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if id(parameter) in is_fresh else None
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for group, learning_rate in zip(optimizer.param_groups, learning_rates, strict=True):
            group["lr"] = learning_rate
    for parameter in fresh:
        for value in optimizer.state[parameter].values():
            value.zero_()
    return fresh


def forget_state(optimizer: Optimizer, parameters: Iterable[Tensor]) -> None:
    """Take back what `allocate_state` gave."""
    for parameter in parameters:
        optimizer.state.pop(parameter, None)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@torch.no_grad()
def non_finite(state: dict[str, Part]) -> list[str]:
    """Names of tensors whose part on this rank holds a NaN or Inf. Waits for the device once."""
    names, extremes = [], []
    for name, part in state.items():
        if part.tensor.numel() and part.tensor.is_floating_point():
            names.append(name)
            extremes.append(torch.stack(part.tensor.aminmax()).to(torch.float32))  # NaN shows in both
    by_device: dict[torch.device, list[int]] = {}
    for place, extreme in enumerate(extremes):
        by_device.setdefault(extreme.device, []).append(place)
    bad = []
    for places in by_device.values():
        finite = torch.stack([extremes[place] for place in places]).isfinite().all(dim=1).tolist()
        bad += [names[place] for place, good in zip(places, finite, strict=True) if not good]
    return bad


def whole_parts(tensors: dict[str, Tensor]) -> dict[str, Part]:
    """Tensors that are whole on this rank."""
    return {name: Part(t, tuple(t.shape), tuple((0, size) for size in t.shape)) for name, t in tensors.items()}
