"""How long work says where it is: a task has a name, a total and a unit; someone may be watching, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Task(Protocol):
    """One piece of work that is under way."""

    def advance(self, amount: float = 1) -> None:
        """Say that `amount` more units are done."""

    def skip(self, amount: float) -> None:
        """Say that `amount` more units were done before, by an earlier run: they say nothing about the speed."""

    def describe(self, text: str) -> None:
        """Replace the words behind the bar."""


class Progress(Protocol):
    """Someone who is told about work under way."""

    @contextmanager
    def task(self, name: str, total: float | None, unit: str) -> Iterator[Task]:
        """Begin a piece of work of `total` units (None: not known); of no unit where there is nothing to count."""
        yield _SilentTask()

    def say(self, line: str) -> None:
        """One line worth keeping on the screen."""


class _SilentTask:
    def advance(self, amount: float = 1) -> None:
        pass

    def skip(self, amount: float) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


class Silent:
    """Nobody is watching (tests, workers, `--json`)."""

    @contextmanager
    def task(self, name: str, total: float | None, unit: str) -> Iterator[Task]:
        """Begin work that nobody watches."""
        yield _SilentTask()

    def say(self, line: str) -> None:
        """Say it to nobody."""
