"""One thread each, and the same drawn examples every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports torch or numba: tests run side by side, and forked workers must not meet OpenMP's threads.
for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile(
    "reproducible",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("reproducible")


_LONGEST_FIRST = ("end_to_end", "verification", "parallel", "checkpoint")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders with the longest files first: one begun last would leave the other workers idle."""

    def place(item: pytest.Item) -> int:
        folders = item.path.parts
        return next((i for i, name in enumerate(_LONGEST_FIRST) if name in folders), len(_LONGEST_FIRST))

    items.sort(key=place)
