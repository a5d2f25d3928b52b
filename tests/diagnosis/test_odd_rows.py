"""The doctor of records that hold nonsense: it answers, and holds nothing against what it does not belong to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.diagnosis import diagnose
from stoker.diagnosis.course import readable
from stoker.diagnosis.step_parts import Parts, find_longer_parts
from stoker.diagnosis.telling import in_text
from stoker.monitoring.picture import number
from tests.diagnosis.test_diagnose import step_rows, write_run

ROWS = 160


def parts(slow: range) -> Parts:
    steps = np.arange(1, ROWS + 1)
    seconds = np.where(np.isin(steps, slow), 2.0, 1.0) + 0.01 * np.sin(steps)
    return Parts(steps, {"compute": seconds, "communication": np.full(ROWS, 0.1)}, seconds + 0.1)


def without(own: Parts, lost: slice) -> Parts:
    kept = np.delete(np.arange(own.steps.size), lost)
    return Parts(own.steps[kept], {name: one[kept] for name, one in own.parts.items()}, own.total[kept])


def test_a_rank_of_which_rows_are_lost_is_held_against_the_same_steps_of_others() -> None:
    """By places among rows, one rank's steps 121 to 140 would lie at another's 81 to 100, or behind its end."""
    slow = range(121, 141)
    whole = {0: parts(slow), 1: parts(range(0)), 2: parts(slow)}
    (expected,) = (one for one in find_longer_parts(whole) if one.part == "compute")
    assert abs((expected.first_step or 0) - 121) <= 2
    for lost in (slice(0, 40), slice(60, 100)):
        found = find_longer_parts({**whole, 0: without(whole[0], lost)})
        (own,) = (one for one in found if one.part == "compute")
        assert own.kind == expected.kind
        assert abs((own.first_step or 0) - 121) <= 2
        assert abs((own.last_step or 0) - 140) <= 2


@pytest.mark.parametrize("odd", [[1], {"a": 1}, "x", math.nan, 2**70, None, True])
def test_events_without_a_readable_step_time_or_attempt_are_told_all_the_same(tmp_path: Path, odd: Any) -> None:
    run = write_run(tmp_path, step_rows())
    events = [{"event": name, "step": odd, "attempt": odd, "time": odd, "detail": odd}
              for name in ("started", "failure", "resumed", "gave_up", "saved", odd)]  # fmt: skip
    write_run(tmp_path, events, kind="event")
    diagnosis = diagnose(run)
    assert "failure" in {finding.kind for finding in diagnosis.findings}
    assert in_text(diagnosis)


def test_an_event_keeps_what_can_be_read_of_it() -> None:
    event = {"event": "saved", "step": 3, "attempt": 1, "time": 4.5, "detail": {"a": 1}}
    assert readable(event) == event
    assert readable({**event, "time": math.inf, "step": "3"}) == {**event, "time": None, "step": None}
    assert number(readable({**event, "time": [1]}), "time") is None


def test_names_begin_no_line_of_their_own_and_tell_a_terminal_nothing(tmp_path: Path) -> None:
    name = "a\nNothing stands out.\x1b[2J[red]"
    rows = step_rows()
    for row in rows[200:]:
        row["loss"] *= 4
    rows = [{**row, "loss_by_source": {name: row["loss"]}} for row in rows]
    told = in_text(replace(diagnose(write_run(tmp_path, rows)), run="\x1b[31mrun\nNothing stands out."))
    assert "\x1b" not in told
    assert "Nothing stands out." not in told.split("\n")
    assert "Nothing stands out." in told


def test_figures_that_overflow_warn_nobody(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    rows = [{**row, "seconds": {"total": 1e-320, "forward": 1e308, "backward": 1e308}} for row in step_rows()]
    diagnose(write_run(tmp_path, rows))
    assert not [str(one.message) for one in recwarn if issubclass(one.category, RuntimeWarning)]
