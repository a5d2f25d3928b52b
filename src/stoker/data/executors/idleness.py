"""How long a process has used no processor, which one that is starved of it by others still does, if little."""

from __future__ import annotations

from contextlib import suppress

import psutil

_SHARE = 1e-3
"""Of a processor. A loop that asks and sleeps takes a hundredth of this, the slowest of networks many times it."""


class Idleness:
    """Adds up what is seen of a process from time to time."""

    def __init__(self, now: float, used: float, most_at_once: float) -> None:
        """`most_at_once` is how many seconds between two looks are believed: who looks may have been stopped too,
        or the machine asleep."""
        self._looked, self._used, self._most = now, used, most_at_once
        self._idle = 0.0

    def seconds(self, now: float, used: float) -> float:
        """For how long it has used less than a thousandth of a processor, at the time `now` by a clock that never
        goes back, when it has `used` so many processor seconds in all."""
        self._idle += min(now - self._looked, self._most)
        self._looked = now
        if used - self._used > _SHARE * self._idle:
            self._idle, self._used = 0.0, used
        return self._idle


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far; 0 of one that is gone, of which its parent will be told."""
    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0.0
