"""Drawn files are torn, truncated, flipped, missing, exchanged or mixed up: none is loaded silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.checkpoint import load, load_newest, save
from stoker.counter_random import draw_u64, key_of
from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.parallel import join_world
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks

Number = Callable[[int], int]
Files = dict[Path, bytes]
NEWEST = "step-00000002"


def _saving_rank(rank: int, ranks: int, store: Any, folder: Path) -> dict[str, torch.Tensor]:
    with join_world(Layout(dp_shard=2), rank, torch.device("cpu"), store, 60) as world:
        for name, seed in (("other", 1), ("this", 0)):
            training = TinyTraining(world, "lion", seed=seed, layers=1)
            for step in (1, 2):
                training.step(step)
                save(folder / name, step, training.model.held, training.optimizer, {"step": step}, KEEP_ALL)
        return training.whole_state()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Files, dict[str, torch.Tensor]]:
    """A run of two ranks, with the files of another run beside it, and its state."""
    folder = tmp_path_factory.mktemp("runs")
    state = run_ranks(_saving_rank, 2, folder)[0]
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return folder / "this", files, state


def _truncated(content: bytes, number: Number) -> bytes:
    return content[: number(len(content))]


def _torn(content: bytes, number: Number) -> bytes:
    """The file has its size, and its end was never written."""
    place = number(len(content))
    return content[:place] + bytes(len(content) - place)


def _flipped(content: bytes, number: Number) -> bytes:
    changed = bytearray(content)
    changed[number(len(content))] ^= 1 << number(8)
    return bytes(changed)


def _lost(content: bytes, number: Number) -> None:
    return None


def _of_another_step(file: Path, files: Files, number: Number) -> dict[Path, bytes | None]:
    return {file: files[file.parent.parent / "step-00000001" / file.name]}


def _of_another_run(file: Path, files: Files, number: Number) -> dict[Path, bytes | None]:
    return {file: files[file.parents[2] / "other" / NEWEST / file.name]}


def _exchanged(file: Path, files: Files, number: Number) -> dict[Path, bytes | None]:
    others = [path for path in files if path.parent == file.parent and path != file]
    other = others[number(len(others))]
    return {file: files[other], other: files[file]}


def _doubled(file: Path, files: Files, number: Number) -> dict[Path, bytes | None]:
    """One rank's file in the place of another's."""
    first, second = (file.with_name(f"rank-0000{rank}.safetensors") for rank in (0, 1))
    return {first: files[second]} if number(2) else {second: files[first]}


OF_CONTENT = (_truncated, _torn, _flipped, _lost)
OF_PLACE = (_of_another_step, _of_another_run, _exchanged, _doubled)


def _drawn(files: Files, folder: Path, draw: int) -> dict[Path, bytes | None]:
    """What is in which file after the damage."""
    draws = iter(draw_u64(key_of(draw, "damage"), np.arange(8, dtype=np.uint64)))

    def number(below: int) -> int:
        return int(next(draws)) % below

    newest = [path for path in files if path.parent == folder / NEWEST]
    file, kind = newest[number(len(newest))], number(len(OF_CONTENT) + len(OF_PLACE))
    if kind < len(OF_CONTENT):
        return {file: OF_CONTENT[kind](files[file], number)}
    return OF_PLACE[kind - len(OF_CONTENT)](file, files, number)


@contextmanager
def _damaged(changes: dict[Path, bytes | None], files: Files) -> Iterator[None]:
    for path, content in changes.items():
        path.unlink() if content is None else path.write_bytes(content)
    try:
        yield
    finally:
        for path in changes:
            path.write_bytes(files[path])


@pytest.mark.parametrize(
    "draws", [range(150), pytest.param(range(150, 1000), marks=pytest.mark.thorough)], ids=["150", "all"]
)
def test_no_drawn_damage_is_loaded_silently(draws: range, run: tuple[Path, Files, dict[str, torch.Tensor]]) -> None:
    folder, files, state = run
    reader = TinyTraining.alone("lion", seed=2, layers=1)
    refused = 0
    for draw in draws:
        changes = _drawn(files, folder, draw)
        unharmed = all(files[path] == content for path, content in changes.items())
        with _damaged(changes, files):
            try:
                load(folder / NEWEST, reader.model.held, reader.optimizer)
            except StokerError as error:
                refused += "damaged" in str(error)
                continue
        assert unharmed, f"draw {draw} was loaded: {[path.name for path in changes]}"
    assert refused > 0.9 * len(draws)
    load(folder / NEWEST, reader.model.held, reader.optimizer)
    assert_same(reader.whole_state(), state)


def test_the_one_before_is_loaded_in_the_place_of_a_damaged_one(
    run: tuple[Path, Files, dict[str, torch.Tensor]], caplog: pytest.LogCaptureFixture
) -> None:
    folder, files, _ = run
    reader, expected = (TinyTraining.alone("lion", seed=seed, layers=1) for seed in (2, 3))
    load(folder / "step-00000001", expected.model.held, expected.optimizer)
    for kind in ("before it is read", "while it is read"):
        file = folder / NEWEST / "rank-00001.safetensors"
        content = (
            files[file][:-1] if kind == "before it is read" else _flipped(files[file], lambda below: below - 1)
        )
        with _damaged({file: content}, files):
            found = load_newest(folder, reader.model.held, reader.optimizer)
        assert found == (folder / "step-00000001", {"step": 1})
        assert_same(reader.whole_state(), expected.whole_state())
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("stoker.checkpoint")]
    assert "step-00000002" in warning
    assert "rank-00001.safetensors" in warning
    assert "going on from step-00000001" in warning


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_over(
    run: tuple[Path, Files, dict[str, torch.Tensor]],
) -> None:
    folder, files, _ = run
    reader = TinyTraining.alone("lion", seed=2, layers=1)
    harmed = {path: _flipped(files[path], lambda below: below - 1) for path in folder.rglob("rank-00000.*")}
    with _damaged(dict(harmed), files), pytest.raises(StokerError, match=r"every checkpoint in .* is damaged"):
        load_newest(folder, reader.model.held, reader.optimizer)
