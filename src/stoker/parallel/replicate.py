"""Gradients that several ranks have parts of: summed in buckets while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from stoker.parallel.placement import Held, local
from stoker.parallel.waiting import complete

_ALIGNMENT = 256
"""Bytes: what vectorised kernels and links like gradients to begin at."""
Summed = tuple[nn.Parameter, dist.ProcessGroup]
"""A parameter, and the ranks that have parts of its gradient."""


class Bucket:
    """Parameters of one type whose gradients are summed over one group at once.

    Where they are summed in their own type, gradients lie in the bucket: one buffer, in which each begins at
    a multiple of `_ALIGNMENT` bytes, and which goes when they do.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, reduce: torch.dtype) -> None:
        self.parameters = list(parameters)
        self._group, self._reduce = group, reduce
        self._ready: set[int] = set()
        self._flat: Tensor | None = None
        self._parts: dict[int, Tensor] = {}
        self._work: dist.Work | None = None

    def take(self, parameter: nn.Parameter) -> None:
        """Move the gradient of `parameter` into the bucket, as it is so far."""
        if self._lies_here(parameter):
            part, gradient = self._part(parameter), _gradient(parameter)
            if gradient is not part:
                part.copy_(gradient)
                parameter.grad = part

    def add(self, parameter: Tensor) -> None:
        """Note that the gradient of `parameter` is complete on this rank."""
        self._ready.add(id(parameter))

    @property
    def full(self) -> bool:
        """Whether all gradients are complete on this rank."""
        return len(self._ready) == len(self.parameters)

    def start(self) -> None:
        """Start the sum. A rank that has no gradient of a parameter takes part with zeros."""
        for parameter in self.parameters:
            if self._lies_here(parameter):
                self.take(parameter)
            else:
                self._part(parameter).copy_(_gradient(parameter))
        assert self._flat is not None
        self._work = dist.all_reduce(self._flat, group=self._group, async_op=True)

    def finish(self) -> None:
        """Wait for the sum and put it in place."""
        assert self._work is not None
        complete(self._work)
        for parameter in self.parameters:
            if not self._lies_here(parameter):
                _gradient(parameter).copy_(self._part(parameter))
        self._work = self._flat = None
        self._parts.clear()
        self._ready.clear()

    def _lies_here(self, parameter: nn.Parameter) -> bool:
        """Whether the gradient itself is in the bucket, and no copy of it; FSDP's are where it put them."""
        return parameter.dtype == self._reduce and not isinstance(parameter, DTensor)

    def _part(self, parameter: nn.Parameter) -> Tensor:
        """Where in the bucket the gradient of `parameter` is."""
        if self._flat is None:
            places, size = [], 0
            for one in self.parameters:
                places.append(size)
                size += -(-local(one).numel() * self._reduce.itemsize // _ALIGNMENT) * _ALIGNMENT
            self._flat = torch.zeros(size // self._reduce.itemsize, dtype=self._reduce, device=parameter.device)
            for one, place in zip(self.parameters, places, strict=True):
                first = place // self._reduce.itemsize
                self._parts[id(one)] = self._flat[first : first + local(one).numel()].view_as(local(one))
        return self._parts[id(parameter)]


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
            assert isinstance(parameter, nn.Parameter)
            bucket.take(parameter)
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
