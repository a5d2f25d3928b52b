"""From a recipe to an optimizer: which parameters are decayed, which learning rate each group has."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stoker.parallel.placement import Held, local
from stoker.recipe import Adafactor, AdamW, Lion, Muon, Training
from stoker.training.optimizer.adafactor import AdafactorOptimizer
from stoker.training.optimizer.adamw import AdamWOptimizer
from stoker.training.optimizer.lion import LionOptimizer
from stoker.training.optimizer.muon import MuonOptimizer
from stoker.training.optimizer.on_host import host_of

_log = logging.getLogger(__name__)
Group = dict[str, Any]


def build_optimizer(held: Sequence[Held], training: Training) -> torch.optim.Optimizer:
    """The optimizer of `training` over the parameters that this rank holds parts of.

    Weight decay acts on matrices of the blocks and on the head: not on norms, biases and embeddings (a
    tied head is an embedding) unless `decay_all_parameters`. Each param group keeps its learning rate
    before the schedule as `base_learning_rate`; see `set_learning_rate`.
    """
    held = [one for one in held if one.is_parameter]
    _require_dtype(held, training)
    settings = training.optimizer
    by_parameter: dict[Tensor, Held] = {one.parameter: one for one in held}
    # The fused kernel rounds elements at the end of a tensor differently, so that shards would matter.
    fused = training.deterministic == "same_layout"
    host = host_of([local(one.parameter) for one in held], training.memory.offload_optimizer)
    match settings:
        case AdamW():
            groups = _groups(held, training, settings.learning_rate, settings.weight_decay)
            return AdamWOptimizer(groups, settings, fused, host)
        case Muon():
            return MuonOptimizer(_muon_groups(held, training, settings), by_parameter, settings, fused)
        case Adafactor():
            groups = _groups(held, training, settings.learning_rate, settings.weight_decay)
            return AdafactorOptimizer(groups, by_parameter, settings)
        case Lion():
            groups = _groups(held, training, settings.learning_rate, settings.weight_decay)
            return LionOptimizer(groups, settings, host)


def set_learning_rate(optimizer: torch.optim.Optimizer, factor: float) -> float:
    """Set every group's learning rate to `factor` times its own base; returns that of the first group.

    With Muon the first group are the matrices of the blocks.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["base_learning_rate"] * factor
    first: float = optimizer.param_groups[0]["lr"]
    return first


def _is_block_matrix(name: str, parameter: nn.Parameter) -> bool:
    return name.startswith(("blocks.", "mtp.")) and parameter.ndim >= 2


def _decays(name: str, parameter: nn.Parameter, training: Training) -> bool:
    return training.decay_all_parameters or (parameter.ndim >= 2 and name.startswith(("blocks.", "mtp.", "head.")))


def _groups(
    held: Sequence[Held],
    training: Training,
    learning_rate: float,
    weight_decay: float,
    without: Collection[str] = (),
) -> list[Group]:
    """One group that decays and one that does not; empty ones are left out."""
    named = [(one.name, one.parameter) for one in held if one.name not in without]
    groups = []
    for decays in (True, False):
        members = [parameter for name, parameter in named if _decays(name, parameter, training) == decays]
        if members:
            groups.append(_group(members, learning_rate, weight_decay if decays else 0.0))
    return groups


def _muon_groups(held: Sequence[Held], training: Training, settings: Muon) -> list[Group]:
    matrices = {one.name: one.parameter for one in held if _is_block_matrix(one.name, one.parameter)}
    groups = [_group(list(matrices.values()), settings.learning_rate, settings.weight_decay)] if matrices else []
    rest = _groups(held, training, settings.adamw_learning_rate, settings.weight_decay, set(matrices))
    return [{**group, "orthogonalise": True} for group in groups] + [
        {**group, "orthogonalise": False} for group in rest
    ]


def _group(parameters: list[nn.Parameter], learning_rate: float, weight_decay: float) -> Group:
    return {
        "params": parameters,
        "lr": learning_rate,
        "base_learning_rate": learning_rate,
        "weight_decay": weight_decay,
    }


def _require_dtype(held: Sequence[Held], training: Training) -> None:
    """Weights are never kept in 16 bits by accident."""
    pure = training.precision == "pure_bf16"
    for name, parameter in ((one.name, one.parameter) for one in held):
        if pure != (parameter.dtype == torch.bfloat16) or parameter.dtype == torch.float16:
            wanted = "bfloat16" if pure else "float32"
            raise ValueError(
                f"{name} is {parameter.dtype}; precision {training.precision} keeps weights in {wanted}"
            )
    if pure and (not dist.is_initialized() or dist.get_rank() == 0):
        _log.warning(
            "precision pure_bf16 keeps weights and optimizer state in 16 bits: updates smaller than about 1/256 of "
            "a weight are lost. The share of weights that each step left unmoved is recorded as dead_updates; "
            "precision bf16 keeps fp32 weights and loses none."
        )
