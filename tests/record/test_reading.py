from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.record import Record, RecordWriter, samples_seen
from stoker.record.history import final_history, replayed
from tests.record.step_rows import step_row

NEVER = 3600.0


def write_attempts(folder: Path, *attempts: tuple[int, int], rank: int = 0, seal_rows: int = 7) -> None:
    """Each attempt records its steps from first to last; its loss tells it apart."""
    for number, (first, last) in enumerate(attempts, start=1):
        writer = RecordWriter(folder, rank, NEVER, seal_rows=seal_rows)
        writer.append("event", {"step": first - 1, "event": "started", "attempt": number, "time": 100.0 * number})
        for step in range(first, last + 1):
            writer.append("step", step_row(step, number, loss=number * 1000.0 + step))
            if step % 10 == 0:
                score = {"step": step, "source": "english", "loss": number * 1.0, "tokens": 10, "bytes": 40}
                writer.append("evaluation", score)
                writer.append("sample", {"step": step, "prompt": "从前", "text": f"attempt {number}"})
            if step % 5 == 0:
                writer.flush()
        writer.close()


def test_after_a_resume_the_last_attempt_counts(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 95), (81, 120))
    table = Record(tmp_path).steps(["loss", "attempt"])
    assert table["step"].to_list() == list(range(1, 121))
    assert table["attempt"].to_list() == [1] * 80 + [2] * 40
    assert table["loss"].to_list() == [1000.0 + s for s in range(1, 81)] + [2000.0 + s for s in range(81, 121)]
    assert table.filter("replayed")["step"].to_list() == list(range(81, 96))
    every = Record(tmp_path).steps(["loss"], all_attempts=True)
    assert every["step"].to_list() == [*range(1, 96), *range(81, 121)]


def test_what_was_given_up_does_not_show_while_it_is_done_again(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 95), (41, 60))
    record = Record(tmp_path)
    assert record.steps(["loss"])["step"].to_list() == list(range(1, 61))
    evaluations = record.evaluations()
    assert evaluations["step"].to_list() == [10, 20, 30, 40, 50, 60]
    assert evaluations["loss"].to_list() == [1.0] * 4 + [2.0] * 2
    assert record.samples()["text"].to_list() == ["attempt 1"] * 4 + ["attempt 2"] * 2
    assert len(record.evaluations(all_attempts=True)) == 9 + 2


def test_an_evaluation_done_again_at_one_step_counts_once(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 10))
    writer = RecordWriter(tmp_path, 0, NEVER)
    writer.append("evaluation", {"step": 10, "source": "english", "loss": 7.0, "tokens": 10, "bytes": 40})
    writer.append("evaluation", {"step": 10, "source": "code", "loss": 8.0, "tokens": 10, "bytes": 40})
    writer.close()
    table = Record(tmp_path).evaluations()
    assert dict(table.select("source", "loss").iter_rows()) == {"english": 7.0, "code": 8.0}


def test_attempts_are_numbered_and_listed(tmp_path: Path) -> None:
    assert Record(tmp_path).next_attempt() == 1
    write_attempts(tmp_path, (1, 95), (81, 80), (81, 120))
    attempts = Record(tmp_path).describe_attempts()
    assert Record(tmp_path).attempts() == [1, 2, 3]
    assert [(a.number, a.first_step, a.last_step) for a in attempts] == [(1, 1, 95), (2, None, None), (3, 81, 120)]
    assert attempts[1].began == 200.0
    assert Record(tmp_path).next_attempt() == 4


def test_an_empty_or_absent_record_is_read_as_empty(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        record = Record(folder)
        assert record.ranks == []
        assert record.steps().is_empty()
        assert record.steps(["loss", "seconds"]).is_empty()
        assert record.evaluations().is_empty()
        assert record.samples().is_empty()
        assert record.events() == []
        assert record.attempts() == []
        assert [gap.kind for gap in record.gaps()] == ["rank"]


def test_only_the_columns_asked_for_are_given(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 20))
    table = Record(tmp_path).steps(["loss_by_source", "ranks"])
    assert set(table.columns) == {
        "step", "replayed", "ranks", "loss_by_source.english", "loss_by_source.中文",
    }  # fmt: skip


def test_a_source_that_appears_late_has_no_figures_before(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER, seal_rows=2)
    for step, sources in enumerate([["a"], ["a"], ["a", "b.c"], ["b.c"]], start=1):
        writer.append("step", step_row(step, loss_by_source=dict.fromkeys(sources, 1.0)))
        writer.flush()
    writer.close()
    table = Record(tmp_path).steps(["loss_by_source"])
    assert table["loss_by_source.a"].to_list() == [1.0, 1.0, 1.0, None]
    assert table["loss_by_source.b.c"].to_list() == [None, None, 1.0, 1.0]


def test_each_rank_has_its_own_rows_and_a_missing_rank_is_named(tmp_path: Path) -> None:
    for rank in (0, 2):
        writer = RecordWriter(tmp_path, rank, NEVER)
        writer.append("step", step_row(1, ranks=4, seconds={"data": float(rank)}))
        writer.close()
    record = Record(tmp_path)
    assert record.ranks == [0, 2]
    assert record.steps(["seconds"], rank=2)["seconds.data"].to_list() == [2.0]
    assert [(gap.kind, gap.rank) for gap in record.gaps()] == [("rank", 1), ("rank", 3)]


def test_a_damaged_segment_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 20), seal_rows=10)
    damaged = sorted((tmp_path / "rank-00000").glob("step-*.parquet"))[0]
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    record = Record(tmp_path)
    steps = record.steps(["loss"])["step"].to_list()
    assert steps
    assert steps[-1] == 20
    assert steps[0] > 1
    gaps = record.gaps()
    assert {gap.kind for gap in gaps} == {"segment", "rows", "steps"}
    assert any(damaged.name in gap.detail for gap in gaps)


def test_a_run_that_is_written_is_read_without_losing_or_doubling_a_row(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, 0.001, seal_rows=5)
    ended = threading.Event()

    def write() -> None:
        for step in range(1, 400):
            writer.append("step", step_row(step))
            if step % 3 == 0:
                writer.flush()
        writer.close()
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    most, readings = 0, 0
    while not ended.is_set():
        steps = Record(tmp_path).steps(["step"])["step"].to_list()
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= most
        most, readings = len(steps), readings + 1
    thread.join()
    assert readings > 5
    assert len(Record(tmp_path).steps(["step"])) == 399


@given(st.lists(st.integers(min_value=0, max_value=30), max_size=60))
def test_final_history_is_what_rewriting_from_each_step_on_leaves(steps: list[int]) -> None:
    kept: list[tuple[int, int]] = []
    for row, step in enumerate(steps):
        kept = [(r, s) for r, s in kept if s < step] + [(row, step)]
    mask = final_history(np.array(steps, dtype=np.int64))
    assert np.flatnonzero(mask).tolist() == [row for row, _ in kept]
    again = [any(earlier >= step for earlier in steps[:row]) for row, step in enumerate(steps)]
    assert replayed(np.array(steps, dtype=np.int64)).tolist() == again


# --- which samples were seen -----------------------------------------------------------------------


def test_every_sample_is_seen_once_over_resumes(tmp_path: Path) -> None:
    write_attempts(tmp_path, (1, 95), (81, 130), (121, 200))
    report = samples_seen(Record(tmp_path))
    assert report.exact
    assert (report.steps, report.samples, report.first, report.last) == (200, 800, 0, 799)
    assert report.replayed_steps == 25
    assert report.as_json()["exact"] is True


def test_lost_and_repeated_samples_are_named(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    for step, (first, last) in enumerate([(0, 4), (6, 10), (8, 12), (12, 16), (13, 14)], start=1):
        writer.append("step", step_row(step, first_sample=first, last_sample=last))
    writer.close()
    report = samples_seen(Record(tmp_path))
    assert not report.exact
    assert report.lost == ((4, 5),)
    assert report.repeated == ((8, 9), (13, 13))
    assert report.samples == 14


def test_samples_that_were_given_in_place_of_a_steps_own_are_what_was_seen(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    others = {2: [[0, 2], [6, 8]], 3: [[3, 4], [3, 4], [20, 22]]}
    for step in range(1, 5):
        first = 4 * (step - 1)
        row = step_row(step, first_sample=first, last_sample=first + 4)
        writer.append("step", row | {"given_samples": others.get(step)})
    writer.close()
    report = samples_seen(Record(tmp_path))
    assert report.repeated == ((0, 1), (3, 3), (3, 3))
    assert report.lost == ((4, 5), (8, 11), (16, 19))
    assert (report.steps, report.samples, report.last) == (4, 12, 21)


def test_samples_missing_from_the_start_are_lost(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    writer.append("step", step_row(1, first_sample=4, last_sample=8))
    writer.close()
    assert samples_seen(Record(tmp_path)).lost == ((0, 3),)


def test_a_step_done_again_on_another_batch_is_named(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    for attempt, step, digest in [(1, 1, "a"), (1, 2, "b"), (2, 2, "c"), (2, 3, "d")]:
        writer.append("step", step_row(step, attempt, batch_digest=digest))
    writer.close()
    report = samples_seen(Record(tmp_path))
    assert report.changed_replays == (2,)
    assert not report.exact


def test_no_steps_cover_no_samples(tmp_path: Path) -> None:
    report = samples_seen(Record(tmp_path))
    assert (report.steps, report.samples, report.first, report.last) == (0, 0, None, None)


@pytest.mark.parametrize("columns", [["loss"], None])
def test_steps_without_a_number_are_left_out(tmp_path: Path, columns: list[str] | None) -> None:
    writer = RecordWriter(tmp_path, 0, NEVER)
    writer.append("step", {"loss": 1.0})
    writer.append("step", step_row(1))
    writer.close()
    table = Record(tmp_path).steps(columns)
    assert table["step"].to_list() == [1]
    assert isinstance(table, pl.DataFrame)
