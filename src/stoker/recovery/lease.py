"""Ranks go on only while their supervisor is there: while a whole node is stopped, others may do their work."""

from __future__ import annotations

import mmap
import struct
import time

LEASE_SECONDS = 4.0
"""How long ranks go on without their supervisor; shorter than any silence after which others take their place."""
_WAIT_SECONDS = 0.02
_STAMP = struct.Struct("<q")


class Lease:
    """Memory that a supervisor and its ranks share: ranks go on only while the supervisor is there."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _STAMP.size)
        self.renew()

    def renew(self) -> None:
        """The supervisor is there, and has reason to keep its ranks."""
        _STAMP.pack_into(self._memory, 0, time.monotonic_ns())

    def wait(self) -> None:
        """In a rank: return at once while the lease is good, otherwise when it is renewed."""
        while time.monotonic_ns() - _STAMP.unpack_from(self._memory)[0] > LEASE_SECONDS * 1e9:
            time.sleep(_WAIT_SECONDS)
