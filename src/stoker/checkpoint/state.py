"""The state of model and optimizer as one flat mapping of names to tensors.

torch's own `get_state_dict` and `set_state_dict` are not used, for two reasons. They begin fresh optimizer
state with an optimizer step and leave its step count at 1, so that saving before the first update would
change the run; and loading through them replaces the param groups' objects and settings by the saved ones,
so that whoever holds the old objects steers an optimizer that nobody uses.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

MODEL = "model."
OPTIMIZER = "optimizer."


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """`model.<name>` → tensor (a DTensor where sharded), sharing the model's memory.

    Names are those of the model without any wrapper. A tensor with two names appears under the first.
    """
    return {MODEL + name: tensor.detach() for name, tensor in _named_tensors(model).items()}


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """`optimizer.<parameter>.<state>` → tensor, sharing the optimizer's memory."""
    names = {id(tensor): name for name, tensor in _named_tensors(model).items()}
    found: dict[str, Tensor] = {}
    for parameter in _parameters(optimizer):
        for key, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor):
                raise TypeError(f"optimizer state {key!r} is a {type(value).__name__}, not a tensor")
            found[f"{OPTIMIZER}{names[id(parameter)]}.{key}"] = value.detach()
    return found


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    # state_dict rather than named_parameters: it puts weights that FSDP has gathered back into shards first.
    named: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            named[name.removeprefix("module.").replace("_orig_mod.", "")] = tensor
    return named


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
def non_finite(state: dict[str, Tensor]) -> list[str]:
    """Names of tensors whose part on this rank holds a NaN or Inf. Waits for the device once."""
    names, extremes = [], []
    for name, tensor in state.items():
        part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if part.numel() and part.is_floating_point():
            names.append(name)
            extremes.append(torch.stack(part.aminmax()).to(torch.float32))  # NaN shows in both
    by_device: dict[torch.device, list[int]] = {}
    for place, extreme in enumerate(extremes):
        by_device.setdefault(extreme.device, []).append(place)
    bad = []
    for places in by_device.values():
        finite = torch.stack([extremes[place] for place in places]).isfinite().all(dim=1).tolist()
        bad += [names[place] for place, good in zip(places, finite, strict=True) if not good]
    return bad
