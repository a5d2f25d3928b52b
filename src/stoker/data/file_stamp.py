"""Whether a file is still the one that it was, told by what its file system keeps of it."""

from __future__ import annotations

import os

from stoker.data.reading.remote import RemoteStatus

Stamp = tuple[int, int, int, int]
"""Bytes, time of the last write and of the last change of anything in nanoseconds, number of the inode."""
NO_FILE: Stamp = (0, 0, 0, 0)
"""Where there is none, or none that can be looked at."""


def stamp_of(status: os.stat_result | RemoteStatus) -> Stamp:
    """The stamp of a file: as long as it is the same, so is the content.

    Size and time of writing alone can be kept by whoever replaces a file (`cp -p`, `touch -r`, archives that give
    all files one time). The time of change is the system's own and moves with every write and every rename onto the
    name; where a file system does not move it with a rename, the inode is another. It moves as well with rights and
    links, which change no content: another stamp is a reason to look, no proof of a change.
    """
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def last_moved(stamp: Stamp) -> int:
    """When a file was written or changed last, in nanoseconds since 1970."""
    return max(stamp[1], stamp[2])
