"""What is done in a process of its own, forked from one that computes nothing itself."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from stoker.child_processes import die_with_parent
from stoker.errors import EXIT_TERMINATED, StokerError, Terminated


class Stopped(StokerError):
    """A process at work was asked to stop, by a signal to itself."""


class Forked:
    """One process at work; it ends with the one that started it."""

    def __init__(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Have `function` called; `what` names it in messages."""
        context = get_context("fork")
        self._what = what
        self._result, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(function, arguments, theirs))
        self._process.start()
        theirs.close()

    @property
    def is_over(self) -> bool:
        """Whether `result` has something to return or raise."""
        return bool(self._result.poll()) or not self._process.is_alive()

    @property
    def was_killed(self) -> bool:
        """Whether it was killed before it had a result."""
        return self._process.exitcode == -signal.SIGKILL

    def result(self) -> Any:
        """Wait for what the function returns. Raises its error as a `StokerError`, or one that says how the process
        ended; `Stopped` when it was asked to. When this process is asked to stop, the other is killed."""
        try:
            error, value = self._result.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            kind = Stopped if code in (EXIT_TERMINATED, -signal.SIGTERM) else StokerError
            raise kind(f"{self._what} {how}") from None
        except (Terminated, KeyboardInterrupt):
            self._process.kill()
            raise
        finally:
            self._process.join()
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Kill it if it is still at work."""
        self._process.kill()
        self._process.join()
        self._result.close()


def _child(function: Callable[..., Any], arguments: tuple[Any, ...], result: Connection) -> None:
    die_with_parent(by_thread=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of the group: whoever started this judges it
    try:
        result.send((None, function(*arguments)))
    except Terminated as error:
        result.send((Stopped(f"{error} (exit code {error.exit_code})"), None))
    except Exception as error:
        result.send((StokerError(str(error) or type(error).__name__), None))
