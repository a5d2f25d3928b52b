"""What is written past the cache is what was given, however it lies in memory and whatever the disk can do."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stoker.checkpoint import direct, reading
from stoker.checkpoint.direct import BLOCK, direct_file
from stoker.counter_random import draw_u64, key_of

Bytes = npt.NDArray[np.uint8]
MIB = 2**20
# fmt: off
_SIZES = [
    [], [0], [1], [BLOCK], [BLOCK + 1], [3, BLOCK, 5], [2 * MIB], [2 * MIB + 7, 1], [BLOCK, 2 * MIB, 9, 3 * MIB],
    [5, 33 * MIB, 5], [17 * MIB, 17 * MIB + 3],
]
# fmt: on


def _content(size: int, lead: int = 0) -> Bytes:
    """Numbers that lie `lead` bytes behind a page's beginning."""
    memory = np.frombuffer(mmap.mmap(-1, lead + size + 1), np.uint8)[lead : lead + size]
    memory[:] = np.arange(size, dtype=np.uint32) * 2654435761 >> 7
    return memory


def _write(path: Path, parts: list[Bytes]) -> None:
    with direct_file(path) as file:
        for part in parts:
            file.write(part)


def _assert_written(path: Path, parts: list[Bytes]) -> None:
    assert path.read_bytes() == b"".join(part.tobytes() for part in parts)


@pytest.mark.parametrize("sizes", _SIZES, ids=str)
@pytest.mark.parametrize("lead", [0, 64])
def test_everything_is_written_in_order(sizes: list[int], lead: int, tmp_path: Path) -> None:
    """From memory that lies as the disk wants it, and from other memory."""
    parts = [_content(size, lead) for size in sizes]
    _write(tmp_path / "file", parts)
    _assert_written(tmp_path / "file", parts)


def test_a_file_image_in_one_memory_is_written_as_it_is(tmp_path: Path) -> None:
    """Pieces of drawn sizes next to each other: those that are long go to the disk without a copy."""
    sizes = [int(one % (3 * MIB)) for one in draw_u64(key_of(1, "pieces"), np.arange(12, dtype=np.uint64))]
    image = _content(sum(sizes))
    ends = np.cumsum(sizes)
    parts = [image[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    _write(tmp_path / "file", parts)
    _assert_written(tmp_path / "file", parts)


def test_content_may_change_once_it_was_handed_over(tmp_path: Path) -> None:
    expected = [_content(20 * MIB, lead) for lead in (0, 64)]
    with direct_file(tmp_path / "file") as file:
        for lead in (0, 64):
            changing = _content(20 * MIB, lead)
            file.write(changing)
            changing[:] = 0
    _assert_written(tmp_path / "file", expected)


@pytest.mark.parametrize("refused", ["never known", "when it is opened", "when it is written"])
def test_where_nothing_can_go_past_the_cache_it_goes_through_it(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_open, plain_write = os.open, os.pwrite
    refusals: list[str] = []

    def no_direct_open(path: Any, flags: int, *args: Any) -> int:
        if flags & os.O_DIRECT:
            refusals.append("open")
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_open(path, flags, *args)

    def no_first_write(*args: Any) -> int:
        if not refusals:
            refusals.append("write")
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_write(*args)

    if refused == "never known":
        monkeypatch.setattr(direct, "_DIRECT", 0)
    elif refused == "when it is opened":
        monkeypatch.setattr(os, "open", no_direct_open)
    else:
        monkeypatch.setattr(os, "pwrite", no_first_write)
    parts = [_content(size, 64) for size in (9, 2 * MIB, 5)]
    _write(tmp_path / "file", parts)
    _assert_written(tmp_path / "file", parts)
    assert len(refusals) == (refused != "never known")


def test_writes_that_come_short_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda to, content, place: plain(to, content[: len(content) // 2 + 1], place))
    parts = [_content(size, lead) for size, lead in ((9, 0), (2 * MIB, 0), (2 * MIB, 64), (5, 0))]
    _write(tmp_path / "file", parts)
    _assert_written(tmp_path / "file", parts)


@pytest.mark.parametrize("size", [5, 2 * MIB, 40 * MIB])
def test_a_full_disk_is_an_error_wherever_it_shows(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        _write(tmp_path / "file", [_content(size, 64)])


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_any_stretch_is_read_whether_the_system_has_it_in_memory_or_not(
    cached: bool, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the disk where it is not, or through the cache where that is refused."""
    content, path = _content(11 * MIB + 77), tmp_path / "file"
    _write(path, [content])
    if cached:
        path.read_bytes()
    if refused:
        monkeypatch.setattr(reading, "_read_directly", lambda *args: 0)
    file = reading.LocalFile(str(path), past_cache=True)
    for first, last in ((0, 11 * MIB + 77), (5, 6), (4096, 4096 + 5 * MIB), (4097, 9 * MIB + 1), (MIB, 2 * MIB)):
        memory = np.zeros(last - first, np.uint8)
        file.read_into(memory.data, first)
        assert np.array_equal(memory, content[first:last])
    with pytest.raises(OSError, match="ends before byte"):
        file.read_into(np.zeros(2 * MIB, np.uint8).data, 10 * MIB)
    file.close()
