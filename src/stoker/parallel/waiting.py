"""Tells whoever times a step how long this rank waits for others in the middle of a pass.

Backward passes run in threads of autograd's, and what waits there knows nothing of the step. So there is one
listener in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch.distributed import Work

Listener = Callable[[str], AbstractContextManager[object]]
"""Given the name of what is waited for; entered while this rank waits."""

_listener: Listener | None = None


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """While this lasts `listener` is told of every wait."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def waiting(name: str) -> AbstractContextManager[object]:
    """Around what takes as long as other ranks need. `name` is what they send: `weights`, `activations` …"""
    return nullcontext() if _listener is None else _listener(name)


def complete(work: Work) -> None:
    """Wait for what was started before. Whoever looks at this rank's stack sees by this call that it waits."""
    work.wait()
