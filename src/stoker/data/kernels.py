"""Compiled inner loops: numba functions, kept on disk between runs where there is a place to keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` with numba on first use; other processes and later runs find it in numba's cache.

    Where neither the package's folder nor the user's cache folder can be written (and NUMBA_CACHE_DIR names
    no other), it is compiled anew in each process, which takes some seconds.
    """
    try:
        kernel: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no folder for its cache
        kernel = numba.njit(nogil=True)(function)
    return kernel
