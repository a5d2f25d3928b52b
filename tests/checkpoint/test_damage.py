"""No damage is ever loaded, and the newest checkpoint without any is found."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.checkpoint import latest, load, read_weights, reading, save
from stoker.checkpoint.integrity import find_damage
from stoker.checkpoint.manifest import read_manifest
from stoker.counter_random import draw_u64, key_of
from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.parallel import join_world
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks

DRAWS = 50


def _saving_rank(rank: int, ranks: int, store: Any, folder: Path) -> None:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 60) as world:
        training = TinyTraining(world, "adamw")
        for step in (1, 2):
            training.step(step)
            save(folder, step, training.model.held, training.optimizer, {"step": step}, KEEP_ALL)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, each written by two ranks."""
    folder = tmp_path_factory.mktemp("originals")
    run_ranks(_saving_rank, 2, folder)
    assert {path.name for path in (folder / "step-00000001").iterdir()} == {
        "rank-00000.safetensors",
        "rank-00001.safetensors",
        "manifest.json",
        "committed",
    }
    return folder


@pytest.fixture
def checkpoints(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals, tmp_path / "checkpoints"))


def _truncate(folder: Path, number: Callable[[int], int]) -> None:
    file = _drawn_file(folder, number)
    content = file.read_bytes()
    file.write_bytes(content[: number(len(content))])


def _flip_a_bit(folder: Path, number: Callable[[int], int]) -> None:
    file = _drawn_file(folder, number)
    content = bytearray(file.read_bytes())
    content[number(len(content))] ^= 1 << number(8)
    file.write_bytes(content)


def _lose(folder: Path, number: Callable[[int], int]) -> None:
    _drawn_file(folder, number).unlink()


def _swap_two(folder: Path, number: Callable[[int], int]) -> None:
    files = sorted(folder.iterdir())
    one = files.pop(number(len(files)))
    other = files[number(len(files))]
    one_content, other_content = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_content)
    other.write_bytes(one_content)


def _mix_in_a_file_of_another_checkpoint(folder: Path, number: Callable[[int], int]) -> None:
    file = _drawn_file(folder, number)
    shutil.copyfile(folder.with_name("step-00000001") / file.name, file)


def _drawn_file(folder: Path, number: Callable[[int], int]) -> Path:
    files = sorted(folder.iterdir())
    return files[number(len(files))]


DAMAGES = [_truncate, _flip_a_bit, _lose, _swap_two, _mix_in_a_file_of_another_checkpoint]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_drawn_damage_is_loaded(
    damage: Callable[[Path, Callable[[int], int]], None], originals: Path, tmp_path: Path
) -> None:
    reader = TinyTraining.alone("adamw", seed=1)
    weights = read_weights(originals / "step-00000002")
    for draw in range(DRAWS // len(DAMAGES)):
        draws = iter(draw_u64(key_of(draw, damage.__name__), np.arange(8, dtype=np.uint64)))
        folder = Path(shutil.copytree(originals, tmp_path / str(draw)))
        damage(folder / "step-00000002", lambda below, draws=draws: int(next(draws)) % below)
        with pytest.raises(StokerError, match="damaged"):
            load(folder / "step-00000002", reader.model.held, reader.optimizer)
        try:  # of files that are harmed elsewhere weights are as good as ever
            assert_same(read_weights(folder / "step-00000002"), weights)
        except StokerError:
            assert find_damage(folder / "step-00000002") is not None
        assert latest(folder) == folder / "step-00000001"


def test_a_checkpoint_under_another_steps_name_is_passed_over(checkpoints: Path) -> None:
    (checkpoints / "step-00000001").rename(checkpoints / "step-00000003")
    assert latest(checkpoints) == checkpoints / "step-00000002"


def test_damage_after_a_first_look_is_seen(checkpoints: Path) -> None:
    """Files already hashed are not hashed again, unless they changed."""
    newest = latest(checkpoints)
    assert newest == checkpoints / "step-00000002"
    file = newest / "rank-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert latest(checkpoints) == checkpoints / "step-00000001"


def test_contents_are_read_once_in_a_process(checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, which are short and say what the contents are, are looked at every time."""
    read: list[int] = []
    plain = reading.LocalFile.read_into

    def noting(file: reading.LocalFile, memory: memoryview, offset: int) -> None:
        read.append(len(memory) if offset else 0)
        plain(file, memory, offset)

    monkeypatch.setattr(reading.LocalFile, "read_into", noting)
    newest = latest(checkpoints)
    assert newest is not None
    looked_at = sum(read)
    assert latest(checkpoints) == newest
    assert sum(read) == looked_at
    reader = TinyTraining.alone("adamw", seed=1)
    load(newest, reader.model.held, reader.optimizer)
    manifest = read_manifest(newest)
    assert sum(read) - looked_at == sum(entry.bytes for file in manifest.files.values() for entry in file.pieces)


def test_damaged_and_unfinished_folders_are_named_in_one_warning(
    checkpoints: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoints / "step-00000002" / "committed").unlink()
    partial = checkpoints / ".step-00000003.partial-0123abcd"
    partial.mkdir()
    (partial / "rank-00000.safetensors").write_bytes(b"half")
    with caplog.at_level(logging.WARNING, logger="stoker.checkpoint"):
        assert latest(checkpoints) == checkpoints / "step-00000001"
        assert latest(checkpoints) == checkpoints / "step-00000001"
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("stoker.checkpoint")]
    assert "step-00000002 (committed is missing" in warning
    assert ".step-00000003.partial-0123abcd" in warning
    assert "going on from step-00000001" in warning


def test_no_folder_and_an_empty_one_hold_no_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path / "absent") is None
    assert latest(tmp_path) is None
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    (tmp_path / "step-00000004").write_text("a file, not a folder")
    assert latest(tmp_path) is None


def _looking_rank(rank: int, ranks: int, store: Any, folder: Path) -> tuple[Path | None, str]:
    with join_world(Layout(dp_replicate=2), rank, torch.device("cpu"), store, 60) as world:
        found = latest(folder)
        training = TinyTraining(world, "adamw")
        with pytest.raises(StokerError) as refusal:
            load(folder / "step-00000002", training.model.held, training.optimizer)
        return found, str(refusal.value)


@pytest.mark.parametrize("file", ["rank-00000.safetensors", "rank-00001.safetensors"])
def test_ranks_share_the_hashing_and_agree(checkpoints: Path, file: str) -> None:
    path = checkpoints / "step-00000002" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    first, second = run_ranks(_looking_rank, 2, checkpoints)
    assert first == second
    assert first[0] == checkpoints / "step-00000001"
    assert file in first[1]
