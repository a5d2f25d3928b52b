from __future__ import annotations

import errno
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.record import Record, RecordWriter, rows_of, writing
from stoker.record.framing import MAGIC, read_frames
from stoker.record.segments import list_segments
from tests.record.step_rows import step_row

NEVER = 3600.0
"""Seconds between flushes by the thread: only what the test asks for is written."""


def write_steps(folder: Path, first: int, last: int, attempt: int = 1, **options: Any) -> None:
    writer = RecordWriter(folder, 0, NEVER, **options)
    for step in range(first, last + 1):
        writer.append("step", step_row(step, attempt))
    assert writer.close()


def recorded(folder: Path) -> list[int]:
    return Record(folder).steps(["step"])["step"].to_list()


def test_rows_come_back_as_they_were_recorded(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    event = {
        "step": 1,
        "event": "saved",
        "attempt": 1,
        "time": 3.0,
        "detail": {"path": "步", "list": [1, {"a": None}]},
    }
    writer.append("step", step_row(10))
    writer.append("event", event)
    writer.close()
    expected = {key: value for key, value in step_row(10).items() if value is not None}
    [row] = rows_of("step", Record(tmp_path).rows("step"))
    assert row == expected | {"sequence": 1}
    assert Record(tmp_path).events() == [event | {"sequence": 2}]


def test_sealed_rows_equal_live_rows(tmp_path: Path) -> None:
    write_steps(tmp_path / "live", 1, 30)
    write_steps(tmp_path / "sealed", 1, 30, seal_rows=30)
    assert not list_segments(tmp_path / "live/rank-00000")
    assert read_frames(tmp_path / "sealed/rank-00000/live.frames").entries == []
    live, sealed = (Record(tmp_path / name).rows("step") for name in ("live", "sealed"))
    assert rows_of("step", live) == rows_of("step", sealed)


@pytest.mark.parametrize("seal_rows", [1, 1000])
def test_nan_and_infinity_are_recorded_as_they_are(tmp_path: Path, seal_rows: int) -> None:
    losses = [2.5, math.nan, math.inf, -math.inf, 0.1 + 0.2, -0.0, 5e-324]
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=seal_rows)
    for step, loss in enumerate(losses, start=1):
        writer.append("step", step_row(step, loss=loss, loss_by_source={"english": loss}))
        writer.flush()
    writer.close()
    table = Record(tmp_path).steps(["loss", "loss_by_source"])
    for column in ("loss", "loss_by_source.english"):
        assert table[column].null_count() == 0
        assert np.array(losses).tobytes() == table[column].to_numpy().tobytes()


def test_scalars_of_torch_and_numpy_are_recorded_as_numbers(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    given_row = {
        "loss": torch.tensor(1.5),
        "step": np.int64(3),
        "gradient_norm": np.float32(0.5),
        "clipped": np.bool_(True),
    }
    writer.append("step", given_row)
    writer.close()
    [row] = rows_of("step", Record(tmp_path).rows("step"))
    assert row == {"sequence": 1, "loss": 1.5, "step": 3, "gradient_norm": 0.5, "clipped": True}


@pytest.mark.parametrize("seal_rows", [1, 1000])
def test_what_a_kind_does_not_know_is_kept(tmp_path: Path, seal_rows: int) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=seal_rows)
    odd = {
        "step": 1,
        "entropy": [0.1, 0.2],
        "loss": "a word",
        "tokens": 2**70,
        "seconds": {"data": 1.0, "why": "slow"},
    }
    writer.append("step", odd)
    writer.append("router", {"step": 1, "load": {"0": 3}})
    writer.close()
    assert rows_of("step", Record(tmp_path).rows("step")) == [odd | {"sequence": 1}]
    assert rows_of("router", Record(tmp_path).rows("router")) == [{"sequence": 2, "step": 1, "load": {"0": 3}}]


def test_a_row_changed_after_appending_is_recorded_as_it_was(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    row = step_row(1)
    writer.append("step", row)
    row["seconds"]["data"] = 99.0
    row["loss"] = 99.0
    writer.close()
    table = Record(tmp_path).steps(["loss", "seconds"])
    assert (table["loss"][0], table["seconds.data"][0]) == (5.0, 0.01)


def test_the_thread_writes_without_being_asked(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, flush_seconds=0)
    writer.append("step", step_row(1))
    for _ in range(2000):
        if recorded(tmp_path):
            break
        writer._thread.join(0.005)
    assert recorded(tmp_path) == [1]
    writer.close()


def test_appending_after_close_is_refused(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append("step", step_row(1))
    with pytest.raises(ValueError, match="lower-case word"):
        RecordWriter(tmp_path, 1, NEVER).append("../step", {})


# --- kills -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    write_steps(folder, 1, 5)
    return (folder / "rank-00000/live.frames").read_bytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0, max_value=4000), garbage=st.binary(max_size=40))
def test_a_file_cut_anywhere_loses_only_the_row_that_was_cut(
    whole_file: bytes, tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    record = tmp_path_factory.mktemp("cut")
    live = record / "rank-00000/live.frames"
    live.parent.mkdir()
    cut = min(cut, len(whole_file))
    live.write_bytes(whole_file[:cut])
    whole_rows = len(read_frames(live).entries)
    assert whole_rows == sum(whole_file[:cut].count(f'"digest-{step}"'.encode()) for step in range(1, 6)) or (
        # The digest is not the last field: the row may have been cut behind it.
        whole_rows == sum(whole_file[:cut].count(f'"digest-{step}"'.encode()) for step in range(1, 6)) - 1
    )
    with open(live, "ab") as stream:
        stream.write(garbage)
    survivors = list(range(1, whole_rows + 1))
    assert recorded(record) == survivors
    write_steps(record, whole_rows + 1, whole_rows + 2, attempt=2)
    assert recorded(record) == [*survivors, whole_rows + 1, whole_rows + 2]
    assert Record(record).gaps() == []


def test_a_tail_of_zeros_is_not_taken_for_rows(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 3)
    with open(tmp_path / "rank-00000/live.frames", "ab") as stream:
        stream.write(bytes(4096))
    assert recorded(tmp_path) == [1, 2, 3]
    assert [gap.kind for gap in Record(tmp_path).gaps()] == ["tail"]
    write_steps(tmp_path, 4, 4)
    assert recorded(tmp_path) == [1, 2, 3, 4]


def test_a_flipped_bit_ends_the_reading_before_the_row(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 3)
    live = tmp_path / "rank-00000/live.frames"
    content = bytearray(live.read_bytes())
    content[-5] ^= 1
    live.write_bytes(content)
    assert recorded(tmp_path) == [1, 2]


def test_a_file_that_is_not_a_record_is_set_aside_on_writing(tmp_path: Path) -> None:
    live = tmp_path / "rank-00000/live.frames"
    live.parent.mkdir()
    live.write_bytes(b"something else entirely")
    write_steps(tmp_path, 1, 2)
    assert recorded(tmp_path) == [1, 2]
    assert [p.read_bytes() for p in live.parent.glob("damaged-*")] == [b"something else entirely"]


@pytest.mark.parametrize("killed_in", ["second segment", "before emptying", "before merging", "while merging"])
def test_a_kill_while_sealing_neither_loses_nor_doubles_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=10)
    with monkeypatch.context() as patched:
        if killed_in == "second segment":
            original, calls = writing.seal.__globals__["_write"], []

            def first_only(path: Path, table: pl.DataFrame) -> None:
                calls.append(path)
                if len(calls) > 1:
                    raise Killed
                original(path, table)

            patched.setitem(writing.seal.__globals__, "_write", first_only)
        elif killed_in == "before emptying":
            patched.setattr(
                writing, "write_bytes", lambda path, content: kill() if path.exists() else path.write_bytes(content)
            )
        elif killed_in == "before merging":
            patched.setattr(writing, "merge", kill)
        else:
            patched.setitem(writing.merge.__globals__, "_remove_merged", kill)
        for step in range(1, 200):
            writer.append("event", {"step": step, "event": "saved"})
            writer.append("step", step_row(step))
            try:
                writer.flush()
            except Killed:
                break
        else:
            pytest.fail("the writer was never killed")
    done = recorded(tmp_path)
    assert done == list(range(1, done[-1] + 1))
    assert [event["step"] for event in Record(tmp_path).events()] == done
    write_steps(tmp_path, done[-1] + 1, done[-1] + 100, attempt=2, seal_rows=10)
    assert recorded(tmp_path) == list(range(1, done[-1] + 101))
    assert [event["step"] for event in Record(tmp_path).events()] == done
    assert Record(tmp_path).gaps() == []


def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from stoker.record import RecordWriter
        from tests.record.step_rows import step_row
        writer = RecordWriter(Path(sys.argv[1]), 0, 0.001, seal_rows=50)
        step = 0
        while True:
            step += 1
            writer.append("step", step_row(step))
            if step % 7 == 0:
                writer.flush()
                print(step, flush=True)
        """
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=environment
    )
    assert process.stdout is not None
    flushed = [int(process.stdout.readline()) for _ in range(60)][-1]
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    steps = recorded(tmp_path)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= flushed
    write_steps(tmp_path, len(steps) + 1, len(steps) + 5, attempt=2, seal_rows=50)
    assert recorded(tmp_path) == list(range(1, len(steps) + 6))


def test_many_segments_are_merged_into_few(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=4)
    for step in range(1, 301):
        writer.append("step", step_row(step))
        writer.flush()
    writer.close()
    files = list((tmp_path / "rank-00000").glob("step-*.parquet"))
    assert len(files) < 24
    assert recorded(tmp_path) == list(range(1, 301))


# --- the disk refuses ------------------------------------------------------------------------------


def test_a_full_disk_warns_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = os.pwrite

    def half_written(descriptor: int, data: Any, offset: int) -> int:
        original(descriptor, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = RecordWriter(tmp_path, 0, NEVER)
    writer.append("step", step_row(1))
    assert writer.flush()
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(os, "pwrite", half_written)
        for step in range(2, 6):
            writer.append("step", step_row(step))
            assert not writer.flush()
        seen = recorded(tmp_path)
        assert seen == list(range(1, len(seen) + 1))
        assert writer.failure is not None
        assert "No space left" in writer.failure
        assert len(caplog.records) == 1
    writer.append("step", step_row(6))
    assert writer.close()
    assert writer.failure is None
    assert recorded(tmp_path) == [1, 2, 3, 4, 5, 6]
    [event] = Record(tmp_path).events()
    assert event["event"] == "record_write_failed"
    assert "No space left" in event["detail"]["reason"]


def test_rows_wait_in_bounded_memory_and_losses_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = RecordWriter(tmp_path, 0, NEVER, largest_backlog_bytes=20_000)
    writer.append("step", step_row(1))
    writer.flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refused)
        for step in range(2, 500):
            writer.append("step", step_row(step))
            writer.flush()
        assert writer._backlog_bytes <= 20_000
    assert writer.flush()
    assert writer.close()
    steps = recorded(tmp_path)
    assert (steps[0], steps[-1]) == (1, 499)
    assert 10 < len(steps) < 100
    [lost] = [event for event in Record(tmp_path).events() if event["event"] == "record_rows_lost"]
    # The lost rows are the steps that are missing and the one warning that was written before them.
    assert lost["detail"]["rows"] == 499 - len(steps) + 1
    assert {gap.kind for gap in Record(tmp_path).gaps()} == {"rows", "steps"}


def test_training_goes_on_when_the_file_may_not_grow(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from stoker.record import RecordWriter
        from tests.record.step_rows import step_row
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = RecordWriter(Path(sys.argv[1]), 0, 0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        for step in range(1, 101):
            writer.append("step", step_row(step))
        writer.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(writer.close())
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60)
    assert done.stdout == "True\n"
    assert done.stderr.count("the record cannot be written") == 1
    assert recorded(tmp_path) == list(range(1, 101))


def test_sealing_that_fails_leaves_the_rows_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise pl.exceptions.ComputeError("no")

    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=5)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(writing, "seal", refused)
        for step in range(1, 21):
            writer.append("step", step_row(step))
            assert writer.flush()
        assert len(caplog.records) == 1
    assert writer.close()
    assert recorded(tmp_path) == list(range(1, 21))
    assert (tmp_path / "rank-00000/live.frames").stat().st_size > len(MAGIC)


@pytest.mark.parametrize("seal_rows", [2, 1000])
def test_a_writer_that_was_frozen_does_not_disturb_the_one_that_took_its_place(
    tmp_path: Path, seal_rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    frozen = RecordWriter(tmp_path, 0, NEVER, seal_rows=seal_rows)
    for step in (1, 2, 3):
        frozen.append("step", step_row(step, 1))
    assert frozen.flush()
    second = RecordWriter(tmp_path, 0, NEVER, seal_rows=seal_rows)
    for step in (3, 4):
        second.append("step", step_row(step, 2))
        assert second.flush()
    for step in (4, 5, 6):
        frozen.append("step", step_row(step, 1))
        assert not frozen.flush()
    second.append("step", step_row(5, 2))
    assert second.close()
    assert not frozen.close()
    assert "has another writer now" in caplog.text
    record = Record(tmp_path)
    assert record.gaps() == []
    assert record.steps(["step", "attempt"]).select("step", "attempt").rows() == [
        (1, 1), (2, 1), (3, 2), (4, 2), (5, 2)
    ]  # fmt: skip
    assert record.rows("step").height == 6
