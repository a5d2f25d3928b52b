from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stoker.monitoring import recent
from stoker.monitoring.following import Follower
from stoker.monitoring.recent import FollowedRecord, RecentRecord
from stoker.record import Record, RecordWriter, framing
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
    whole, newest = Record(tmp_path), RecentRecord(tmp_path, most)
    for columns in (["step", "loss", "loss_by_source"], ["step"]):
        assert newest.rows("step", columns).equals(whole.rows("step", columns).tail(most))
    assert newest.steps(["loss"]).equals(whole.steps(["loss"]).tail(most))
    assert newest.events() == whole.events()[-most:]
    assert newest.rows("routing").height == 0
    assert newest.rows("step", rank=7).height == 0


COLUMNS = (["step", "loss", "loss_by_source"], ["step", "seconds"], None)


@pytest.mark.parametrize(("seal_rows", "most"), [(1000, 40), (7, 40), (7, 3)])
def test_a_record_that_is_followed_says_what_the_disk_does(tmp_path: Path, seal_rows: int, most: int) -> None:
    """Whatever is asked when, and also of kinds and ranks that begin later."""
    draw = random.Random(seal_rows * most)
    followed = FollowedRecord(tmp_path, most)
    writers = {rank: RecordWriter(tmp_path, rank, NEVER, seal_rows=seal_rows) for rank in (0, 1)}
    followers = {rank: Follower(tmp_path, rank) for rank in (0, 1)}
    step = 0
    for _ in range(30):
        for _ in range(draw.choice((0, 1, 5, most + 2))):
            step += 1
            for rank in (0, 1) if step > 20 else (0,):
                sources = {f"source-{step // 25}": 1.0 * step}
                writers[rank].append("step", step_row(step, loss_by_source=sources))
                if draw.random() < 0.3:
                    writers[rank].append("module", {"step": step, "module": "blocks.0", "weight_rms": 1.0})
        for rank, writer in writers.items():
            writer.flush()
            for entry in followers[rank].new_rows():
                followed.take(rank, entry)
        asked = draw.sample([(kind, columns) for kind in ("step", "module") for columns in COLUMNS], 3)
        for rank in (0, 1):
            for kind, columns in asked:
                found = followed.rows(kind, columns, rank)
                expected = RecentRecord(tmp_path, most).rows(kind, columns, rank)
                assert_frame_equal(present(found), present(expected), check_column_order=False)
        if draw.random() < 0.7:
            followed.settle()
    for writer in writers.values():
        writer.close()


def present(table: pl.DataFrame) -> pl.DataFrame:
    """Without columns that no row has."""
    return table.select(name for name in table.columns if table[name].null_count() < table.height)


def test_what_has_been_followed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(recent, "read_frames", lambda path: read.append(path) or framing.read_frames(path))
    writers = [RecordWriter(tmp_path, rank, NEVER) for rank in range(4)]
    followed, followers = FollowedRecord(tmp_path, 16), [Follower(tmp_path, rank) for rank in range(4)]
    for step in range(1, 60):
        for rank, writer in enumerate(writers):
            writer.append("step", step_row(step))
            writer.flush()
            for entry in followers[rank].new_rows():
                followed.take(rank, entry)
        newest = [followed.rows("step", ["step"], rank)["step"].to_list() for rank in range(4)]
        followed.settle()
        assert newest == [list(range(max(1, step - 15), step + 1))] * 4
    for writer in writers:
        writer.close()
    assert len(read) == 4
