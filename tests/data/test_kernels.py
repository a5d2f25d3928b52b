"""Compiled functions are found again by other processes, and never those of an older state of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.data.kernels import _state

_PROGRAM = """
import sys
from pathlib import Path
from stoker.data import minhash, kernels
print(kernels.cache_folder())
"""


def _cache_folder(**environment: str) -> Path:
    program = [sys.executable, "-c", _PROGRAM]
    told = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True, check=True)
    return Path(told.stdout.strip())


def test_the_folder_is_the_one_the_user_names(tmp_path: Path) -> None:
    assert _cache_folder(NUMBA_CACHE_DIR=str(tmp_path)).parent == tmp_path


def test_a_place_that_cannot_be_written_stops_nothing() -> None:
    assert str(_cache_folder(NUMBA_CACHE_DIR="/proc/nowhere")).startswith("/proc/nowhere")


@pytest.mark.parametrize("changed", ["caller.py", "callee.py"])
def test_a_change_in_any_file_with_compiled_functions_is_another_state(tmp_path: Path, changed: str) -> None:
    for name in ("caller.py", "callee.py"):
        (tmp_path / name).write_text("@compiled\ndef f(x): return x\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    before = _state(tmp_path)
    (tmp_path / "other.py").write_text("x = 2\n")
    assert _state(tmp_path) == before
    (tmp_path / changed).write_text("@compiled\ndef f(x): return 2 * x\n")
    assert _state(tmp_path) != before
