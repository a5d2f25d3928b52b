"""Text that is none, and samples that cannot be: what rows claim never stops a reader nor takes its memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.dashboard.tail import LiveTail, entries_of
from stoker.record import Record, RecordWriter, samples_seen
from stoker.record.given_samples import given_stretches
from stoker.record.segments import LIVE_FILE, list_segments
from tests.record.step_rows import step_row

HALF = "\ud800"


def test_half_a_surrogate_pair_is_recorded_sealed_and_read_in_letters(tmp_path: Path) -> None:
    """Of a file's name that is no text, say. The rows of all ranks would stay unsealed for good."""
    writer = RecordWriter(tmp_path, 0, 3600.0, seal_rows=4)
    writer.append("step", step_row(1, batch_digest=HALF, loss_by_source={f"名{HALF}": 1.0}))
    writer.append("event", {"event": "failure", "step": 1, "detail": {f"a{HALF}": [f"/数据/{HALF}", r"\ud800"]}})
    for live in (True, False):
        assert writer.flush()
        tail = LiveTail(tmp_path / "rank-00000" / LIVE_FILE)
        tail.refresh()
        assert bool(entries_of(tail.entries)) is live
        rows = Record(tmp_path).steps()
        assert rows["batch_digest"][0] == r"\ud800"
        assert rows[r"loss_by_source.名\ud800"][0] == 1.0
        (event,) = Record(tmp_path).events()
        assert event["detail"] == {r"a\ud800": [r"/数据/\ud800", r"\ud800"]}
        for step in (2, 3):
            writer.append("step", step_row(step))
    assert writer.close()
    assert {one.kind for one in list_segments(tmp_path / "rank-00000")} == {"step", "event"}


@pytest.mark.parametrize(
    "spelled", ["", "{", "3", '"x"', "[3]", "[[1]]", "[[1,2,3]]", "[[5,5]]", "[[9,3]]", "[[-4,2]]", "[[0.0,2]]",
                "[[0,4611686018427387904]]", "[[0,1000000000000]]", "[[true,2]]", "[[null,2]]", '[["a","b"]]'],
)  # fmt: skip
def test_what_spells_no_samples_gives_none(spelled: str) -> None:
    assert given_stretches(spelled) == []


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 1000)), max_size=20))
def test_given_samples_are_read_as_they_were_written(parts: list[tuple[int, int]]) -> None:
    stretches = [[first, first + count] for first, count in parts]
    assert given_stretches(str(stretches)) == stretches


def test_samples_that_cannot_be_are_told_as_lost_and_not_counted_out(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, 3600.0)
    writer.append("step", step_row(1, given_samples=[[0, 2**62]]))
    writer.append("step", step_row(2))
    assert writer.close()
    assert samples_seen(Record(tmp_path)).lost == ((0, 3),)
