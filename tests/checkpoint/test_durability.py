"""At every instant there is a complete checkpoint, whatever ends a save."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.checkpoint import latest, load, save
from stoker.counter_random import draw_u64, key_of
from stoker.durable_files import remove_partials
from stoker.errors import NonFinite, StokerError
from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.recipe import Checkpoint
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow

KEEP_ONE = Checkpoint(keep_last=1)
_FILE_EVENTS = {
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.listdir",
    "os.scandir",
    "shutil.rmtree",
}


def _trained(last: int) -> TinyTraining:
    training = TinyTraining.alone("adamw")
    training.train(1, last)
    return training


def _save(folder: Path, step: int, training: TinyTraining, policy: Checkpoint = KEEP_ALL) -> Path:
    return save(folder, step, training.model.held, training.optimizer, training.progress(step), policy)


def _in_a_fork(action: Callable[[], None]) -> int | None:
    """Run `action` in another process; its exit code, negative for a signal."""
    process = multiprocessing.get_context("fork").Process(target=_then_exit, args=(action,), daemon=True)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail("the other process hung")
    return process.exitcode


def _then_exit(action: Callable[[], None]) -> None:
    torch.set_num_threads(1)
    action()
    os._exit(0)


def _kill_self_at_file_event(number: int, folder: Path) -> None:
    """Kill this process just before its `number`-th operation on a file of `folder`."""
    remaining = number

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal remaining
        if event in _FILE_EVENTS and arguments and str(folder) in str(arguments[0]):
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _assert_one_of(folder: Path, states: dict[int, dict[str, torch.Tensor]]) -> int:
    """The newest complete checkpoint loads, and is exactly the state of its step; returns the step."""
    newest = latest(folder)
    assert newest is not None, sorted(path.name for path in folder.iterdir())
    reader = TinyTraining.alone("adamw", seed=1)
    progress = load(newest, reader.model.held, reader.optimizer)
    assert_same(reader.whole_state(), states[progress["step"]])
    return int(progress["step"])


def test_a_kill_before_any_file_operation_of_a_save_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    """Every phase of the save and of the retention after it, with one checkpoint kept."""
    training = _trained(1)
    states = {1: training.whole_state()}
    start = _save(tmp_path / "start", 1, training).parent
    training.step(2)
    states[2] = training.whole_state()
    found = []
    for number in range(1, 200):
        folder = Path(shutil.copytree(start, tmp_path / str(number)))

        def action(folder: Path = folder, number: int = number) -> None:
            _kill_self_at_file_event(number, folder)
            _save(folder, 2, training, KEEP_ONE)

        code = _in_a_fork(action)
        found.append(_assert_one_of(folder, states))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        _save(folder, 2, training, KEEP_ONE)  # the resumed run comes to the same step
        assert _assert_one_of(folder, states) == 2
        remove_partials(folder)
        assert [path.name for path in folder.iterdir()] == ["step-00000002"]
    else:
        pytest.fail("the save never came to its end")
    assert len(found) > 20, "hardly any file operation was met"
    assert found == sorted(found), "once the new checkpoint is there it stays"
    assert {1, 2} <= set(found)


def test_a_kill_at_drawn_times_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    """The clock decides, so that writes are cut off in the middle too."""
    folder = tmp_path / "checkpoints"
    training = TinyTraining.alone("adamw", width=64, vocabulary=11)
    training.step(1)
    begun = time.monotonic()
    _save(folder, 1, training, KEEP_ONE)
    longest = 0.1 + 5 * (time.monotonic() - begun)  # some saves end before the kill, however slow the machine
    delays = draw_u64(key_of(3, "kill"), np.arange(15, dtype=np.uint64)) / 2.0**64 * longest

    def save_without_end(first: int) -> None:
        step = first
        while True:
            step += 1
            _save(folder, step, training, KEEP_ONE)

    for delay in delays:
        before = latest(folder)
        assert before is not None
        first = int(before.name.removeprefix("step-"))
        process = multiprocessing.get_context("fork").Process(target=save_without_end, args=(first,), daemon=True)
        process.start()
        process.join(float(delay))
        assert process.exitcode is None
        process.kill()
        process.join()
        after = latest(folder)
        assert after is not None
        assert after.name >= before.name
    newest = latest(folder)
    assert newest is not None
    assert newest.name > "step-00000001", "no save ever ended"


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes fails in this process, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 64, 3000, 8000, 20_000])
def test_a_write_that_fails_leaves_the_last_checkpoint_and_nothing_half_written(size: int, tmp_path: Path) -> None:
    training = _trained(1)
    state = training.whole_state()
    good = _save(tmp_path, 1, training, KEEP_ONE)
    training.step(2)
    with pytest.raises(StokerError, match="could not write"), _largest_file(size):
        _save(tmp_path, 2, training, KEEP_ONE)
    assert list(tmp_path.iterdir()) == [good]
    assert _assert_one_of(tmp_path, {1: state}) == 1
    assert _save(tmp_path, 2, training, KEEP_ONE) == latest(tmp_path)


def _limited_rank(rank: int, ranks: int, store: Any, layout: Layout, folder: Path, limited: int) -> str:
    with join_world(layout, rank, torch.device("cpu"), store, 30) as world:
        training = TinyTraining(world, "adamw", width=64)
        training.step(1)
        _save(folder, 1, training, KEEP_ONE)
        training.step(2)
        with pytest.raises(StokerError) as failure, _largest_file(20_000 if rank == limited else 2**40):
            _save(folder, 2, training, KEEP_ONE)
        _save(folder, 3, training, KEEP_ONE)  # every rank is still in step with the others
        return str(failure.value)


@pytest.mark.parametrize("layout", [Layout(dp_replicate=2), Layout(dp_shard=2)], ids=str)
@pytest.mark.parametrize("limited", [0, 1])
def test_a_full_disk_on_one_rank_fails_the_save_on_all(limited: int, layout: Layout, tmp_path: Path) -> None:
    first, second = run_ranks(_limited_rank, 2, layout, tmp_path, limited)
    assert first == second
    assert "could not write" in first
    assert "Nothing that was complete is lost" in first
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def _one_sided_failures(rank: int, ranks: int, store: Any, folder: Path) -> list[str]:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 30) as world:
        training = TinyTraining(world, "adamw", width=64)
        training.step(1)
        good = _save(folder, 1, training, KEEP_ONE)
        large = {"notes": "x" * 500_000}  # makes rank 0's manifest too large, when all tensors are written
        with pytest.raises(StokerError) as full, _largest_file(200_000):
            save(folder, 2, training.model.held, training.optimizer, large, KEEP_ONE)
        bias = training.model.part.get_parameter("norm.bias").to_local()
        if rank == 1:
            with torch.no_grad():
                bias[0] = float("nan")
        with pytest.raises(NonFinite) as poisoned:
            _save(folder, 2, training, KEEP_ONE)
        assert latest(folder) == good
        return [str(full.value), str(poisoned.value)]


def test_what_fails_on_one_rank_alone_is_raised_on_all(tmp_path: Path) -> None:
    first, second = run_ranks(_one_sided_failures, 2, tmp_path)
    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StokerError, match="a file stands where a folder is expected"):
        _save(tmp_path / "checkpoints", 1, _trained(1))


def test_an_unfinished_folder_is_neither_counted_nor_in_the_way(tmp_path: Path) -> None:
    training = _trained(1)
    _save(tmp_path, 1, training)
    partial = tmp_path / ".step-00000002.partial-0123abcd"
    shutil.copytree(tmp_path / "step-00000001", partial)
    (partial / "committed").unlink()
    unmarked = tmp_path / "step-00000002"
    shutil.copytree(partial, unmarked)
    assert latest(tmp_path) == tmp_path / "step-00000001"
    training.step(2)
    _save(tmp_path, 2, training, Checkpoint(keep_last=2))
    assert latest(tmp_path) == tmp_path / "step-00000002"
    assert (tmp_path / "step-00000001").is_dir()


def test_saving_a_complete_step_again_leaves_it_as_it_is(tmp_path: Path) -> None:
    training = _trained(1)
    state = training.whole_state()
    path = _save(tmp_path, 1, training)
    inode = (path / "manifest.json").stat().st_ino
    training.step(2)
    assert _save(tmp_path, 1, training) == path
    assert (path / "manifest.json").stat().st_ino == inode
    assert _assert_one_of(tmp_path, {1: state}) == 1


def test_saving_a_damaged_step_again_replaces_it(tmp_path: Path) -> None:
    training = _trained(1)
    path = _save(tmp_path, 1, training)
    content = bytearray((path / "rank-00000.safetensors").read_bytes())
    content[100] ^= 1
    (path / "rank-00000.safetensors").write_bytes(content)
    assert latest(tmp_path) is None
    _save(tmp_path, 1, training)
    assert _assert_one_of(tmp_path, {1: training.whole_state()}) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (Checkpoint(keep_last=1), [7]),
        (Checkpoint(keep_last=3), [5, 6, 7]),
        (Checkpoint(keep_last=50), [1, 2, 3, 4, 5, 6, 7]),
        (Checkpoint(keep_last=1, keep_every=3), [3, 6, 7]),
        (Checkpoint(keep_last=2, keep_every=2), [2, 4, 6, 7]),
    ],
    ids=str,
)
def test_retention_keeps_what_the_policy_says(policy: Checkpoint, kept: list[int], tmp_path: Path) -> None:
    training = _trained(1)
    for step in range(1, 8):
        _save(tmp_path, step, training, policy)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{step:08d}" for step in kept]


def test_retention_keeps_those_with_the_smallest_loss(tmp_path: Path) -> None:
    """Steps that were not evaluated have none, and equals give way to the later one."""
    losses = {1: 3.0, 2: 2.0, 3: None, 4: 2.0, 5: float("nan"), 6: 2.5, 7: 4.0}
    training = _trained(1)
    for step, loss in losses.items():
        progress = {"held_out_loss": loss}
        policy = Checkpoint(keep_last=1, keep_best=2 if step > 6 else 3)
        save(tmp_path, step, training.model.held, training.optimizer, progress, policy)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{step:08d}" for step in (2, 4, 7)]


def test_retention_does_not_count_damaged_checkpoints(tmp_path: Path) -> None:
    training = _trained(1)
    for step in (1, 2, 3):
        _save(tmp_path, step, training)
    (tmp_path / "step-00000003" / "rank-00000.safetensors").unlink()
    _save(tmp_path, 4, training, Checkpoint(keep_last=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003", "step-00000004"]


def _clocked_rank(rank: int, ranks: int, store: Any, folder: Path) -> list[str]:
    os.environ["TZ"] = ("Asia/Shanghai", "UTC")[rank]
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 60) as world:
        training = TinyTraining(world, "adamw")
        training.step(1)
        path = _save(folder, 1, training)
        return sorted(file.name for file in path.iterdir())


def test_all_ranks_write_into_the_folder_rank_0_chose(tmp_path: Path) -> None:
    first, second = run_ranks(_clocked_rank, 2, tmp_path)
    assert first == second
    assert {"rank-00000.safetensors", "rank-00001.safetensors"} <= set(first)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_the_manifest_names_the_step_of_the_state_it_stands_beside(tmp_path: Path) -> None:
    """Steps that go on after a save returned do not reach into it."""
    training = _trained(1)
    state, progress = training.whole_state(), training.progress(1)
    progress["nested"] = {"step": 1}
    save(tmp_path, 1, training.model.held, training.optimizer, progress, KEEP_ALL)
    progress["nested"]["step"] = 2
    training.train(2, 3)
    newest = latest(tmp_path)
    assert newest is not None
    reader = TinyTraining.alone("adamw", seed=1)
    assert load(newest, reader.model.held, reader.optimizer)["nested"] == {"step": 1}
    assert_same(reader.whole_state(), state)


def test_no_thread_or_open_file_is_left_behind(tmp_path: Path) -> None:
    training = _trained(1)
    _save(tmp_path, 1, training)
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for step in (2, 3, 4):
        _save(tmp_path, step, training)
        load(tmp_path / "step-00000001", training.model.held, training.optimizer)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= files + 1
