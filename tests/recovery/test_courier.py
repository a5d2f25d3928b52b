"""Copies of a rank's state on their way between two nodes' memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stoker.checkpoint import Saver, read_complete
from stoker.checkpoint.snapshots import Snapshot
from stoker.recovery.node_copies import NodeCopies, Parcel, Round
from stoker.training.rank import Copies, Job
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining
from tests.recovery.several_commands import in_a_process

TOKEN = "token"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The memory of node `a`, with copies of steps 1 and 2 of rank 0."""
    in_a_process(_keep, tmp_path / "a")
    return tmp_path / "a"


def _keep(folder: Path) -> None:
    training = TinyTraining.alone("adamw")
    saver = Saver(
        folder / "none", KEEP_ALL, training.model.held, training.optimizer, snapshots=folder / "rank-00000"
    )
    for step in (1, 2):
        training.step(step)
        saver.stage(step, {"step": step}, durable=False)
        saver.finish()
    saver.close()


@pytest.fixture
def nodes(kept: Path, tmp_path: Path) -> Iterator[tuple[NodeCopies, NodeCopies]]:
    (tmp_path / "b").mkdir()
    with (
        closing(NodeCopies(kept, "127.0.0.1", TOKEN)) as first,
        closing(NodeCopies(tmp_path / "b", "127.0.0.1", TOKEN)) as second,
    ):
        yield first, second


def until(found: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def newest(folder: Path) -> Snapshot:
    return read_complete(folder / "rank-00000")[0]


def answer(copies: NodeCopies) -> bool:
    while (found := copies.fetched()) is None:
        time.sleep(0.02)
    return found


def test_the_newest_copy_is_sent_to_the_peer_of_the_same_attempt(
    nodes: tuple[NodeCopies, NodeCopies], kept: Path, tmp_path: Path
) -> None:
    first, second = nodes
    second.send_to(Round(1, "b", (), None))
    first.send_to(Round(2, "a", (0,), second.address))
    time.sleep(1.0)
    assert second.inventory() == [], "what is sent in another attempt is not taken in"
    second.send_to(Round(2, "b", (), None))
    (sent,) = until(second.inventory)
    assert sent.file.parent == tmp_path / "b" / "of-a" / "rank-00000"
    assert sent.step == 2
    assert sent.note == newest(kept).note
    assert sent.file.read_bytes() == newest(kept).file.read_bytes()


def test_what_is_fetched_is_whole_or_an_outline_and_the_rest_goes(
    nodes: tuple[NodeCopies, NodeCopies], kept: Path, tmp_path: Path
) -> None:
    first, second = nodes
    copy = newest(kept)
    assert first.address is not None
    second.fetch([Parcel(0, first.address, str(copy.file), whole=False)])
    assert answer(second)
    assert second.inventory() == [], "an outline is no copy"
    (outline,) = read_complete(tmp_path / "b" / "outlines" / "rank-00000")
    assert outline.note == copy.note
    start = min(entry.offset for entry in copy.note.file.pieces)
    assert outline.file.read_bytes()[:start] == copy.file.read_bytes()[:start]
    assert not any(outline.file.read_bytes()[start:])
    second.fetch([Parcel(0, first.address, str(copy.file), whole=True)])
    assert answer(second)
    (whole,) = second.inventory()
    assert whole.file.read_bytes() == copy.file.read_bytes()
    job: Any = Job(None, tmp_path, tmp_path, 1, copies=Copies(2, copy.note.session))  # type: ignore[arg-type]
    assert second.arranged(job).copies == Copies(2, copy.note.session, (whole.file,))
    assert [one.step for one in first.inventory()] == [2, 1]
    assert first.arranged(job).copies == Copies(2, copy.note.session, (copy.file,))
    assert [one.step for one in first.inventory()] == [2], "step 1 is not gone on from"
    nothing: Any = Job(None, tmp_path, tmp_path, 1, copies=Copies())  # type: ignore[arg-type]
    assert first.arranged(nothing).copies == Copies()
    assert first.inventory() == [], "ranks go on from the disk, and what came after it is to happen again"


def test_nothing_outside_of_the_folder_is_given_and_who_has_gone_gives_nothing(
    nodes: tuple[NodeCopies, NodeCopies], kept: Path, tmp_path: Path
) -> None:
    first, second = nodes
    elsewhere = tmp_path / "elsewhere"
    (kept / "rank-00000").rename(elsewhere)
    (copy, _) = read_complete(elsewhere)
    assert first.address is not None
    parcel = Parcel(0, first.address, str(copy.file), whole=True)
    second.fetch([parcel])
    assert not answer(second)
    first.close()
    second.fetch([parcel])
    assert not answer(second)
