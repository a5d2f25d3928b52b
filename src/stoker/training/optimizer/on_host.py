"""Updates that the processor makes, in host memory, where the optimizer's state stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class _Copy(NamedTuple):
    tensor: Tensor
    arrived: torch.cuda.Event | None


class OnHost:
    """Takes weights and gradients to host memory and brings the weights back, one beside the update of another."""

    def __init__(self, device: torch.device) -> None:
        """`device` is where weights and gradients are."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def each(self, weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Copies of each weight and its gradient in host memory; what becomes of the former is brought back.

        All copies are begun at once, so that the link is never idle: the host needs room for them.
        """
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        copies = [
            (self._taken(weight), self._taken(gradient))
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        for weight, (own, gradient) in zip(weights, copies, strict=True):
            if gradient.arrived is not None:
                gradient.arrived.synchronize()  # the weight's was begun before
            yield own.tensor, gradient.tensor
            weight.copy_(own.tensor, non_blocking=True)

    def _taken(self, tensor: Tensor) -> _Copy:
        if self._stream is None:
            return _Copy(tensor.clone(), None)
        copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
        with torch.cuda.stream(self._stream):
            copy.copy_(tensor, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        tensor.record_stream(self._stream)
        return _Copy(copy, arrived)


def at_rest(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """`state` in host memory, where it may have been loaded elsewhere."""
    return {name: value if value.device.type == "cpu" else value.cpu() for name, value in state.items()}


def host_of(weights: Sequence[Tensor], offload: bool) -> OnHost | None:
    """What is wanted for weights on an accelerator; None where memory is the host's anyway."""
    device = weights[0].device if weights else torch.device("cpu")
    return OnHost(device) if offload and device.type != "cpu" else None
