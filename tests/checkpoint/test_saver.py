"""Saves beside the training: what is stored is the state that was captured, whatever happens meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import Saver, latest, load, load_newest, newest_set, read_complete, snapshots, writing
from stoker.errors import BadInput, NonFinite, StokerError
from stoker.layout import Layout
from stoker.parallel import World, join_world
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow


def _saver(folder: Path, training: TinyTraining, **options: Any) -> Saver:
    return Saver(folder / "checkpoints", KEEP_ALL, training.model.held, training.optimizer, **options)


def _loaded(source: Any, world: World | None = None) -> tuple[TinyTraining, dict[str, Any]]:
    reader = TinyTraining.alone("adamw", seed=1) if world is None else TinyTraining(world, "adamw", seed=1)
    return reader, load(source, reader.model.held, reader.optimizer)


def test_the_state_that_was_captured_is_stored_while_steps_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: two steps are made before the first byte is written."""
    training = TinyTraining.alone("adamw")
    training.step(1)
    state, go_on = training.whole_state(), threading.Event()
    plain = writing.write_file
    monkeypatch.setattr(writing, "write_file", lambda *args: go_on.wait(30) and plain(*args))
    saver, progress = _saver(tmp_path, training), {"step": 1, "nested": {"step": 1}}
    saver.stage(1, progress)
    progress["nested"]["step"] = 2
    saver.settle()
    training.train(2, 3)
    assert saver.poll() == []
    go_on.set()
    (outcome,) = saver.finish()
    assert outcome.error is None
    assert outcome.path == latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-00000001"
    assert outcome.bytes == sum(file.stat().st_size for file in outcome.path.glob("*.safetensors"))
    reader, stored = _loaded(outcome.path)
    assert_same(reader.whole_state(), state)
    assert stored == {"step": 1, "nested": {"step": 1}}


def test_settling_waits_for_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = TinyTraining.alone("adamw")
    training.step(1)
    state, plain = training.whole_state(), snapshots.Slot.take

    def slow(slot: snapshots.Slot, piece: Any, tensor: torch.Tensor) -> None:
        time.sleep(0.002)
        plain(slot, piece, tensor)

    monkeypatch.setattr(snapshots.Slot, "take", slow)
    saver = _saver(tmp_path, training)
    saver.stage(1, {})
    saver.settle()
    training.step(2)
    (outcome,) = saver.finish()
    assert outcome.stalled_seconds > 0.05
    assert outcome.path is not None
    assert_same(_loaded(outcome.path)[0].whole_state(), state)


def test_the_next_save_waits_for_the_one_before_and_says_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, go_on = writing.write_file, threading.Event()
    monkeypatch.setattr(writing, "write_file", lambda *args: go_on.wait(30) and plain(*args))
    training = TinyTraining.alone("adamw")
    saver, states = _saver(tmp_path, training), {}
    for step in (1, 2):
        saver.settle()
        training.step(step)
        states[step] = training.whole_state()
        thread = threading.Thread(target=saver.stage, args=(step, {"step": step}))
        thread.start()
        if step == 1:
            thread.join()
    time.sleep(0.1)
    assert thread.is_alive(), "the second save did not wait"
    go_on.set()
    thread.join()
    outcomes = saver.finish()
    assert [outcome.step for outcome in outcomes] == [1, 2]
    assert outcomes[1].stalled_seconds > 0.1
    for outcome in outcomes:
        assert outcome.path is not None
        assert_same(_loaded(outcome.path)[0].whole_state(), states[outcome.step])


def _poisoned_rank(rank: int, ranks: int, store: Any, folder: Path, keeps: bool) -> tuple[str, list[str]]:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 30) as world:
        training = TinyTraining(world, "adamw")
        own = folder / f"rank-{rank}" if keeps else None
        saver = _saver(folder, training, snapshots=own)
        training.step(1)
        saver.stage(1, {})
        saver.finish()
        bias = training.model.part.get_parameter("norm.bias").to_local()
        if rank == 1:
            with torch.no_grad():
                bias[0] = float("nan")
        saver.stage(2, {})
        (outcome,) = saver.finish()
        saver.close()
        assert isinstance(outcome.error, NonFinite)
        assert isinstance(saver.non_finite, NonFinite)
        return str(saver.non_finite), [f"{one.step}" for one in (read_complete(own) if own else [])]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_state_that_is_not_finite_on_one_rank_is_kept_on_none(keeps: bool, tmp_path: Path) -> None:
    first, second = run_ranks(_poisoned_rank, 2, tmp_path, keeps)
    assert first == second
    assert "norm.bias" in first[0]
    assert first[1] == (["1"] if keeps else [])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_save_that_fails_is_told_and_the_next_one_works(tmp_path: Path) -> None:
    training = TinyTraining.alone("adamw")
    training.step(1)
    saver = _saver(tmp_path, training)
    saver.stage(1, {})
    saver.finish()
    (tmp_path / "checkpoints").rename(tmp_path / "gone")
    (tmp_path / "checkpoints").write_text("in the way")
    saver.stage(2, {})
    (failed,) = saver.finish()
    assert failed.path is None
    assert isinstance(failed.error, StokerError)
    assert "file stands where a folder is expected" in str(failed.error)
    (tmp_path / "checkpoints").unlink()
    (tmp_path / "gone").rename(tmp_path / "checkpoints")
    saver.stage(3, {})
    (saved,) = saver.finish()
    assert saved.path == latest(tmp_path / "checkpoints")


def test_checkpoints_are_written_while_there_is_no_room_for_copies_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    training, plain = TinyTraining.alone("adamw"), snapshots._mapped
    saver = _saver(tmp_path, training, snapshots=tmp_path / "memory")

    def full(size: int, file: Path | None) -> Any:
        if file is not None:
            raise StokerError(f"could not write {file}: the disk is full")
        return plain(size, file)

    monkeypatch.setattr(snapshots, "_mapped", full)
    training.step(1)
    state = training.whole_state()
    for step, durable in ((1, True), (1, False), (1, False), (2, True)):
        saver.stage(step, {}, durable=durable)
        assert [one.error for one in saver.finish()] == [None] * durable
        assert not read_complete(tmp_path / "memory")
    assert caplog.text.count("step 1 and later ones are not kept in memory") == 1
    assert_same(_loaded(tmp_path / "checkpoints" / "step-00000002")[0].whole_state(), state)
    monkeypatch.undo()
    saver.stage(3, {}, durable=False)
    saver.close()
    assert [one.step for one in read_complete(tmp_path / "memory")] == [3]


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    training = TinyTraining.alone("adamw")
    before, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    saver = _saver(tmp_path, training, snapshots=tmp_path / "memory")
    for step in (1, 2, 3):
        saver.stage(step, {})
        saver.settle()
        training.step(step)
    saver.close()
    assert threading.active_count() == before
    assert len(os.listdir("/proc/self/fd")) <= files + 1


# --- snapshots -------------------------------------------------------------------------------------------------


def _keeping_rank(rank: int, ranks: int, store: Any, layout: Layout, folder: Path, last: int) -> Any:
    with join_world(layout, rank, torch.device("cpu"), store, 30) as world:
        training = TinyTraining(world, "adamw")
        saver = _saver(folder, training, snapshots=folder / f"rank-{rank:05d}")
        for step in range(1, last + 1):
            saver.settle()
            training.step(step)
            saver.stage(step, {"step": step}, durable=False)
        saver.close()
        return training.whole_state()


def _resuming_rank(rank: int, ranks: int, store: Any, layout: Layout, folder: Path) -> Any:
    with join_world(layout, rank, torch.device("cpu"), store, 30) as world:
        reader, progress = _loaded(newest_set(folder.glob("rank-*")), world)
        assert progress == {"step": 3}
        return reader.whole_state()


@pytest.mark.parametrize("layout", [Layout(dp_shard=3), Layout(dp_replicate=2)], ids=str)
def test_any_layout_loads_what_is_left_in_memory_by_another(layout: Layout, tmp_path: Path) -> None:
    expected = run_ranks(_keeping_rank, layout.world_size, layout, tmp_path, 3)[0]
    assert not (tmp_path / "checkpoints").exists()
    reader, progress = _loaded(newest_set(tmp_path.glob("rank-*")))
    assert progress == {"step": 3}
    assert_same(reader.whole_state(), expected)
    for state in run_ranks(_resuming_rank, 2, Layout(dp_shard=2), tmp_path):
        assert_same(state, expected)


def test_the_memory_of_a_lost_rank_is_not_missed_where_another_holds_the_same(tmp_path: Path) -> None:
    expected = run_ranks(_keeping_rank, 2, Layout(dp_replicate=2), tmp_path, 3)[0]
    for note in (tmp_path / "rank-00000").glob("*.json"):
        note.unlink()
    assert_same(_loaded(newest_set(tmp_path.glob("rank-*")))[0].whole_state(), expected)


def test_the_memory_of_a_lost_rank_is_missed_where_nobody_else_holds_it(tmp_path: Path) -> None:
    run_ranks(_keeping_rank, 2, Layout(dp_shard=2), tmp_path, 3)
    newest = read_complete(tmp_path / "rank-00001")[0]
    newest.file.with_suffix(".json").unlink()
    found = newest_set(tmp_path.glob("rank-*"))
    assert {one.step for folder in tmp_path.glob("rank-*") for one in read_complete(folder)} == {2, 3}
    assert _loaded(found)[1] == {"step": 2}
    for note in (tmp_path / "rank-00001").glob("*.json"):
        note.unlink()
    assert newest_set(tmp_path.glob("rank-*")) == []


def test_memory_of_different_starts_is_not_mixed(tmp_path: Path) -> None:
    """Two runs of two ranks leave the same steps; one rank of each is not a state."""
    for name in ("one", "other"):
        run_ranks(_keeping_rank, 2, Layout(dp_shard=2), tmp_path / name, 3)
    mixed = [tmp_path / "one" / "rank-00000", tmp_path / "other" / "rank-00001"]
    assert newest_set(mixed) == []
    with pytest.raises(BadInput, match="not a complete set"):
        _loaded([read_complete(folder)[0].file for folder in mixed])


def test_a_flipped_bit_in_memory_is_not_loaded(tmp_path: Path) -> None:
    _keep_alone(tmp_path, 3)
    (file,) = newest_set([tmp_path / "memory"])
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(StokerError, match="damaged"):
        _loaded([file])


def _keep_alone(folder: Path, last: int) -> dict[int, dict[str, torch.Tensor]]:
    training = TinyTraining.alone("adamw")
    saver, states = _saver(folder, training, snapshots=folder / "memory"), {}
    for step in range(1, last + 1):
        saver.settle()
        training.step(step)
        states[step] = training.whole_state()
        saver.stage(step, {"step": step}, durable=step == 1)
        if step == 1:
            saver.finish()
    saver.close()
    return states


def test_two_steps_are_kept_and_the_newest_is_loaded(tmp_path: Path) -> None:
    states = _keep_alone(tmp_path, 4)
    assert [one.step for one in read_complete(tmp_path / "memory")] == [4, 3]
    reader = TinyTraining.alone("adamw", seed=1)
    memory = [tmp_path / "memory"]
    found = load_newest(tmp_path / "checkpoints", reader.model.held, reader.optimizer, memory)
    assert found is not None
    assert found[1] == {"step": 4}
    assert_same(reader.whole_state(), states[4])
    for note in (tmp_path / "memory").glob("*.json"):
        note.unlink()
    found = load_newest(tmp_path / "checkpoints", reader.model.held, reader.optimizer, memory)
    assert found == (tmp_path / "checkpoints" / "step-00000001", {"step": 1})


def test_what_a_run_went_on_from_stays_until_there_is_a_newer_one(tmp_path: Path) -> None:
    _keep_alone(tmp_path, 3)
    training = TinyTraining.alone("adamw")
    saver = _saver(tmp_path, training, snapshots=tmp_path / "memory", step=3)
    assert [one.step for one in read_complete(tmp_path / "memory")] == [3]
    kept = []
    for step in (4, 5, 6):
        saver.stage(step, {}, durable=False)
        saver.finish()
        kept.append([one.step for one in read_complete(tmp_path / "memory")])
    saver.close()
    assert kept == [[4, 3], [5, 4], [6, 5]]


def _train_without_end(folder: Path) -> None:
    torch.set_num_threads(1)
    training = TinyTraining.alone("adamw")
    saver = _saver(folder, training, snapshots=folder / "memory")
    step = 0
    while True:
        step += 1
        saver.settle()
        training.step(step)
        saver.stage(step, {"step": step}, durable=False)


def test_a_kill_at_any_time_leaves_a_whole_step_in_memory(tmp_path: Path) -> None:
    reference = TinyTraining.alone("adamw")
    done, states = 0, {}
    for number in range(6):
        folder = tmp_path / str(number)
        process = multiprocessing.get_context("fork").Process(
            target=_train_without_end, args=(folder,), daemon=True
        )
        process.start()
        deadline = time.monotonic() + 60
        while not read_complete(folder / "memory") and time.monotonic() < deadline:
            time.sleep(0.001)
        process.join(0.013 * number)
        process.kill()
        process.join()
        reader, progress = _loaded(newest_set([folder / "memory"]))
        for step in range(done + 1, progress["step"] + 1):
            reference.step(step)
            states[step] = reference.whole_state()
            done = step
        assert_same(reader.whole_state(), states[progress["step"]])


def test_what_ranks_left_that_are_no_more_is_removed(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 11):
        (snapshots.folder_of(tmp_path, rank)).mkdir()
    snapshots.remove_beyond(tmp_path, 2)
    assert snapshots.folders_in(tmp_path) == [tmp_path / "rank-00000", tmp_path / "rank-00001"]
