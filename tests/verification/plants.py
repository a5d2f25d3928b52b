"""Faults that are put into layouts on purpose."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor

from stoker.parallel import collectives, tensor_parallel
from stoker.parallel.replicate import PartialGradients
from stoker.training.step import TrainingStep


@contextmanager
def louder_output(factor: float) -> Iterator[None]:
    """Row-parallel layers give too much."""
    finished = tensor_parallel.RowParallelLinear.finished

    def louder(self: tensor_parallel.RowParallelLinear, y: Tensor) -> Tensor:
        return finished(self, y) * factor

    with patch.object(tensor_parallel.RowParallelLinear, "finished", louder):
        yield


@contextmanager
def unsummed_gather() -> Iterator[None]:
    """The backward pass of a gather keeps this rank's gradient alone."""

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return collectives._cut(gradient, ctx.dim, ctx.group).contiguous(), None, None, None

    with patch.object(collectives._Gather, "backward", staticmethod(backward)):
        yield


@contextmanager
def unsummed_partial_gradients() -> Iterator[None]:
    """Gradients of what tensor-parallel ranks hold in common are left as each rank has them."""
    with patch.object(PartialGradients, "finish", lambda self: None):
        yield


@contextmanager
def forgotten_update(rank: int) -> Iterator[None]:
    """One rank of a run leaves the second update out."""
    import torch.distributed as dist

    update, calls = TrainingStep._update, [0]

    def forgetful(self: TrainingStep) -> float | None:
        calls[0] += 1
        if calls[0] == 2 and dist.is_initialized() and dist.get_rank() == rank:
            return None
        return update(self)

    with patch.object(TrainingStep, "_update", forgetful):
        yield


@contextmanager
def death(rank: int) -> Iterator[None]:
    """One rank dies."""
    import torch.distributed as dist

    def die(*_: Any, **__: Any) -> None:
        if dist.get_rank() == rank:
            os._exit(9)

    with patch.object(TrainingStep, "_update", die):
        yield


@contextmanager
def stall(seconds: float) -> Iterator[None]:
    """Rank 1 sleeps."""
    import torch.distributed as dist

    def sleep(*_: Any, **__: Any) -> None:
        if dist.get_rank() == 1:
            time.sleep(seconds)

    with patch.object(TrainingStep, "_update", sleep):
        yield
