"""Tables of evaluation items on disk: made by one process, mapped into memory by all.

They lie beside the compiled functions, each set of tables in a folder of its own that is there whole or not at all.
Processes on one machine share the pages; the tables used last are kept.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.decontamination.tables import Tables
from stoker.data.kernels import cache_folder

_KEPT = 4
"""Sets of tables."""


def shared_tables(state: str, make: Callable[[], Tables]) -> Tables:
    """The tables of a `state`, a name that says all that they depend on.

    The first process that wants them makes them while others wait for it. Where no folder can be written they are
    made in memory. Raises what `make` raises.
    """
    folder = cache_folder() / "evaluation"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        return make()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process that holds it, however that ends
        found = _read(folder / state)
        if found is None:
            tables = make()
            try:
                _write(folder / state, tables)
                _forget_others(folder)
            except OSError:
                return tables
            found = _read(folder / state)
            return tables if found is None else found
        with suppress(OSError):
            os.utime(folder / state)
        return found
    finally:
        os.close(lock)


def _read(folder: Path) -> Tables | None:
    """None where there are none, or not all of them."""
    try:
        names = (folder / "names").read_text().split()
        return {name: _mapped(folder / f"{name}.npy") for name in names}
    except (OSError, ValueError, EOFError):
        return None


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except ValueError:  # nothing cannot be mapped
        return np.asarray(np.load(path))


def _write(folder: Path, tables: Tables) -> None:
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, table in tables.items():
        np.save(partial / f"{name}.npy", table)
    (partial / "names").write_text("\n".join(tables))
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)


def _forget_others(folder: Path) -> None:
    """Keep the sets of tables that were used last; of those that a kill left unfinished none."""
    for partial in folder.glob("*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    sets = sorted((one for one in folder.iterdir() if one.is_dir()), key=lambda one: -one.stat().st_mtime_ns)
    for old in sets[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
