"""One rank of a large cluster in one process, without its memory or its arithmetic.

The `fake` process group answers for all other ranks at once. Floats are fake tensors: they have shapes, but no
values. Integers (tokens, places, choices of experts) are real, so that all that is decided by them is decided as in
a real run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import flop_registry

from stoker.bench.traffic import Traffic
from stoker.model import Decoder
from stoker.parallel import Inputs, ParallelModel, World, apply
from stoker.parallel.apply import Settings
from stoker.parallel.parallel_model import Stage
from stoker.recipe import Recipe
from stoker.training.precision import autocast, parameter_dtype, reduction_dtype

CPU = torch.device("cpu")
_aten = torch.ops.aten
_PRODUCTS = {_aten.mm: _aten.mm, _aten.addmm: _aten.addmm, _aten.addmm_: _aten.addmm, _aten.bmm: _aten.bmm}
"""Products of matrices, and those whose operations torch knows how to count."""
_ATTENTION = {
    _aten._scaled_dot_product_flash_attention_for_cpu: 1,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: 2,
}
"""Kernels of attention, and how often they do forward's two products; what backward does again is not counted."""


@dataclass(frozen=True)
class Counted:
    """One step of one rank."""

    matmul_flops: int
    attention_flops: int
    collective_bytes: float
    message_bytes: float
    """Between pipeline stages."""


def counted_step(recipe: Recipe, vocabulary_size: int, rank: int, micro_batches: int) -> Counted:
    """Forward and backward of `rank`, through the same calls as in training; experts evenly loaded."""
    training = recipe.training
    with _fake_world(recipe, rank) as world, ExitStack() as modes:
        parallel, fake = _laid_out(recipe, vocabulary_size, world)
        batch = _sequences(recipe.micro_batch_size_at(1), training.sequence_length)
        counting = _Counting()
        for mode in (fake, counting):
            modes.enter_context(mode)
        parallel.forward_backward(
            [batch] * micro_batches,
            step=1,
            seed=0,
            loss_scale=1.0,
            autocast=partial(autocast, training.precision, CPU),
        )
    messages = sum(call.sent for call in counting.calls if call.kind == "send")
    return Counted(counting.products, counting.attention, counting.sent - messages, messages)


@contextmanager
def _fake_world(recipe: Recipe, rank: int) -> Iterator[World]:
    if recipe.layout.world_size == 1:
        yield World(rank=0, layout=recipe.layout, device=CPU)
        return
    dist.init_process_group("fake", rank=rank, world_size=recipe.layout.world_size, store=FakeStore())
    try:
        yield World(rank=rank, layout=recipe.layout, device=CPU)
    finally:
        dist.destroy_process_group()


def _laid_out(recipe: Recipe, vocabulary_size: int, world: World) -> tuple[ParallelModel, FakeTensorMode]:
    with torch.device("meta"):
        model = Decoder(recipe.model, vocabulary_size, recipe.training.sequence_length)
    model = model.to(parameter_dtype(recipe.training.precision))
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def materialise(stage: Stage, device: torch.device, seed: int) -> None:
        """Memory, as far as there is any; values would be lost on it."""
        with fake:
            stage.part.to_empty(device=device)

    settings = Settings(reduce=reduction_dtype(recipe.training))
    with mock.patch.object(importlib.import_module("stoker.parallel.apply"), "_materialise", materialise):
        parallel = apply(model, world, settings)
    parallel.train()
    for stage in parallel.stages.values():
        for mixture in stage.part.mixtures().values():
            router, settings_of = mixture.router, mixture.settings
            router._choose = partial(_even_choices, settings_of.experts, settings_of.experts_per_token)
    return parallel, fake


def _even_choices(experts: int, experts_per_token: int, scores_BLE: Tensor) -> Tensor:
    """int64 [B, L, k]: each expert as often as the others."""
    B, L, _ = scores_BLE.shape
    choices = torch.arange(B * L * experts_per_token) % experts
    assert len(choices) % experts == 0, "so few tokens cannot load all experts evenly"
    return choices.view(B, L, experts_per_token)


def _sequences(count: int, length: int) -> Inputs:
    tokens = torch.zeros(count, length, dtype=torch.int64)
    return Inputs(tokens, tokens, torch.arange(length).expand_as(tokens).contiguous(), None, torch.arange(count))


def _makes_integers(func: Any, args: Any, kwargs: Any) -> bool:
    dtype = kwargs.get("dtype")
    if dtype is None:
        return func._overloadpacket is _aten.arange and all(isinstance(bound, int) for bound in args)
    return not dtype.is_floating_point


class _Counting(Traffic):
    """Counts operations too; carries out those on nothing but integers. Stands over a `FakeTensorMode`.

    A product with a vector, as norms have, is none of matrices.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products = self.attention = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [*_tensors(args), *_tensors(tuple(kwargs.values()))]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            if func is _aten._local_scalar_dense.default:
                assert tensors[0].is_floating_point()
                return 1.0  # all that is asked is whether the gradient of the loss is one
        elif tensors or _makes_integers(func, args, kwargs):
            with unset_fake_temporarily():
                if func._schema.name == "c10d::alltoall_base_":
                    args[0].copy_(args[1])  # at even load every rank is told what it tells
                return super().__torch_dispatch__(func, types, args, kwargs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._count(func._overloadpacket, args, result)
        return result

    def _count(self, packet: Any, args: Any, result: Any) -> None:
        if packet in _PRODUCTS:
            self.products += flop_registry[_PRODUCTS[packet]](*args, out_val=result)
        elif packet in _ATTENTION:
            q, k, v = args[:3] if _ATTENTION[packet] == 1 else args[1:4]
            B, H, queries, width = q.shape
            pairs = B * H * queries * k.shape[2]
            self.attention += _ATTENTION[packet] * 2 * pairs * (width + v.shape[-1])


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
