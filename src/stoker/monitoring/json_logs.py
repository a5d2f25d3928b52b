"""A log with one JSON object a line, in the field names of the Elastic Common Schema."""

from __future__ import annotations

import datetime
import errno
import json
import os
import socket
import stat
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stoker.diagnosis import Finding
from stoker.monitoring.notices import finite
from stoker.monitoring.picture import number
from stoker.monitoring.rules import in_brief

ECS_VERSION = "8.11.0"
MOST_WAITING = 8192
"""Lines that are kept while the file cannot be written."""
_LINES_AT_ONCE = 512
_FIGURES = (
    "loss", "gradient_norm", "update_norm", "learning_rate", "tokens", "tokens_seen", "loss_scale", "skipped",
    "seconds", "loss_by_source", "memory_peak_bytes",
)  # fmt: skip
_WARNINGS = ("save_failed", "non_finite", "went_back", "slow_rank", "record_write_failed", "node_lost")
_LEVELS = {"note": "info", "warning": "warn", "alarm": "error"}
_ERRORS = ("failure", "gave_up", "silent_corruption", "supervisor_died")


class JsonLog:
    """Appends whole lines to a file. One that cannot be opened raises `OSError`.

    Lines that cannot be written later, because the disk is full, are kept and written when they can be: the newest
    `MOST_WAITING`. That is said once.
    """

    def __init__(self, path: Path, run: str, every: int, say: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._say = say
        self._told = False
        self._every = every
        self._fixed = {
            "ecs.version": ECS_VERSION,
            "service.name": "stoker",
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
        }
        self._run = run

    def step(self, row: Mapping[str, Any]) -> None:
        """A step of rank 0, if its turn has come."""
        step = row.get("step")
        if not isinstance(step, int) or step % self._every:
            return
        figures = {name: row[name] for name in _FIGURES if row.get(name) is not None}
        loss = number(row, "loss")
        message = f"step {step}" if loss is None else f"step {step}: loss {loss:.4f}"
        self._write(row, "info", message, "stoker.step", {"kind": "metric"}, {"step": step, **figures})

    def event(self, row: Mapping[str, Any], written_by: str) -> None:
        """An event of a rank, the supervisor or the monitor."""
        name = str(row.get("event"))
        level = "error" if name in _ERRORS else "warn" if name in _WARNINGS else "info"
        detail = row.get("detail") or {}
        kind = {"kind": "event", "action": name, "provider": written_by}
        if name == "alert" and isinstance(detail, Mapping):
            level = "error" if detail.get("severity") == "critical" else "warn"
            level = "info" if detail.get("state") == "resolved" else level
            kind["kind"] = "alert"
        summary = detail.get("summary") if isinstance(detail, Mapping) else None
        if name == "finding":
            found = Finding.model_validate(detail)
            level, summary = _LEVELS[found.severity], in_brief(found)
        message = name if row.get("step") is None else f"step {row['step']}: {name}"
        message = f"{message}: {summary}" if summary else message
        self._write(row, level, message, "stoker.event", kind, {"step": row.get("step"), "detail": detail})

    def flush(self) -> None:
        """Hand all to the operating system, as far as it takes it."""
        while self._waiting:
            try:
                self._append(self._waiting[0])
            except OSError as error:
                if not self._told:
                    self._told = True
                    kept = f"the newest {MOST_WAITING:,} lines are kept until it can"
                    self._say(f"{self._path} cannot be written now ({error.strerror}); {kept}")
                return
            self._waiting.popleft()

    def close(self) -> None:
        """Write what still can be, and no more."""
        self.flush()
        os.close(self._file)

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it."""
        before = os.fstat(self._file)
        written = os.write(self._file, line)
        if written < len(line):
            if stat.S_ISREG(before.st_mode):
                os.ftruncate(self._file, before.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write(
        self,
        row: Mapping[str, Any],
        level: str,
        message: str,
        dataset: str,
        event: Mapping[str, str],
        own: Mapping[str, Any],
    ) -> None:
        when = datetime.datetime.fromtimestamp(number(row, "time") or 0.0, datetime.UTC)
        line = {
            "@timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "log.level": level,
            "message": message,
            **self._fixed,
            "event.dataset": dataset,
            **{f"event.{name}": value for name, value in event.items()},
            "labels": {"run": self._run, "attempt": str(row.get("attempt"))},
            "stoker": finite(dict(own)),
        }
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._waiting.append(text.encode(errors="backslashreplace"))
        if len(self._waiting) >= _LINES_AT_ONCE:
            self.flush()
