"""What the ranks hold of each tensor, cut into pieces that are written, read and digested by themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.checkpoint.state import Box, Part

LARGEST_PIECE_BYTES = 64 * 2**20
"""A part that is larger is cut along its first dimension: ranks, threads and reads share the work by pieces."""


class Piece(NamedTuple):
    """Some elements of a whole tensor, next to each other in the memory of whoever holds them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    box: Box

    @property
    def torch_dtype(self) -> torch.dtype:
        """As torch's type."""
        return torch_dtype(self.dtype)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Of the piece."""
        return tuple(last - first for first, last in self.box)

    @property
    def bytes(self) -> int:
        """Of the piece."""
        return math.prod(self.local_shape) * self.torch_dtype.itemsize

    @property
    def key(self) -> tuple[str, Box]:
        """The same for the same elements, whoever holds them."""
        return self.name, self.box


def torch_dtype(name: str) -> torch.dtype:
    """The type that `str` calls `torch.<name>`."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no number format {name!r}")
    return dtype


def pieces_of(state: Mapping[str, Part]) -> list[tuple[Piece, Tensor]]:
    """This rank's pieces and their elements, in order of name and place. Parts without elements have none.

    The same part is cut in the same way on every rank that holds it.
    """
    found = []
    for name, part in sorted(state.items()):
        dtype = str(part.tensor.dtype).removeprefix("torch.")
        if not part.tensor.numel():
            continue
        for dim, first, last in _cuts(part):
            start = part.box[dim][0] if part.box else 0
            bounds = (start + first, start + last)
            box = (*part.box[:dim], bounds, *part.box[dim + 1 :]) if part.box else ()
            elements = part.tensor.narrow(dim, first, last - first) if part.box else part.tensor
            found.append((Piece(name, dtype, tuple(part.shape), box), elements))
    return found


def _cuts(part: Part) -> list[tuple[int, int, int]]:
    """The dimension along which a part is cut, the first of more than one element, and the bounds of its pieces."""
    sizes = part.tensor.shape
    dim = next((dim for dim, size in enumerate(sizes) if size > 1), 0)
    length = sizes[dim] if len(sizes) else 1
    number = min(length, -(-part.tensor.nbytes // LARGEST_PIECE_BYTES))
    step = -(-length // number)
    return [(dim, first, min(first + step, length)) for first in range(0, length, step)]


def share_out(held: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    """Which of the pieces that each rank holds it writes: every piece once, as evenly by bytes as they allow."""
    holders: dict[tuple[str, Box], list[int]] = {}
    pieces: dict[tuple[str, Box], Piece] = {}
    for rank, own in enumerate(held):
        for piece in own:
            holders.setdefault(piece.key, []).append(rank)
            pieces[piece.key] = piece
    loads, shares = [0] * len(held), [set[tuple[str, Box]]() for _ in held]
    # Who has no choice first, and large ones before small ones: the small ones even out what is left.
    for key in sorted(pieces, key=lambda key: (len(holders[key]), -pieces[key].bytes, key)):
        rank = min(holders[key], key=lambda rank: (loads[rank], rank))
        loads[rank] += pieces[key].bytes
        shares[rank].add(key)
    return [[piece for piece in own if piece.key in share] for own, share in zip(held, shares, strict=True)]


def first_holders(held: Sequence[Sequence[Piece]], rank: int) -> set[tuple[str, Box]]:
    """The pieces of which `rank` is the first of those that hold them."""
    earlier = {piece.key for own in held[:rank] for piece in own}
    return {piece.key for piece in held[rank]} - earlier
