"""A reader finds the old file, the new file, or none; never a part of one."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
from pathlib import Path

import pytest

from stoker import durable_files
from stoker.durable_files import (
    durable_file,
    explained_disk_errors,
    publish_folder,
    remove_partials,
    sha256_of_file,
    write_bytes,
    write_json,
    write_text,
)
from stoker.errors import BadInput, StokerError


def test_what_is_written_is_read_back_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_bytes(tmp_path / "new" / "a.bin", b"\x00\xff")
    write_text(tmp_path / "new" / "文.txt", "汉字")
    write_json(tmp_path / "new" / "c.json", {"键": [1.5, None]})
    assert (tmp_path / "new" / "a.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "new" / "文.txt").read_text(encoding="utf-8") == "汉字"
    assert (tmp_path / "new" / "c.json").read_text(encoding="utf-8") == '{\n  "键": [\n    1.5,\n    null\n  ]\n}\n'
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.bin", "c.json", "文.txt"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def write_half() -> None:
        with durable_file(path) as stream:
            stream.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with durable_file(path) as stream:
        stream.write(b"x" * 100_000)
        stream.flush()
        assert not path.exists()
    assert path.stat().st_size == 100_000


@pytest.mark.parametrize("moment", ["write", "fsync", "replace", "folder"])
def test_a_kill_at_any_instant_leaves_old_or_new(tmp_path: Path, moment: str) -> None:
    """A child is killed by SIGKILL at each stage of the write."""
    path = tmp_path / "a.txt"
    write_text(path, "old")
    child = os.fork()
    if child == 0:  # pragma: no cover - dies here
        die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        if moment == "fsync":
            os.fsync = die  # type: ignore[assignment]
        elif moment == "replace":
            os.replace = die  # type: ignore[assignment]
        elif moment == "folder":
            durable_files.sync_folder = die  # type: ignore[assignment]
        with durable_file(path) as stream:
            stream.write(b"new")
            stream.flush()
            if moment == "write":
                die()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert path.read_text() == ("new" if moment == "folder" else "old")
    remove_partials(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_clear_error_and_the_old_file_stays(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a disk that takes no more."""
    path = tmp_path / "a.txt"
    write_text(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StokerError, match=r"could not write .*a\.txt: .*Nothing that was complete is lost"):
            write_bytes(path, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
    ],
)
def test_what_the_disk_refuses_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StokerError, match=expected) as caught:
        write_text(tmp_path / "a.txt", "new")
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_the_system_are_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the disk is broken"), durable_file(tmp_path / "a.txt"):
        raise OSError(errno.EIO, "the disk is broken")


def test_a_folder_is_published_whole(tmp_path: Path) -> None:
    partial = tmp_path / ".out.partial-1"
    (partial / "inner").mkdir(parents=True)
    (partial / "inner" / "a").write_text("1")
    publish_folder(partial, tmp_path / "out")
    assert (tmp_path / "out" / "inner" / "a").read_text() == "1"
    assert not partial.exists()


def test_a_folder_is_never_published_over_another(tmp_path: Path) -> None:
    for name in (".out.partial-1", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name.strip(".")).write_text(name)
    with pytest.raises(OSError):
        publish_folder(tmp_path / ".out.partial-1", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["out"]


def test_only_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.partial-0123").write_text("half")
    (tmp_path / ".b.partial-0123").mkdir()
    (tmp_path / ".b.partial-0123" / "x").write_text("half")
    for kept in ("a", ".hidden", "a.partial-1"):
        (tmp_path / kept).write_text("whole")
    remove_partials(tmp_path)
    remove_partials(tmp_path / "not there")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "a", "a.partial-1"]


def test_the_checksum_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(content)
    assert sha256_of_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_a_pipe_or_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(BadInput, match="a device or a pipe"):
            write_text(path, "page")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "pipe"]


def test_writing_to_a_link_writes_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "page")
    write_text(link, "first")
    write_text(link, "second")
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "page").read_text() == "second"


@pytest.mark.parametrize("name", ["a file/page", "folder", "x" * 300])
def test_a_name_that_cannot_be_written_is_explained(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StokerError, match="could not write"):
        write_text(tmp_path / name, "page")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a file", "folder"]


@pytest.mark.parametrize(
    "number", ["ENOENT", "EINVAL", "ENXIO", "ENODEV", "EOPNOTSUPP", "ELOOP", "ENOSPC", "EROFS", "EEXIST"]
)
def test_a_place_that_takes_no_file_is_named_whatever_the_system_says_of_it(tmp_path: Path, number: str) -> None:
    code = getattr(errno, number)
    with (
        pytest.raises(StokerError, match=rf"could not write {tmp_path}: .*Nothing that was complete is lost"),
        explained_disk_errors(tmp_path),
    ):
        raise OSError(code, os.strerror(code), str(tmp_path))


@pytest.mark.parametrize("place", ["/proc/no-such-place", "/proc/self/no-such-place", "/dev/null/no-such-place"])
def test_where_no_folder_can_be_made_the_place_is_named(place: str) -> None:
    with pytest.raises(StokerError, match=f"could not write {place}/a.txt"):
        write_text(Path(place) / "a.txt", "a")


def test_a_missing_file_that_was_to_be_copied_is_not_taken_for_the_place_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="source"), durable_file(tmp_path / "new" / "a.bin") as stream:
        stream.write((tmp_path / "source").read_bytes())
