"""Being asked to stop: noted at once, acted on after the step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self.asked = False
        self.by: int | None = None
        """The signal that asked first."""

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler. A second Ctrl-C stops at once."""
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.by = self.by or number
        self.asked = True


def let_through(number: signal.Signals) -> None:
    """Take a signal again that was held back when this process was started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT, SIGUSR1 and the loss of the terminal into a `StopRequest` until the block ends.

    SIGUSR1 is what Slurm is commonly told to send before a job's time is over (`--signal=USR1@120`).
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asks to go on without the terminal
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, request.note) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
