from __future__ import annotations

from pathlib import Path

import pytest

from stoker.monitoring.following import Follower
from stoker.monitoring.recent import RecentRecord
from stoker.record import Record, RecordWriter
from stoker.record.framing import Entry
from tests.record.step_rows import step_row

NEVER = 3600.0


def taken(follower: Follower) -> list[int]:
    return [entry.row["step"] for entry in follower.new_rows() if entry.kind == "step"]


def test_every_row_is_seen_once_while_it_is_written_and_sealed(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=7)
    follower, seen = Follower(tmp_path, 0), []
    for step in range(1, 201):
        writer.append("step", step_row(step))
        if step % 3 == 0:
            writer.append("event", {"step": step, "event": "saved", "attempt": 1, "time": 1.0, "detail": {}})
        if step % 2 == 0:
            writer.flush()
        if step % 9 == 0:
            seen += taken(follower)
    writer.close()
    seen += taken(follower)
    assert seen == list(range(1, 201))
    assert taken(follower) == []


def test_rows_are_the_same_from_a_segment_as_from_the_live_file(tmp_path: Path) -> None:
    def all_rows(folder: Path, seal_rows: int) -> list[Entry]:
        writer = RecordWriter(folder, 0, NEVER, seal_rows=seal_rows)
        for step in range(1, 31):
            writer.append("step", step_row(step))
            writer.flush()
        writer.close()
        found = list(Follower(folder, 0).new_rows())
        return [Entry(e.kind, e.sequence, {k: v for k, v in e.row.items() if v is not None}) for e in found]

    live, sealed = all_rows(tmp_path / "live", 1000), all_rows(tmp_path / "sealed", 10)
    for one, other in zip(live, sealed, strict=True):
        modules = one.row.pop("gradient_norm_by_module", None), other.row.pop("gradient_norm_by_module", None)
        assert modules[0] == modules[1]
        assert one == other


def test_a_torn_row_is_taken_once_it_is_whole(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    for step in (1, 2, 3):
        writer.append("step", step_row(step))
    writer.close()
    content = writer.live_file.read_bytes()
    writer.live_file.write_bytes(content[:-20])
    follower = Follower(tmp_path, 0)
    assert taken(follower) == [1, 2]
    assert taken(follower) == []
    with open(writer.live_file, "ab") as stream:
        stream.write(content[-20:])
    assert taken(follower) == [3]


def test_a_writer_that_begins_anew_is_followed(tmp_path: Path) -> None:
    follower = Follower(tmp_path, 0)
    assert taken(follower) == []
    for first in (1, 11):
        writer = RecordWriter(tmp_path, 0, NEVER)
        for step in range(first, first + 10):
            writer.append("step", step_row(step))
        writer.close()
        assert taken(follower) == list(range(first, first + 10))


def test_a_follower_that_comes_late_takes_only_the_newest(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=10)
    for step in range(1, 96):
        writer.append("step", step_row(step))
        writer.flush()
    writer.close()
    follower = Follower(tmp_path, 0)
    follower.skip_to_newest(20)
    assert taken(follower) == list(range(76, 96))


@pytest.mark.parametrize("seal_rows", [10, 1000])
@pytest.mark.parametrize("most", [5, 37, 500])
def test_the_recent_record_is_the_end_of_the_record(tmp_path: Path, seal_rows: int, most: int) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=seal_rows)
    for step in range(1, 96):
        writer.append("step", step_row(step))
        if step % 10 == 0:
            writer.append("event", {"step": step, "event": "saved", "attempt": 1, "time": 1.0, "detail": {}})
        writer.flush()
    writer.close()
    whole, recent = Record(tmp_path), RecentRecord(tmp_path, most)
    for columns in (["step", "loss", "loss_by_source"], ["step"]):
        assert recent.rows("step", columns).equals(whole.rows("step", columns).tail(most))
    assert recent.steps(["loss"]).equals(whole.steps(["loss"]).tail(most))
    assert recent.events() == whole.events()[-most:]
    assert recent.rows("routing").height == 0
    assert recent.rows("step", rank=7).height == 0
