"""A log with one JSON object a line, in the field names of the Elastic Common Schema."""

from __future__ import annotations

import datetime
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.diagnosis import Finding
from stoker.monitoring.notices import finite
from stoker.monitoring.picture import number
from stoker.monitoring.rules import in_brief

ECS_VERSION = "8.11.0"
_FIGURES = (
    "loss", "gradient_norm", "update_norm", "learning_rate", "tokens", "tokens_seen", "loss_scale", "skipped",
    "seconds", "loss_by_source", "memory_peak_bytes",
)  # fmt: skip
_WARNINGS = ("save_failed", "non_finite", "went_back", "slow_rank", "record_write_failed", "node_lost")
_LEVELS = {"note": "info", "warning": "warn", "alarm": "error"}
_ERRORS = ("failure", "gave_up", "silent_corruption", "supervisor_died")


class JsonLog:
    """Appends lines to a file. One that cannot be written to raises `OSError`."""

    def __init__(self, path: Path, run: str, every: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
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
        """Hand all to the operating system."""
        self._stream.flush()

    def close(self) -> None:
        """Write no more."""
        self._stream.close()

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
        self._stream.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
