"""Activations rest in host memory between a forward pass and a backward pass far away."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

SMALLEST_BYTES = 64 * 2**10
"""A smaller tensor costs more to move than it is worth."""

_Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype, int]


class Offload:
    """Moves what one stage saves for backward. On CUDA copies run beside the computation."""

    def __init__(self, stage: nn.Module, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.weights: set[int] = set()
        """Storages of parameters, which stay where they are."""
        for module in stage.modules():
            if next(module.parameters(recurse=False), None) is not None:
                # FSDP has put the gathered parameters in place by the time a module runs.
                module.register_forward_pre_hook(self._note_weights)

    def _note_weights(self, module: nn.Module, inputs: object) -> None:
        for parameter in module.parameters(recurse=False):
            self.weights.add(parameter.untyped_storage()._cdata)


class Rest:
    """What one forward pass has saved."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._saved: dict[_Key, tuple[StorageWeakRef, _Resting]] = {}
        self._resting: list[weakref.ref[_Resting]] = []

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around the forward pass."""
        with saved_tensors_hooks(self._pack, _unpack):
            yield
        self._saved.clear()

    def fetch(self) -> None:
        """Begin to bring everything back, in the order in which backward needs it."""
        for reference in reversed(self._resting):
            resting = reference()
            if resting is not None:
                resting.fetch()

    def _pack(self, tensor: Tensor) -> Tensor | _Resting:
        storage = tensor.untyped_storage()
        expanded = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if expanded or tensor.nbytes < SMALLEST_BYTES or storage._cdata in self._offload.weights:
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
            resting = _Resting(tensor, self._offload.stream)
            self._saved[key] = StorageWeakRef(storage), resting  # type: ignore[no-untyped-call]
            self._resting.append(weakref.ref(resting))
        return self._saved[key][1]


def _unpack(packed: Tensor | _Resting) -> Tensor:
    return packed if isinstance(packed, Tensor) else packed.here()


class _Resting:
    """One tensor in host memory."""

    def __init__(self, tensor: Tensor, stream: torch.cuda.Stream | None) -> None:
        self._device, self._stream = tensor.device, stream
        self._back: Tensor | None = None
        if stream is None:
            self._host = torch.empty_like(tensor).copy_(tensor)
            return
        self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._host.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)

    def fetch(self) -> None:
        """Begin to bring the tensor back."""
        if self._back is not None or self._stream is None:
            return
        with torch.cuda.stream(self._stream):
            self._back = self._host.to(self._device, non_blocking=True)

    def here(self) -> Tensor:
        """The tensor, on its device."""
        if self._stream is None:
            return self._host
        self.fetch()
        assert self._back is not None
        now = torch.cuda.current_stream(self._device)
        now.wait_stream(self._stream)
        self._back.record_stream(now)
        return self._back
