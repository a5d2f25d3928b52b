"""What can go wrong, and the exit code each kind of failure ends with.

Every error a user can meet is raised as one of these. Its message says what was
expected, what came, where, and what to do. The command line prints the message and
exits with `exit_code`; it never shows a traceback for a `StokerError`.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_SAVED_PLEASE_REQUEUE = 75
EXIT_NON_FINITE = 76
EXIT_TERMINATED = 143


class StokerError(Exception):
    """The thing was tried and failed (exit code 1)."""

    exit_code = EXIT_FAILED


class BadInput(StokerError):
    """What the user gave cannot work; trying again will not help (exit code 2)."""

    exit_code = EXIT_BAD_INPUT


class OutOfMemory(StokerError):
    """A rank asked for memory that there was not (exit code 1)."""

    held_bytes = 0
    """What the rank had at most; 0 when nobody knows."""


class NonFinite(StokerError):
    """A loss or gradient was NaN or Inf, and the run stopped before the update (exit code 76)."""

    exit_code = EXIT_NON_FINITE


class Terminated(StokerError):
    """The run was asked to stop by SIGTERM or SIGINT and saved its state (exit code 143)."""

    exit_code = EXIT_TERMINATED


class MissingExtra(BadInput):
    """An optional part of Stoker is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'stoker[{extra}]'")
