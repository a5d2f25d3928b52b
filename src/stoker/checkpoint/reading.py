"""Reads what some memory needs from files of tensors: nothing else, nothing twice, in long stretches."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stoker.checkpoint.direct import BLOCK
from stoker.checkpoint.parts import Piece
from stoker.checkpoint.state import Box

Bytes = npt.NDArray[np.uint8]
_LONGEST = 8 * 2**20
"""Most bytes of one read into memory that is not yet their place."""
_SHORTEST = 4096
"""Where elements that lie next to each other are fewer bytes, what is between them is read too."""


_PAST_CACHE = 2**20
"""Bytes of a stretch that is worth reads of its own from the disk."""
_BLOCKS = 4 * 2**20
"""Most bytes of one such read."""
_DIRECT = getattr(os, "O_DIRECT", 0)
_ONLY_CACHED = getattr(os, "RWF_NOWAIT", 0)
"""Without it, where a system does not know it, a byte is read and every file seems cached."""
_own = threading.local()


class Source(Protocol):
    """A file that is read."""

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` with what is at `offset`. Raises `OSError` when there is less."""

    def close(self) -> None:
        """Let go of it."""


class LocalFile:
    """A file of this machine. Any number of threads may read it at once."""

    def __init__(self, path: str, *, past_cache: bool = False) -> None:
        """`past_cache` reads long stretches from the disk, unless the system has the file in its cache already."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._direct = _opened_directly(path) if past_cache and not _is_cached(self._descriptor) else None

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` with what is at `offset`."""
        if self._direct is not None and len(memory) >= _PAST_CACHE:
            got = _read_directly(self._direct, np.frombuffer(memory, np.uint8), offset)
            memory, offset = memory[got:], offset + got
        while memory:
            got = os.preadv(self._descriptor, [memory], offset)
            if not got:
                raise OSError(f"{self._path} ends before byte {offset + len(memory)}")
            memory, offset = memory[got:], offset + got

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)
        if self._direct is not None:
            os.close(self._direct)


def _is_cached(descriptor: int) -> bool:
    """Whether the system has the middle of a file in memory; also when it does not say.

    What has been read last leaves more than was asked for in the cache: at the beginning that says nothing.
    """
    try:
        return os.preadv(descriptor, [bytearray(1)], os.fstat(descriptor).st_size // 2, _ONLY_CACHED) == 1
    except BlockingIOError:
        return False
    except OSError:
        return True


def _opened_directly(path: str) -> int | None:
    """For reading past the cache; None where the system, or the file's, has no such way."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | _DIRECT) if _DIRECT else None
    except OSError:
        return None


def _read_directly(descriptor: int, memory: Bytes, offset: int) -> int:
    """Fill `memory` with what is at `offset`, as far as it can be had so; returns how many bytes.

    The disk gives whole blocks, to memory of this thread that begins where a block may.
    """
    if not hasattr(_own, "blocks"):
        _own.blocks = np.frombuffer(mmap.mmap(-1, _BLOCKS), np.uint8)
    blocks: Bytes = _own.blocks
    done = 0
    while done < len(memory):
        first = (offset + done) // BLOCK * BLOCK
        skipped = offset + done - first
        wanted = min(_BLOCKS, -(-(skipped + len(memory) - done) // BLOCK) * BLOCK)
        try:
            got = os.preadv(descriptor, [blocks[:wanted].data], first)
        except OSError:  # through the cache the file system may give it, or say why not
            return done
        size = min(got - skipped, len(memory) - done)
        if size <= 0:
            return done
        np.copyto(memory[done : done + size], blocks[skipped : skipped + size])  # releases the interpreter
        done += size
    return done


class Stored(Protocol):
    """A piece in a file."""

    @property
    def piece(self) -> Piece:
        """What it is."""

    @property
    def offset(self) -> int:
        """Where it begins, in bytes."""

    @property
    def source(self) -> Source:
        """The file."""


def overlap(one: Box, other: Box) -> Box | None:
    """What two boxes of a tensor have in common; None when that is nothing."""
    found = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return None if any(first >= last for first, last in found) else found


def fill(memory: Bytes, wanted: Piece, stored: Sequence[Stored]) -> int:
    """Fill `memory` with the elements of `wanted` from the pieces that hold some; returns how many came."""
    shape = wanted.local_shape
    elements = memory.view(f"u{wanted.torch_dtype.itemsize}").reshape(shape)
    count = 0
    for one in stored:
        common = overlap(wanted.box, one.piece.box)
        if common is not None:
            _copy(elements, wanted.box, one, common)
            count += int(np.prod([last - first for first, last in common], dtype=np.int64))
    return count


def _copy(elements: npt.NDArray[Any], box: Box, stored: Stored, common: Box) -> None:
    size = elements.itemsize
    for block in _blocks(stored.piece, common):
        offset = stored.offset + size * _place(block, stored.piece)
        part = overlap(block, common)
        assert part is not None
        place = elements[_slices(part, box)]
        if block == part and place.flags.c_contiguous:
            stored.source.read_into(place.reshape(-1).view(np.uint8).data, offset)
            continue
        scratch = np.empty([last - first for first, last in block], dtype=elements.dtype)
        stored.source.read_into(scratch.reshape(-1).view(np.uint8).data, offset)
        place[...] = scratch[_slices(part, block)]


def _blocks(piece: Piece, common: Box) -> Iterator[Box]:
    """Boxes that cover `common` and lie in one stretch of the file each."""
    box, size = piece.box, piece.torch_dtype.itemsize
    if not box:
        yield ()
        return
    dim = len(box) - 1
    while dim and common[dim] == box[dim]:
        dim -= 1
    while dim and _bytes_from(dim, common, box, size) < _SHORTEST:
        dim -= 1
    row = _bytes_from(dim, common, box, size) // (common[dim][1] - common[dim][0])
    step = max(1, _LONGEST // max(row, 1)) if box[dim + 1 :] != common[dim + 1 :] else common[dim][1]
    first, last = common[dim]
    for outer in product(*(range(*bounds) for bounds in common[:dim])):
        for start in range(first, last, step):
            bounds = (start, min(start + step, last))
            yield (*((at, at + 1) for at in outer), bounds, *box[dim + 1 :])


def _bytes_from(dim: int, common: Box, box: Box, size: int) -> int:
    """Bytes of one stretch that has the rows of `common` on `dim` and everything below."""
    inner = np.prod([last - first for first, last in box[dim + 1 :]], dtype=np.int64)
    return int(inner) * (common[dim][1] - common[dim][0]) * size


def _place(block: Box, piece: Piece) -> int:
    """Elements before the first of `block` in the file's piece."""
    place = 0
    for (first, _), (start, end) in zip(block, piece.box, strict=True):
        place = place * (end - start) + first - start
    return place


def _slices(part: Box, box: Box) -> tuple[Any, ...]:
    """Where `part` is in memory that holds `box`; a view of it even when there are no dimensions."""
    within = (slice(first - start, last - start) for (first, last), (start, _) in zip(part, box, strict=True))
    return (*within, ...)


def by_tensor(stored: Sequence[Stored]) -> Mapping[str, list[Stored]]:
    """Pieces by the tensor they are of."""
    found: dict[str, list[Stored]] = {}
    for one in stored:
        found.setdefault(one.piece.name, []).append(one)
    return found
