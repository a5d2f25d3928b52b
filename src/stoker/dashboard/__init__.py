"""The dashboard: a web page, or a terminal, over the records of runs. It reads; it writes nothing into a run."""

from __future__ import annotations

from stoker.dashboard.finding_runs import runs_at
from stoker.dashboard.watched import WatchedRun

__all__ = ["WatchedRun", "runs_at"]
