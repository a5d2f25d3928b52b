"""How much address space this process may have (`ulimit -v`), and whether training can begin with it."""

from __future__ import annotations

import resource

from stoker.errors import BadInput
from stoker.wording import size

_LIBRARIES = 21 * (1 << 30) // 10
"""Bytes that torch, polars and pyarrow map while they are loaded, with a thread or two each. With less they fail in
the midst of starting threads, and at 1.4 GiB one of them waits for a thread that never began, for ever."""


def address_space() -> int | None:
    """The most bytes that this process may map; None where there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def require_address_space() -> None:
    """Raises `BadInput` where the libraries of training cannot even be loaded."""
    limit = address_space()
    if limit is not None and limit < _LIBRARIES:
        raise BadInput(
            f"this process may have no more than {size(limit)} of address space (`ulimit -v`), and loading the "
            f"libraries of training alone takes {size(_LIBRARIES)}: raise it, or set no limit"
        )
