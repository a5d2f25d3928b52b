"""What a rank prints when others are gone."""

from __future__ import annotations

import logging
import time

import pytest

from stoker.recovery import rank_warnings
from stoker.recovery.rank_warnings import PatientHandler

GLOO = "[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:9630: Connection reset by peer."


@pytest.fixture
def log() -> logging.Logger:
    found = logging.Logger("of a rank")
    found.addHandler(PatientHandler())
    return found


def test_a_lost_connection_is_told_only_by_a_rank_that_is_still_there_later(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_warnings, "PATIENCE_SECONDS", 0.2)
    log.warning("step %d is not kept in memory: %s", 5, RuntimeError(GLOO))
    assert capsys.readouterr().err == ""
    until, said = time.monotonic() + 10, ""
    while not said and time.monotonic() < until:
        time.sleep(0.02)
        said = capsys.readouterr().err
    assert said == f"step 5 is not kept in memory: {GLOO}\n"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a peer's gloo")])
def test_what_is_this_ranks_own_is_told_at_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    log.warning("step %d is not kept in memory: %s", 5, error)
    log.info("nothing to worry about")
    assert capsys.readouterr().err == f"step 5 is not kept in memory: {error}\n"
