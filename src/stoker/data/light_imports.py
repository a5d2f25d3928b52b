"""Libraries that take long to load and are not needed are left out."""

from __future__ import annotations

import sys
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
