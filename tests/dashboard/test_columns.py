"""Columns in memory follow a record while it is written, sealed, merged, cut off and begun anew."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from stoker.dashboard import WatchedRun
from stoker.dashboard.columns import RankColumns, history_of
from stoker.record import Record, RecordWriter
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import NEVER, append_steps, write_run


def writer_of(folder: Path, seal_rows: int = 40) -> RecordWriter:
    return RecordWriter(folder, 0, NEVER, seal_rows=seal_rows)


def rows_match_the_record(columns: RankColumns, folder: Path) -> None:
    """What is kept in memory is what a fresh reading of the whole record finds."""
    table = Record(folder).steps(["loss", "loss_by_source"])
    history = history_of(columns)
    assert history.steps.tolist() == table["step"].to_list()
    for name in ("loss", "loss_by_source.english"):
        kept = history.of(columns.numbers("step", name))
        np.testing.assert_array_equal(kept, table[name].cast(float).fill_null(math.nan).to_numpy())


def test_columns_follow_a_growing_record_through_sealing_and_merging(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path), RankColumns(tmp_path, 0)
    for begin in range(1, 600, 30):
        append_steps(writer, 0, begin, begin + 29)
        assert writer.flush()
        assert columns.refresh()
        columns.numbers("step", "loss")  # read in between, so that it has to be carried on
    rows_match_the_record(columns, tmp_path)
    assert not columns.refresh()
    assert writer.close()


def test_nothing_is_read_again_when_nothing_was_written(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path), RankColumns(tmp_path, 0)
    append_steps(writer, 0, 1, 10)
    assert writer.close()
    assert columns.refresh()
    version, loss = columns.version, columns.numbers("step", "loss")
    assert not columns.refresh()
    assert columns.version == version
    assert columns.numbers("step", "loss") is loss


def test_steps_done_again_count_once(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path), RankColumns(tmp_path, 0)
    append_steps(writer, 0, 1, 95)
    append_steps(writer, 0, 81, 90, attempt=2)
    assert writer.close()
    columns.refresh()
    rows_match_the_record(columns, tmp_path)
    assert history_of(columns).redone == 15


def test_a_torn_tail_is_left_out_and_told(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path, 10_000), RankColumns(tmp_path, 0)
    append_steps(writer, 0, 1, 19)
    assert writer.close()
    content = writer.live_file.read_bytes()
    writer.live_file.write_bytes(content[:-7])
    columns.refresh()
    rows_match_the_record(columns, tmp_path)
    assert history_of(columns).steps[-1] == 18
    assert columns.tail.unfinished_bytes > 0


def test_a_row_that_arrives_in_two_pieces_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path, 10_000), RankColumns(tmp_path, 0)
    append_steps(writer, 0, 1, 20)
    assert writer.close()
    content = writer.live_file.read_bytes()
    for cut in (0, 3, 8, 100, len(content) // 2, len(content) - 1, len(content)):
        with writer.live_file.open("r+b") as stream:
            stream.write(content[:cut])
            stream.truncate(cut)
        columns.refresh()
    rows_match_the_record(columns, tmp_path)


def test_a_damaged_segment_is_left_out_and_named(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path), RankColumns(tmp_path, 0)
    append_steps(writer, 0, 1, 60)
    assert writer.flush()
    append_steps(writer, 0, 61, 120)
    assert writer.close()
    first = sorted((tmp_path / "rank-00000").glob("step-*.parquet"))[0]
    first.write_bytes(b"not parquet")
    columns.refresh()
    assert columns.damaged == {first.name}
    rows_match_the_record(columns, tmp_path)


def test_another_run_in_the_same_folder_is_read_from_its_beginning(tmp_path: Path) -> None:
    columns = RankColumns(tmp_path, 0)
    for steps in (80, 30):
        shutil.rmtree(tmp_path / "rank-00000", ignore_errors=True)
        writer = writer_of(tmp_path)
        append_steps(writer, 0, 1, steps)
        assert writer.close()
        columns.refresh()
        rows_match_the_record(columns, tmp_path)


def test_what_is_not_finite_is_told_from_what_is_absent(tmp_path: Path) -> None:
    writer, columns = writer_of(tmp_path), RankColumns(tmp_path, 0)
    for step, loss in enumerate((1.0, math.nan, None, -math.inf), start=1):
        writer.append("step", {"step": step, "loss": loss})
    assert writer.close()
    columns.refresh()
    kept = columns.numbers("step", "loss")
    assert kept[0] == 1
    assert np.isinf(kept[1])
    assert np.isnan(kept[2])
    assert np.isinf(kept[3])


def test_columns_not_asked_for_the_longest_leave_memory_first(tmp_path: Path) -> None:
    write_run(tmp_path)
    columns = RankColumns(RunDirectory(tmp_path).record, 0, most_columns=2)
    columns.refresh()
    loss = columns.numbers("step", "loss")
    columns.numbers("step", "time")
    assert columns.numbers("step", "loss") is loss
    columns.numbers("step", "tokens")
    columns.numbers("step", "step")
    assert columns.numbers("step", "loss") is not loss


@pytest.mark.parametrize("unit", ["step", "tokens", "hours"])
def test_axes_ascend_although_a_clock_was_set_back(tmp_path: Path, unit: str) -> None:
    write_run(tmp_path, ranks=())
    writer = RecordWriter(RunDirectory(tmp_path).record, 0, NEVER)
    for step, time in ((1, 100.0), (2, 200.0), (3, 150.0), (4, None), (5, 300.0)):
        writer.append("step", {"step": step, "time": time, "tokens_seen": 10 * step})
    assert writer.close()
    run = WatchedRun(RunDirectory(tmp_path))
    run.refresh()
    axis = run.axis(unit)
    assert axis is not None
    assert np.isfinite(axis).all()
    assert (np.diff(axis) >= 0).all()
