"""Which files can be read to an end: not pipes, devices and sockets, and not what the kernel shows as files."""

from __future__ import annotations

import stat
from functools import cache
from pathlib import Path

_OF_THE_KERNEL = frozenset(
    {"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"}
    | {"fusectl", "mqueue", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs"}
)
"""Kinds of file systems whose files are answers of the kernel: some, such as `/proc/kmsg`, wait for ever."""
_MOUNTS = Path("/proc/self/mountinfo")


def is_regular(path: Path) -> bool:
    """Whether there is a file, or a link to one, that has its bytes on a disk or in memory; opens nothing."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_dev not in kernel_devices()


@cache
def kernel_devices() -> frozenset[int]:
    """Numbers (`st_dev`) of the mounted file systems of the kernel; none where nobody says what is mounted."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return frozenset()
    mounts = [before.split()[4] for line in lines for before, _, kind in [line.partition(" - ")] if _is_its(kind)]
    found = set()
    for mount in mounts:
        try:
            found.add(Path(_unescaped(mount)).stat().st_dev)
        except OSError:  # hidden behind another mount, or not for us to look at
            continue
    return frozenset(found)


def _is_its(described: str) -> bool:
    return described.split(" ", 1)[0] in _OF_THE_KERNEL


def _unescaped(mount: str) -> str:
    """A blank in the name of a folder stands as `\\040`."""
    return (
        mount.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1").decode(errors="replace")
    )
