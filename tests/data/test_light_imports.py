"""A process that leaves pandas out makes arrays without it, and hides nothing from later imports."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from stoker.data.light_imports import without_looking_for_garbage

_PROGRAM = """
import sys
from stoker.data.light_imports import leave_pandas_out
leave_pandas_out()
import pyarrow
array = pyarrow.array(["a", None])
print("pandas" in sys.modules, array.to_pylist(), len(sys.meta_path) == {finders})
"""


def _told(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_arrays_are_made_without_pandas() -> None:
    finders = _told("import sys, stoker.data.light_imports, pyarrow; print(len(sys.meta_path))")
    assert _told(_PROGRAM.format(finders=finders)) == "False ['a', None] True"


def test_garbage_is_looked_for_again_after_loading_even_where_that_fails() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), without_looking_for_garbage():
        _ = 1 / gc.isenabled()
    assert gc.isenabled()
