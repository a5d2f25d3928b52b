"""Tables that take long to make and never change, kept on disk beside the compiled functions."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import cache_folder

Tables = Mapping[str, npt.NDArray[Any]]


def stored_tables(name: str, made_from: str, source: Path, make: Callable[[], Tables]) -> Tables:
    """What `make` gives, made once on this machine.

    `made_from` says all that the tables depend on but the code of the file `source`. Tables that are damaged, or
    that no folder takes, are made anew. Raises what `make` raises.
    """
    state = hashlib.sha256(made_from.encode() + b"\0" + source.read_bytes()).hexdigest()[:16]
    path = cache_folder() / f"{name}-{state}.npz"
    try:
        with np.load(path) as found:
            return {table: found[table] for table in found.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        tables = make()
    with suppress(OSError):  # there is no folder for the cache
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            with partial.open("wb") as stream:
                np.savez(stream, **tables)  # type: ignore[arg-type]  # no table is named `allow_pickle`
            partial.replace(path)  # so that nobody reads half of it
        except OSError:
            partial.unlink(missing_ok=True)  # of a disk that is full
    return tables
