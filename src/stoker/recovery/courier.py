"""Carries copies of ranks' state between nodes: a process beside each node's ranks.

    FOLDER/rank-00003/            what the node's own ranks keep: see `stoker.checkpoint.snapshots`
    FOLDER/of-NODE/rank-00007/    what another node has sent, so that it may be lost with its memory
    FOLDER/fetched/rank-00007/    what was fetched to go on from after a failure
    FOLDER/outlines/rank-00009/   of what other nodes go on from: size and header, no elements, hardly any memory

A copy that is overwritten while it is sent is not kept: its note is compared before and after.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from stoker.checkpoint import read_complete
from stoker.checkpoint.snapshots import Snapshot, slot_file
from stoker.child_processes import die_with_parent
from stoker.recovery.node_link import Door, Link, knock
from stoker.recovery.processes import Address

_log = logging.getLogger(__name__)
FETCHED, OUTLINES, OF = "fetched", "outlines", "of-"
SILENT_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_ANSWER_SECONDS = 30.0
_AGAIN_SECONDS = 0.5
"""Between attempts to send what the peer did not take."""
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Parcel:
    """One rank's copy, to be fetched from another node."""

    rank: int
    address: Address
    """Of the courier that has it."""
    file: str
    """There."""
    whole: bool
    """Or its outline only."""


@dataclass(frozen=True)
class Round:
    """Who sends to whom from now on."""

    attempt: int
    """What is sent in another attempt is not taken in."""
    node: str
    ranks: tuple[int, ...]
    """Of this node."""
    peer: Address | None
    """The courier that keeps this node's copies; None where there is no other node."""


def rank_folder(folder: Path, rank: int) -> Path:
    """Where a rank's copies are."""
    return folder / f"rank-{rank:05d}"


def courier_main(orders: connection.Connection, folder: Path, door: Door, token: str) -> None:
    """The process: does what the supervisor orders, lets other couriers in, and watches this node's ranks."""
    die_with_parent(by_thread=False)
    watch = _Watch(folder, token)
    threading.Thread(target=_serve, args=(door, folder, watch), daemon=True, name="serves").start()
    threading.Thread(target=watch.run, daemon=True, name="watches").start()
    try:
        while True:
            word, content = orders.recv()
            if word == "round":
                watch.round = content
            elif word == "fetch":
                orders.send(_fetch_all(folder, content, token))
    except (EOFError, OSError):
        os._exit(0)


class _Watch:
    """Sends each new copy of this node's ranks to the peer, once all of them have theirs of the same step."""

    def __init__(self, folder: Path, token: str) -> None:
        self.round: Round | None = None
        self._folder = folder
        self._token = token
        self._sent: tuple[str, int, Address] | None = None
        self._seen: list[tuple[str, int]] = []
        self._link: tuple[Address, Link] | None = None

    def run(self) -> None:
        """Until the process ends."""
        while True:
            time.sleep(_LOOK_SECONDS)
            if self.round is not None and self.round.peer is not None:
                try:
                    self._look(self.round, self.round.peer)
                except (
                    Exception
                ) as error:  # a file that is overwritten just now, a peer that is gone or has no room
                    _warn("copies of this node's ranks do not reach the next node; trying again", error)
                    self._hang_up()
                    time.sleep(_AGAIN_SECONDS)

    def _look(self, now: Round, peer: Address) -> None:
        notes = [path for rank in now.ranks for path in rank_folder(self._folder, rank).glob("slot-*.json")]
        seen = sorted((str(path), path.stat().st_mtime_ns) for path in notes)
        if seen == self._seen:
            return
        found = newest_of_all([read_complete(rank_folder(self._folder, rank)) for rank in now.ranks])
        if found:
            what = (found[0].note.session, found[0].step, peer)
            if what != self._sent and not all(self._send(now, peer, one) for one in found):
                time.sleep(_AGAIN_SECONDS)
                return
            self._sent = what
            if all(_twice(rank_folder(self._folder, rank)) for rank in now.ranks):
                self._forget(now)
        self._seen = seen

    def _send(self, now: Round, peer: Address, one: Snapshot) -> bool:
        if self._link is None or self._link[0] != peer or self._link[1].is_broken:
            self._hang_up()
            link = knock(peer, self._token, _ANSWER_SECONDS, SILENT_SECONDS)
            if link is None:
                return False
            self._link = (peer, link)
        channel = self._link[1].channel
        note = _note_of(one.file).read_bytes()
        channel.send(("put", now, one.note.rank, one.step, note, one.note.file.bytes))
        for part in _content(one.file, one.note.file.bytes):
            channel.send_bytes(part)
        unchanged = _note_of(one.file).read_bytes() == note
        channel.send(unchanged)
        return bool(_answer(channel)) and unchanged

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link[1].close()
        self._link = None

    def _forget(self, now: Round) -> None:
        """Newer copies are complete on this node twice over: what an earlier start went on from is of no use."""
        own = {rank_folder(self._folder, rank).name for rank in now.ranks}
        for path in self._folder.iterdir():
            if path.name in (FETCHED, OUTLINES) or (path.name.startswith("rank-") and path.name not in own):
                shutil.rmtree(path, ignore_errors=True)


def newest_of_all(copies: Sequence[Sequence[Snapshot]]) -> list[Snapshot]:
    """Of each rank's `copies` the one of the newest step that all have; empty when there is none."""
    together = [{(one.note.session, one.step): one for one in of_rank} for of_rank in copies]
    shared = set.intersection(*(set(of_rank) for of_rank in together)) if together else set()
    if not shared:
        return []
    newest = max(shared, key=lambda key: key[1])
    return [of_rank[newest] for of_rank in together]


_warned: set[str] = set()


def _warn(what: str, error: Exception) -> None:
    """Once of each kind; nothing of what happens when files are overwritten and nodes go."""
    if not isinstance(error, EOFError | ConnectionError | FileNotFoundError) and str(error) not in _warned:
        _warned.add(str(error))
        _log.warning("%s: %s", what, error)


def _twice(folder: Path) -> bool:
    """Whether a rank has two copies of one start: then all have the older one, and earlier starts' are useless."""
    found = read_complete(folder)
    return len(found) > 1 and len({one.note.session for one in found}) == 1


def _serve(door: Door, folder: Path, watch: _Watch) -> None:
    while True:
        connection.wait(door.waitables(), timeout=1.0)
        for link in door.let_in():
            threading.Thread(target=_serve_one, args=(link, folder, watch), daemon=True, name="serves-one").start()


def _serve_one(link: Link, folder: Path, watch: _Watch) -> None:
    channel = link.channel
    try:
        while True:
            if not channel.poll(1.0):
                continue
            word, *rest = channel.recv()
            if word == "put":
                channel.send(_keep(channel, folder, watch, *rest))
            elif word == "get":
                _give(channel, folder, *rest)
    except Exception as error:  # the other side asks again or does without
        _warn("a copy was neither sent nor taken in", error)
    link.close()


def _keep(
    channel: connection.Connection,
    folder: Path,
    watch: _Watch,
    sent: Round,
    rank: int,
    step: int,
    note: bytes,
    size: int,
) -> bool:
    """Take in one copy; whether it is complete. The newer of the two that are there stays meanwhile."""
    own = f"{OF}{sent.node}"
    place = rank_folder(folder / own, rank)
    for one in read_complete(place):
        if one.step > step:  # ranks have gone back, and what came after is to happen otherwise
            _note_of(one.file).unlink(missing_ok=True)
    kept = read_complete(place)
    number = 1 if kept and kept[0].file == slot_file(place, 0) else 0
    with _written(slot_file(place, number), size) as memory:
        _take(channel, memory, size)
        complete = bool(channel.recv())
    complete &= watch.round is not None and watch.round.attempt == sent.attempt
    if complete:
        _write_note(slot_file(place, number), note)
        if _twice(place):
            for other in folder.glob(f"{OF}*"):  # of nodes that sent here before
                if other.name != own:
                    shutil.rmtree(other, ignore_errors=True)
    return complete


def _give(channel: connection.Connection, folder: Path, path: str, whole: bool) -> None:
    file = Path(path)
    inside = file.resolve().is_relative_to(folder.resolve())
    found = [one for one in read_complete(file.parent) if one.file == file] if inside else []
    if not found:
        channel.send(None)
        return
    note, entry = _note_of(file).read_bytes(), found[0].note.file
    size = entry.bytes if whole else min((piece.offset for piece in entry.pieces), default=entry.bytes)
    channel.send((note, entry.bytes, size))
    for part in _content(file, size):
        channel.send_bytes(part)
    channel.send(_note_of(file).read_bytes() == note)


def _fetch_all(folder: Path, parcels: Sequence[Parcel], token: str) -> bool:
    """Fetch what is missing; whether all came."""
    shutil.rmtree(folder / OUTLINES, ignore_errors=True)
    links: dict[Address, Link] = {}
    try:
        for parcel in parcels:
            link = links.get(parcel.address) or knock(parcel.address, token, _ANSWER_SECONDS, SILENT_SECONDS)
            if link is None:
                return False
            links[parcel.address] = link
            if not _fetch(folder, parcel, link.channel):
                return False
        return True
    except (OSError, EOFError):
        return False
    finally:
        for link in links.values():
            link.close()


def _fetch(folder: Path, parcel: Parcel, channel: connection.Connection) -> bool:
    channel.send(("get", parcel.file, parcel.whole))
    answer = _answer(channel)
    if answer is None:
        return False
    note, whole_size, size = answer
    target = slot_file(rank_folder(folder / (FETCHED if parcel.whole else OUTLINES), parcel.rank), 0)
    with _written(target, whole_size, size) as memory:
        _take(channel, memory, size)
    if not _answer(channel):
        return False
    _write_note(target, note)
    return True


def _answer(channel: connection.Connection) -> Any:
    if not channel.poll(_ANSWER_SECONDS):
        raise OSError("no answer")
    return channel.recv()


def _content(file: Path, size: int) -> Iterator[memoryview]:
    with open(file, "rb", buffering=0) as stream:
        left = size
        while left and (part := stream.read(min(_CHUNK, left))):
            left -= len(part)
            yield memoryview(part)
    if left:
        raise OSError(f"{file} ends early")


def _take(channel: connection.Connection, memory: memoryview, size: int) -> None:
    place = 0
    while place < size:
        part = channel.recv_bytes(_CHUNK)
        memory[place : place + len(part)] = part
        place += len(part)


@contextlib.contextmanager
def _written(file: Path, size: int, used: int | None = None) -> Iterator[memoryview]:
    """Memory of a file of `size` bytes, of which `used` (default: all) are set aside; it has no note meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _note_of(file).unlink(missing_ok=True)
    file.unlink(missing_ok=True)  # another process may still have the old one open
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size if used is None else used)
        with mmap.mmap(descriptor, size) as mapped, memoryview(mapped) as memory:
            yield memory
    finally:
        os.close(descriptor)


def _note_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _write_note(file: Path, note: bytes) -> None:
    partial = file.with_suffix(".partial")
    partial.write_bytes(note)
    os.replace(partial, _note_of(file))
