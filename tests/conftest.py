"""One thread each, and the same drawn examples every time."""

from __future__ import annotations

import os
from collections.abc import Generator

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


@pytest.fixture(autouse=True)
def one_worker_is_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `data.workers: 1` tests prepare text in their own process, but for those marked `worker_processes`."""
    if "worker_processes" not in request.keywords:
        from tests.one_process import local_executor  # it imports numba

        monkeypatch.setattr("stoker.data.executors.choice.Local", local_executor)


_LONGEST_FIRST = ("end_to_end", "verification", "recovery", "parallel", "training", "checkpoint")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders with the longest files first: one begun last would leave the other workers idle."""

    def place(item: pytest.Item) -> int:
        folders = item.path.parts
        return next((i for i, name in enumerate(_LONGEST_FIRST) if name in folders), len(_LONGEST_FIRST))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test proves nothing: with `STOKER_NO_SKIPS`, where all is there that tests need, it has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("STOKER_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
    return report
