"""Loading libraries takes no longer than it must."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any


class _Nowhere(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=fullname)


def leave_pandas_out() -> None:
    """Keep pyarrow from importing pandas, which it does the first time it makes an array, at a fifth of a second.

    For processes of our own, which give it no pandas objects: pyarrow looks for pandas once, and does not find it
    then. `to_pandas` looks again.
    """
    import pyarrow

    finder = _Nowhere()
    sys.meta_path.insert(0, finder)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def without_looking_for_garbage() -> Iterator[None]:
    """Keep Python from looking for garbage while libraries are loaded, which leaves none.

    Loading makes a million objects that stay, and for every few hundred of them the collector would look through
    some that it has seen before: a fifth of the time that it takes. It collects afterwards as it did before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
