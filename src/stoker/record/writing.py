"""Writing one rank's part of the record, without ever holding up or ending the training."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from stoker.durable_files import explained_disk_errors, remove_partials, write_bytes
from stoker.errors import StokerError
from stoker.record.framing import MAGIC, Entry, encode_frame, read_frames
from stoker.record.segments import LIVE_FILE, list_segments, merge, rank_folder, seal, sealed_through

SEAL_ROWS = 2048
LARGEST_BACKLOG_BYTES = 64 * 2**20
_KIND = re.compile(r"[a-z][a-z0-9_]*")
_SEAL_RETRY_SECONDS = 60.0
_log = logging.getLogger(__name__)


class RecordWriter:
    """Appends rows to `folder/rank-NNNNN`. One writer for each rank at a time: the last that began.

    The run's lock sees to that, but for a process that was frozen while another took its place. What such a one
    still has to say when it wakes up is of a history that was given up, and does not reach the record.

    `append` only adds to memory. A thread writes and flushes to the disk every `flush_seconds`,
    and moves full parts into sealed segments. When the disk refuses (full, read-only), one warning
    is logged and one event `record_write_failed` is recorded as soon as it can be; rows wait in
    memory up to `largest_backlog_bytes`, beyond which the oldest are given up and counted in an
    event `record_rows_lost`. Nothing here raises into the training.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        flush_seconds: float = 1.0,
        *,
        seal_rows: int = SEAL_ROWS,
        largest_backlog_bytes: int = LARGEST_BACKLOG_BYTES,
    ) -> None:
        self.folder = rank_folder(folder, rank)
        self._flush_seconds = flush_seconds
        self._seal_rows = seal_rows
        self._largest_backlog = largest_backlog_bytes
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._backlog_bytes = 0
        self._failure: str | None = None
        self._seal_failed = False
        self._condition = threading.Condition()
        self._disk = threading.Lock()
        self._closing = False
        self._hurry = False
        self._next_seal = 0.0
        self._descriptor: int | None = None
        self._size = 0
        self._live_rows = 0
        self._next_sequence = self._next_to_write = 1
        self._recover()
        self._thread = threading.Thread(target=self._run, name=f"record-rank-{rank}", daemon=True)
        self._thread.start()

    @property
    def live_file(self) -> Path:
        """The framed file that newly appended rows go to."""
        return self.folder / LIVE_FILE

    @property
    def failure(self) -> str | None:
        """Why rows cannot be written at the moment; None when all is well."""
        return self._failure

    def append(self, kind: str, row: dict[str, Any]) -> None:
        """Record one row. Cheap: the row is spelled out and put in memory; later changes to it do not show.

        Raises `ValueError` for a kind that is not a lower-case word, and after `close`.
        """
        if not _KIND.fullmatch(kind):
            raise ValueError(f"a kind of row is a lower-case word such as 'step', not {kind!r}")
        with self._condition:
            if self._closing:
                raise ValueError("the record has been closed; open a new RecordWriter to append")
            self._enqueue(kind, row)
            if self._flush_seconds <= 0:
                self._hurry = True
                self._condition.notify()

    def flush(self) -> bool:
        """Put everything appended so far on the disk. Returns whether that worked; never raises for the disk."""
        return self._write_backlog()

    def close(self) -> bool:
        """Flush and end the thread. Returns whether every row is on the disk. Closing again does nothing."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        written = self._write_backlog() and self._write_backlog()  # Writing may add an event of lost rows.
        if not written:
            _log.warning("the record ends incomplete: %d rows could not be written", len(self._backlog))
        with self._disk:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        return written

    def _enqueue(self, kind: str, row: dict[str, Any]) -> None:
        """Add to the backlog; the caller holds the condition."""
        frame = encode_frame(Entry(kind, self._next_sequence, row))
        self._next_sequence += 1
        self._backlog.append((self._next_sequence - 1, frame))
        self._backlog_bytes += len(frame)
        while self._backlog_bytes > self._largest_backlog and len(self._backlog) > 1:
            _, given_up = self._backlog.popleft()
            self._backlog_bytes -= len(given_up)

    def _recover(self) -> None:
        """Find where the rows of earlier writers end; what a kill left half-written is cut off on opening."""
        with explained_disk_errors(self.folder):
            remove_partials(self.folder)
            live = read_frames(self.live_file)
        segments = list_segments(self.folder)
        last = max([0, *sealed_through(segments).values(), *(entry.sequence for entry in live.entries)])
        self._next_sequence = self._next_to_write = last + 1
        self._size = live.valid_bytes
        self._live_rows = len(live.entries)

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._closing and not self._hurry:
                    self._condition.wait(self._flush_seconds if self._flush_seconds > 0 else None)
                self._hurry = False
                if self._closing:
                    return
            self._write_backlog()

    def _write_backlog(self) -> bool:
        """Write what waits, then seal if due; returns whether the disk took it."""
        with self._disk:
            with self._condition:
                waiting = list(self._backlog)
            if waiting:
                try:
                    self._write_frames(b"".join(frame for _, frame in waiting))
                except (OSError, StokerError) as error:
                    self._note_failure(error)
                else:
                    self._live_rows += len(waiting)
                    self._note_written(waiting[0][0], waiting[-1][0])
            if self._live_rows >= self._seal_rows and time.monotonic() >= self._next_seal:
                self._seal()
            return self._failure is None

    def _write_frames(self, frames: bytes) -> None:
        """Write at the end of what is known to be whole, so that a failed attempt is overwritten by the next."""
        descriptor = self._open()
        self._refuse_if_replaced(descriptor)
        view, position = memoryview(frames), self._size
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written
        os.fdatasync(descriptor)
        self._size = position

    def _open(self) -> int:
        """The live file's descriptor. The first time the file is made anew, with the rows that it had.

        A torn tail is not among them, and a writer that still has the file of before open writes into what
        nobody reads.
        """
        if self._descriptor is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._size < len(MAGIC):
                self._keep_damaged_file()
            whole = self.live_file.read_bytes()[: self._size] if self._size >= len(MAGIC) else MAGIC
            self._begin_live_file(whole)
        assert self._descriptor is not None
        return self._descriptor

    def _begin_live_file(self, frames: bytes) -> None:
        """A new live file takes the place of the one there is."""
        write_bytes(self.live_file, frames)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._descriptor = os.open(self.live_file, os.O_RDWR | os.O_CLOEXEC)
        self._size = len(frames)

    def _refuse_if_replaced(self, descriptor: int) -> None:
        if not os.path.samestat(os.fstat(descriptor), self.live_file.stat()):
            raise StokerError(f"{self.live_file} has another writer now; this one was taken for gone")

    def _keep_damaged_file(self) -> None:
        """A live file whose very beginning is damaged is set aside: not by a kill, so someone may want it."""
        if self.live_file.is_file() and self.live_file.stat().st_size > len(MAGIC):
            self.live_file.rename(self.live_file.with_name(f"damaged-before-{self._next_to_write}.frames"))

    def _note_written(self, first: int, last: int) -> None:
        """Take rows up to `last` off the backlog. Rows before `first` that never came were given up."""
        with self._condition:
            while self._backlog and self._backlog[0][0] <= last:
                _, frame = self._backlog.popleft()
                self._backlog_bytes -= len(frame)
            lost, self._next_to_write = first - self._next_to_write, last + 1
            self._failure = None
            if lost:
                self._enqueue("event", _event("record_rows_lost", {"rows": lost}))
                _log.warning("%d rows of the record were given up while the disk refused them", lost)

    def _note_failure(self, error: Exception) -> None:
        """Warn once for each stretch of failures; the rows stay in memory and are tried again."""
        with self._condition:
            if self._failure is None:
                _log.warning("the record cannot be written; training goes on and it is tried again: %s", error)
                self._enqueue("event", _event("record_write_failed", {"reason": str(error)}))
            self._failure = str(error)

    def _seal(self) -> None:
        """Move the live rows into segments; readers know by sequence numbers what stands in both.

        Whatever goes wrong here, the rows are safe in the live file, and it is tried again later.
        """
        try:
            entries = read_frames(self.live_file).entries
            self._refuse_if_replaced(self._open())
            seal(self.folder, entries)
            self._refuse_if_replaced(self._open())
            self._begin_live_file(MAGIC)
            self._live_rows = 0
            merge(self.folder, self._seal_rows)
            self._seal_failed = False
        except Exception as error:
            self._next_seal = time.monotonic() + _SEAL_RETRY_SECONDS
            if not self._seal_failed:
                self._seal_failed = True
                _log.warning("the record's rows stay in %s for now: %s", self.live_file, error)


def _event(event: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {"step": None, "event": event, "time": time.time(), "detail": detail}
