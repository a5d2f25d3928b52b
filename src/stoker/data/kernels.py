"""Compiled inner loops: numba functions, kept on disk between runs where there is a place to keep them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

_PACKAGE = Path(__file__).parent


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` with numba on first use; other processes and later runs find it in numba's cache.

    Numba looks for changes in the function's own file alone, and not in those of what it calls: the cache's folder
    is named after the content of all files with compiled functions, so that nothing old is found. Where no folder
    can be written, it is compiled anew in each process, which takes some seconds.
    """
    settings = vars(numba.config)
    before = settings["CACHE_DIR"]
    try:
        settings["CACHE_DIR"] = str(cache_folder())
        kernel: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except (RuntimeError, OSError):  # there is no folder for the cache
        kernel = numba.njit(nogil=True)(function)
    finally:
        settings["CACHE_DIR"] = before
    return kernel


@cache
def cache_folder() -> Path:
    """Where the compiled functions of this very state of the package lie."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(given) if given else home) / f"stoker-kernels-{_state(_PACKAGE)}"


def _state(package: Path) -> str:
    """A digest of every file below `package` that has compiled functions."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        if b"compiled" in content:
            digest.update(str(path.relative_to(package)).encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]
