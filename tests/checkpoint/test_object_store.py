"""Checkpoints in an object store, which knows no rename: a store in memory stands for all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from stoker.checkpoint import Saver, latest, load, load_newest, read_weights, save
from stoker.checkpoint.place import ObjectFolder, place
from stoker.errors import BadInput, StokerError
from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.recipe import Checkpoint
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks


@pytest.fixture
def store() -> Iterator[ObjectFolder]:
    folder = place(f"memory://run-{uuid.uuid4().hex}/checkpoints")
    assert isinstance(folder, ObjectFolder)
    yield folder
    folder.discard()


def _trained() -> TinyTraining:
    training = TinyTraining.alone("adamw")
    training.step(1)
    return training


def _save(store: ObjectFolder, step: int, training: TinyTraining, policy: Checkpoint = KEEP_ALL) -> ObjectFolder:
    return save(store, step, training.model.held, training.optimizer, {"step": step}, policy)


def _steps(store: ObjectFolder) -> list[str]:
    return sorted(one.name[: len("step-00000000")] for one in store.iterdir())


def test_what_is_saved_there_is_found_and_loaded(store: ObjectFolder) -> None:
    assert latest(store) is None
    training = _trained()
    _save(store, 1, training)
    training.step(2)
    saved = _save(store, 2, training)
    assert latest(store) == saved
    reader = TinyTraining.alone("adamw", seed=1)
    assert load_newest(store, reader.model.held, reader.optimizer) == (saved, {"step": 2})
    assert_same(reader.whole_state(), training.whole_state())
    weights = {name: value for name, value in training.whole_state().items() if "/" not in name}
    assert_same(read_weights(saved), weights)


def test_a_saver_writes_there(store: ObjectFolder) -> None:
    training = _trained()
    saver = Saver(store, KEEP_ALL, training.model.held, training.optimizer)
    saver.stage(1, {"step": 1})
    (outcome,) = saver.finish()
    saver.close()
    assert outcome.error is None
    assert outcome.path == latest(store)


def test_what_was_never_completed_is_passed_over_and_removed_after_the_next_save(store: ObjectFolder) -> None:
    training = _trained()
    good = _save(store, 1, training)
    unfinished = _save(store, 2, training)
    (unfinished / "committed").discard()
    assert latest(store) == good
    _save(store, 3, training)
    assert _steps(store) == ["step-00000001", "step-00000003"]


def test_retention_removes_there_too(store: ObjectFolder) -> None:
    training = _trained()
    for step in range(1, 6):
        _save(store, step, training, Checkpoint(keep_last=2, keep_every=2))
    assert _steps(store) == ["step-00000002", "step-00000004", "step-00000005"]


def test_damage_there_is_found(store: ObjectFolder) -> None:
    training = _trained()
    good = _save(store, 1, training)
    bad = _save(store, 2, training)
    file = bad / "rank-00000.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert latest(store) == good
    reader = TinyTraining.alone("adamw", seed=1)
    with pytest.raises(StokerError, match="damaged"):
        load(bad, reader.model.held, reader.optimizer)
    found = load_newest(store, reader.model.held, reader.optimizer)
    assert found is not None
    assert found[0] == good
    assert_same(reader.whole_state(), training.whole_state())


def test_a_store_that_fails_leaves_what_was_complete(store: ObjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    training = _trained()
    good = _save(store, 1, training)

    def refuse(*args: Any, **options: Any) -> None:
        raise OSError("503 slow down")

    with monkeypatch.context() as patched:
        patched.setattr(fsspec.implementations.memory.MemoryFileSystem, "pipe_file", refuse)
        with pytest.raises(StokerError, match="503 slow down"):
            _save(store, 2, training)
    assert latest(store) == good
    assert _steps(store) == ["step-00000001"]


class _Dying:
    """Every operation that changes a store fails from the `number`-th on, as for a process that is no more."""

    def __init__(self, number: int) -> None:
        self.left = number

    def dies(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError("killed")
            return plain(*args, **options)

        return operation


def test_a_kill_before_any_operation_leaves_a_complete_checkpoint(
    store: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a save and the retention after it, with one checkpoint kept."""
    training, one = _trained(), Checkpoint(keep_last=1)
    states = {1: training.whole_state()}
    _save(store / "start", 1, training)
    training.step(2)
    states[2] = training.whole_state()
    found = []
    for number in range(100):
        folder, dying = store / str(number), _Dying(number)
        folder._files.copy(f"{store._path}/start", folder._path, recursive=True)
        kind = fsspec.implementations.memory.MemoryFileSystem
        with monkeypatch.context() as patched:
            for name in ("pipe_file", "_open", "rm", "makedirs", "rm_file"):
                patched.setattr(kind, name, dying.dies(getattr(kind, name)))
            with suppress(StokerError):
                _save(folder, 2, training, one)
        newest = latest(folder)
        assert newest is not None
        reader = TinyTraining.alone("adamw", seed=1)
        step = load(newest, reader.model.held, reader.optimizer)["step"]
        assert_same(reader.whole_state(), states[step])
        found.append(step)
        if dying.left >= 0:
            break
    assert found == sorted(found)
    assert set(found) == {1, 2}
    assert len(found) > 5
    assert _steps(folder) == ["step-00000002"]


def _saving_rank(rank: int, ranks: int, store: Any, url: str) -> dict[str, torch.Tensor]:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 60) as world:
        training = TinyTraining(world, "adamw")
        training.step(1)
        saved = save(place(url), 1, training.model.held, training.optimizer, {}, KEEP_ALL)  # type: ignore[type-var]
        reader = TinyTraining(world, "adamw", seed=1)
        load(saved, reader.model.held, reader.optimizer)
        assert_same(reader.whole_state(), training.whole_state())
        return training.whole_state()


def test_all_ranks_write_into_one_folder_there(tmp_path: Path) -> None:
    """`local://` is fsspec's own view of the disk, which processes share."""
    url = f"local://{tmp_path}/checkpoints"
    expected = run_ranks(_saving_rank, 2, url)[0]
    reader = TinyTraining.alone("adamw", seed=1)
    assert load_newest(place(url), reader.model.held, reader.optimizer) is not None
    assert_same(reader.whole_state(), expected)


def test_file_addresses_and_paths_are_local_folders() -> None:
    assert place("file:///some/where") == place("/some/where") == Path("/some/where")


def test_an_address_that_nothing_here_speaks_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="Protocol not known: nowhere"):
        place("nowhere://bucket/run")

    def absent(*args: Any, **options: Any) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    with pytest.raises(BadInput, match="s3fs"):
        place("s3://bucket/run")
