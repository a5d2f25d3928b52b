"""Tensors that backward computes again from smaller ones instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def forgetting(
    tensors: Sequence[Tensor], again: Callable[..., tuple[Tensor, ...]], kept: Sequence[Tensor]
) -> Iterator[None]:
    """Let what runs inside keep, in place of any of `tensors` or a view of one, the `kept` only.

    `again(*kept)` must give tensors of the same values and layout; it is called in backward, once for all
    of them, without gradients. Other saved tensors go the way that they went outside, so that this
    nests in an activation checkpoint.
    """
    if not torch.is_grad_enabled():
        yield
        return
    outer = torch._C._autograd._top_saved_tensors_default_hooks(True)
    # Detached: a result that is kept as itself would keep its graph, which keeps the result.
    pack, unpack = outer if outer is not None else (torch.detach, _itself)
    forgotten = _Forgotten(again, [pack(x.detach()) for x in kept], unpack)
    places = {x.untyped_storage()._cdata: number for number, x in enumerate(tensors) if x.numel()}

    def keep(x: Tensor) -> Any:
        number = places.get(x.untyped_storage()._cdata) if x.layout == torch.strided else None
        if number is None:
            return pack(x)
        forgotten.uses += 1
        return _View(forgotten, number, tuple(x.shape), x.stride(), int(x.storage_offset()))

    def find(held: Any) -> Tensor:
        return held.computed() if isinstance(held, _View) else unpack(held)

    with torch.autograd.graph.saved_tensors_hooks(keep, find):
        yield


class _Forgotten:
    """Computes all of them again when the first is asked for, and lets go of them after the last."""

    def __init__(self, again: Callable[..., tuple[Tensor, ...]], kept: list[Any], unpack: Callable[[Any], Tensor]):
        self._again, self._kept, self._unpack = again, kept, unpack
        self.uses = 0
        self._left = 0
        self._tensors: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def tensor(self, number: int) -> Tensor:
        if not self._left:
            self._tensors, self._left = self._again(*map(self._unpack, self._kept)), self.uses
        found = self._tensors[number]
        self._left -= 1
        if not self._left:
            self._tensors = ()
        return found


class _View:
    def __init__(
        self, forgotten: _Forgotten, number: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> None:
        self._forgotten, self._number, self._layout = forgotten, number, (shape, stride, offset)

    def computed(self) -> Tensor:
        return self._forgotten.tensor(self._number).as_strided(*self._layout)


def _itself(x: Any) -> Any:
    return x
