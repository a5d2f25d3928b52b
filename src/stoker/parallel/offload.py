"""What a forward pass saves for backward rests in host memory, and is brought back a layer ahead of its use."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from stoker.model import Decoder

SMALLEST_BYTES = 64 * 2**10
"""A smaller tensor costs more to move than it is worth."""

_Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype, int]


class Resting(Protocol):
    """One tensor in host memory."""

    def fetch(self) -> None:
        """Begin to bring the tensor back; may be called again."""

    def here(self) -> Tensor:
        """The tensor, on its device."""


ToHost = Callable[[Tensor], Resting]
"""Begins to move a tensor to host memory."""


class Offload:
    """Moves what the forward passes of one part of the model save. On CUDA copies run beside the computation."""

    def __init__(self, part: nn.Module, device: torch.device, to_host: ToHost | None = None) -> None:
        """`to_host` is how tensors of `device` are moved; by default copied, on CUDA to pinned memory."""
        self.to_host = to_host or _mover(device)
        self.layers = 0
        self.going_on: Rest | None = None
        """The forward pass that is being computed."""
        self.weights: set[int] = set()
        """Storages of parameters, which stay where they are."""
        for module in part.modules():
            if next(module.parameters(recurse=False), None) is not None:
                # FSDP has put the gathered parameters in place by the time a module runs.
                module.register_forward_pre_hook(self._note_weights)
        if isinstance(part, Decoder):
            self.layers = len(part.blocks) + len(part.mtp)
            part.run_block = self._told_of_layers(part.run_block)

    def _told_of_layers(self, run_block: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Any) -> Tensor:
            if self.going_on is not None and torch.is_grad_enabled():
                self.going_on.begin_layer()
            return run_block(*args)

        return run

    def _note_weights(self, module: nn.Module, inputs: object) -> None:
        for parameter in module.parameters(recurse=False):
            self.weights.add(parameter.untyped_storage()._cdata)


class Rest:
    """What one forward pass has saved."""

    def __init__(self, offload: Offload, *, long: bool = True) -> None:
        """`long`: other passes come before its backward pass. Otherwise what is needed first stays on the device,
        which is what the last layer saves and what comes after it."""
        self._offload, self._long = offload, long
        self._saved: dict[_Key, tuple[StorageWeakRef, Resting]] = {}
        self._layers = [_Layer(None)]

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around the forward pass."""
        self._offload.going_on = self
        try:
            with saved_tensors_hooks(self._pack, _unpack):
                yield
        finally:
            self._offload.going_on = None
            self._saved.clear()

    def begin_layer(self) -> None:
        """What is saved from now on is needed in backward before what has been saved so far."""
        self._layers.append(_Layer(self._layers[-1]))

    def fetch(self) -> None:
        """Begin to bring back what is needed first."""
        self._layers[-1].fetch()

    @property
    def resting(self) -> list[Resting]:
        """What is still in host memory."""
        found = [reference() for layer in self._layers for reference in layer.resting]
        return [one for one in dict.fromkeys(found) if one is not None]

    def _pack(self, tensor: Tensor) -> Tensor | _Packed:
        storage = tensor.untyped_storage()
        expanded = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if expanded or tensor.nbytes < SMALLEST_BYTES or storage._cdata in self._offload.weights:
            return tensor
        if not self._long and len(self._layers) > self._offload.layers:
            return tensor
        # Several layers save the same input. A weak reference keeps the storage's address from being used again.
        key = (
            storage._cdata,
            int(tensor.storage_offset()),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
            tensor._version,
        )
        if key not in self._saved:
            self._saved[key] = StorageWeakRef(storage), self._offload.to_host(tensor)  # type: ignore[no-untyped-call]
        resting, layer = self._saved[key][1], self._layers[-1]
        layer.resting.append(weakref.ref(resting))
        return _Packed(resting, layer)


class _Layer:
    """What one layer has saved, in order."""

    def __init__(self, before: _Layer | None) -> None:
        self.resting: list[weakref.ref[Resting]] = []
        self._before, self._begun = before, False

    def fetch(self) -> None:
        """Begin to bring everything back, in the order in which backward needs it."""
        for reference in reversed(self.resting):
            resting = reference()
            if resting is not None:
                resting.fetch()

    def begin(self) -> None:
        """Backward has come to this layer: the layer before is next."""
        if not self._begun:
            self._begun = True
            self.fetch()
            if self._before is not None:
                self._before.fetch()


class _Packed:
    """Stands for a tensor in the graph."""

    def __init__(self, resting: Resting, layer: _Layer) -> None:
        self.resting, self.layer = resting, layer


def _unpack(packed: Tensor | _Packed) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    packed.layer.begin()
    return packed.resting.here()


def _mover(device: torch.device) -> ToHost:
    if device.type != "cuda":
        return _Copied
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return lambda tensor: _Pinned(tensor, stream)


class _Copied:
    """A tensor of a device whose memory is the host's."""

    def __init__(self, tensor: Tensor) -> None:
        self._host = torch.empty_like(tensor).copy_(tensor)

    def fetch(self) -> None:
        """It is there."""

    def here(self) -> Tensor:
        """The copy."""
        return self._host


class _Pinned:
    """A tensor of a CUDA device, copied beside the computation."""

    def __init__(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = tensor.device, stream
        self._back: Tensor | None = None
        self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._host.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)

    def fetch(self) -> None:
        """Begin to bring the tensor back."""
        if self._back is None:
            with torch.cuda.stream(self._stream):
                self._back = self._host.to(self._device, non_blocking=True)

    def here(self) -> Tensor:
        """The tensor, on its device."""
        self.fetch()
        assert self._back is not None
        now = torch.cuda.current_stream(self._device)
        now.wait_stream(self._stream)
        self._back.record_stream(now)
        return self._back
