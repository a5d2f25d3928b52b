"""The rows that a rank's live file has gained since it was last read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from stoker.record.framing import MAGIC, Entry, entry_of, whole_payloads

_BEGIN = re.compile(rb'\{"kind":"([a-z][a-z0-9_]*)","sequence":(\d+),"row":')


@dataclass(frozen=True)
class RawEntry:
    """One recorded row that has not been spelled out yet: most are never looked at in full."""

    kind: str
    sequence: int
    payload: bytes

    @property
    def entry(self) -> Entry:
        """The row. Raises `ValueError`, `KeyError` or `TypeError` for what no writer wrote."""
        return entry_of(self.payload)


def entries_of(raw: list[RawEntry]) -> list[Entry]:
    """The rows, spelled out; what cannot be is left out."""
    found = []
    for one in raw:
        try:
            found.append(one.entry)
        except (ValueError, KeyError, TypeError):
            continue
    return found


@dataclass
class LiveTail:
    """Follows one live file from where it was read to. `stoker.record.framing` says what a frame is.

    The writer replaces the file when its rows have been sealed: then it is read from its beginning.
    """

    path: Path
    entries: list[RawEntry] = field(default_factory=list)
    """Everything the present file holds, in the order written."""
    unfinished_bytes: int = 0
    """Bytes after the last whole frame: being written, or torn by a kill."""
    _identity: tuple[int, int] = (0, 0)
    _offset: int = 0
    _size: int = -1

    def refresh(self) -> bool:
        """Read what is new. Returns whether anything changed."""
        try:
            with self.path.open("rb") as stream:
                status = self.path.stat()
                identity = (status.st_dev, status.st_ino)
                again = identity != self._identity or status.st_size < self._offset
                if not again and status.st_size == self._size:
                    return False
                if again:
                    self._forget(identity)
                stream.seek(self._offset)
                content = stream.read()
        except OSError:
            changed = bool(self.entries)
            self._forget((0, 0))
            return changed
        return self._take(content) or again

    def _forget(self, identity: tuple[int, int]) -> None:
        self.entries, self.unfinished_bytes = [], 0
        self._identity, self._offset, self._size = identity, 0, -1

    def _take(self, content: bytes) -> bool:
        known, position = len(self.entries), 0
        self._size = self._offset + len(content)
        if self._offset == 0:
            if not content.startswith(MAGIC):
                self.unfinished_bytes = len(content)
                return False
            position = len(MAGIC)
        for payload, stop in whole_payloads(content, position):
            begin = _BEGIN.match(payload)
            if begin is None:
                break
            self.entries.append(RawEntry(begin[1].decode(), int(begin[2]), payload))
            position = stop
        self._offset += position
        self.unfinished_bytes = len(content) - position
        return len(self.entries) > known
