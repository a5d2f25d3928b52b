"""Writes a file past the system's cache: straight from memory to the disk, where both allow it.

What goes through the cache is copied there first, and the disk waits for that, or for a flush at the end. Blocks of
memory and file must begin at multiples of 4096 bytes: what does not is gathered in memory that does, and is written
while more is gathered. The end, which is not a whole block, and everything where a file system knows no direct
writes goes through the cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
BLOCK = 4096
"""Bytes; a multiple of what any disk asks for."""
_GATHERED = 4 * 2**20
"""Bytes of each of the two buffers."""
_LONGEST = 32 * 2**20
"""Most bytes of one write."""
_STRAIGHT = 2**20
"""Fewer bytes than this are gathered, though they lie as the disk wants them."""
_DIRECT = getattr(os, "O_DIRECT", 0)
_NOT_HERE = (errno.EINVAL, errno.EOPNOTSUPP)


class DirectFile:
    """A file that is written from beginning to end. `write` returns when the content may change."""

    def __init__(self, descriptor: int, pool: ThreadPoolExecutor) -> None:
        """`descriptor` is open for writing, and may or may not be for direct writes; `pool` has one thread."""
        self._descriptor, self._pool = descriptor, pool
        self._place = 0
        self._buffers: list[Bytes] = []
        self._filled = 0
        self._under_way: Future[None] | None = None

    def write(self, content: Bytes) -> None:
        """Write what comes next [bytes]."""
        start, end = 0, len(content)
        address = int(content.__array_interface__["data"][0]) if end else 0
        while start < end:
            to_block = -(self._filled) % BLOCK
            straight = (end - start - to_block) // BLOCK * BLOCK
            if straight >= _STRAIGHT and (address + start + to_block) % BLOCK == 0:
                self._gather(content[start : start + to_block])
                start += to_block
                self._hand_over()
                self._wait()
                self._put(content[start : start + straight], self._advance(straight))
                start += straight
                continue
            room = min(_GATHERED - self._filled, end - start)
            self._gather(content[start : start + room])
            start += room
            if self._filled == _GATHERED:
                self._hand_over()

    def finish(self) -> None:
        """Write the rest, and flush everything to the disk."""
        rest = self._filled % BLOCK
        tail = self._buffers[0][self._filled - rest : self._filled].copy() if rest else np.empty(0, np.uint8)
        self._filled -= rest
        self._hand_over()
        self._wait()
        if rest:
            _use_cache(self._descriptor)
            self._put(tail, self._advance(rest))
        os.fsync(self._descriptor)

    def _gather(self, content: Bytes) -> None:
        if not len(content):
            return
        if not self._buffers:
            self._buffers = [np.frombuffer(mmap.mmap(-1, _GATHERED), np.uint8) for _ in range(2)]
        np.copyto(self._buffers[0][self._filled : self._filled + len(content)], content)
        self._filled += len(content)

    def _hand_over(self) -> None:
        """Have what is gathered written, and gather in the other buffer meanwhile."""
        if not self._filled:
            return
        self._wait()
        content = self._buffers[0][: self._filled]
        self._under_way = self._pool.submit(self._put, content, self._advance(self._filled))
        self._buffers.reverse()
        self._filled = 0

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _advance(self, size: int) -> int:
        self._place += size
        return self._place - size

    def _put(self, content: Bytes, place: int) -> None:
        start = 0
        while start < len(content):
            some = content[start : start + _LONGEST]
            try:
                start += os.pwrite(self._descriptor, some.data, place + start)
            except OSError as error:
                if error.errno not in _NOT_HERE or not _use_cache(self._descriptor):
                    raise


@contextmanager
def direct_file(path: Path) -> Iterator[DirectFile]:
    """A new file at `path`, which is on the disk when the block ends without an error."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | _DIRECT, 0o666)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        descriptor = os.open(path, flags, 0o666)
    try:
        with ThreadPoolExecutor(1) as pool:
            file = DirectFile(descriptor, pool)
            yield file
            file.finish()
    finally:
        os.close(descriptor)


def _use_cache(descriptor: int) -> bool:
    """Write no longer directly; whether that is a change."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if not _DIRECT or not flags & _DIRECT:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_DIRECT)
    return True
