"""Gradients that several ranks have parts of: summed in buckets while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stoker.parallel.placement import Held, local

Summed = tuple[nn.Parameter, dist.ProcessGroup]
"""A parameter, and the ranks that have parts of its gradient."""


class Bucket:
    """Parameters of one type whose gradients are summed over one group at once."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, reduce: torch.dtype) -> None:
        self.parameters = list(parameters)
        self._group, self._reduce = group, reduce
        self._ready: set[int] = set()
        self._work: tuple[dist.Work, Tensor] | None = None

    def add(self, parameter: Tensor) -> None:
        """Note that the gradient of `parameter` is complete on this rank."""
        self._ready.add(id(parameter))

    @property
    def full(self) -> bool:
        """Whether all gradients are complete on this rank."""
        return len(self._ready) == len(self.parameters)

    def start(self) -> None:
        """Start the sum. A rank that has no gradient of a parameter takes part with zeros."""
        flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in self.parameters]).to(self._reduce)
        work = dist.all_reduce(flat, group=self._group, async_op=True)
        assert work is not None
        self._work = work, flat

    def finish(self) -> None:
        """Wait for the sum and put it in place."""
        assert self._work is not None
        work, flat = self._work
        work.wait()
        place = 0
        for parameter in self.parameters:
            gradient = _gradient(parameter)
            gradient.copy_(flat[place : place + gradient.numel()].view_as(gradient))
            place += gradient.numel()
        self._work = None
        self._ready.clear()


class SummedGradients:
    """Sums the gradients of parameters that several ranks hold and train on different tokens.

    Buckets are filled from the last parameter to the first, the order in which backward reaches them, and
    summed in that order on every rank, each as soon as it is full. The result is a sum, not a mean: the
    loss is already divided by the global count of tokens.
    """

    def __init__(self, parameters: Iterable[Summed], bucket_bytes: float, reduce: torch.dtype | None) -> None:
        self._buckets = list(_buckets(list(parameters), bucket_bytes, reduce))
        self._summing, self._started = False, 0
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._hook(bucket))  # type: ignore[no-untyped-call]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Whose gradients are summed."""
        return [parameter for bucket in self._buckets for parameter in bucket.parameters]

    @contextmanager
    def during(self, last: bool) -> Iterator[None]:
        """Around a backward pass: after the `last` gradients are complete, and are summed while it goes on."""
        self._summing = last
        try:
            yield
        finally:
            self._summing = False

    def finish(self) -> None:
        """Sum what is not summed yet, and wait. Collective, once a step."""
        for bucket in self._buckets[self._started :]:
            bucket.start()
        for bucket in self._buckets:
            bucket.finish()
        self._started = 0

    def _hook(self, bucket: Bucket) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            if not self._summing:
                return
            bucket.add(parameter)
            while self._started < len(self._buckets) and self._buckets[self._started].full:
                self._buckets[self._started].start()
                self._started += 1

        return hook


class PartialGradients:
    """Sums, once a step, the gradients of parameters that ranks of one copy of the model hold in common."""

    def __init__(self, parameters: Iterable[Summed], twins: Iterable[tuple[Held, Held]] = ()) -> None:
        """`twins` are two places on this rank of one parameter."""
        self._buckets = list(_buckets(list(parameters), float("inf"), None))
        self._twins = [(one.parameter, other.parameter) for one, other in twins]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Whose gradients are summed."""
        twins = [parameter for pair in self._twins for parameter in pair]
        return twins + [parameter for bucket in self._buckets for parameter in bucket.parameters]

    def finish(self) -> None:
        """Sum, after all other sums. Collective, once a step."""
        for one, other in self._twins:
            total = _gradient(one).add_(_gradient(other))
            _gradient(other).copy_(total)
        for bucket in self._buckets:  # one after another: a parameter may be in several
            bucket.start()
            bucket.finish()


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return local(parameter.grad)


def _buckets(parameters: list[Summed], bucket_bytes: float, reduce: torch.dtype | None) -> Iterator[Bucket]:
    families: dict[tuple[dist.ProcessGroup, torch.dtype], list[nn.Parameter]] = {}
    for parameter, group in reversed(parameters):
        families.setdefault((group, parameter.dtype), []).append(parameter)
    for (group, dtype), members in families.items():
        wanted = reduce or torch.promote_types(dtype, torch.float32)
        filled: list[nn.Parameter] = []
        for parameter in members:
            filled.append(parameter)
            if sum(p.numel() for p in filled) * wanted.itemsize >= bucket_bytes:
                yield Bucket(filled, group, wanted)
                filled = []
        if filled:
            yield Bucket(filled, group, wanted)
