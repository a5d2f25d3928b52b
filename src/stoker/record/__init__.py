"""The record of a run: what happened at every step, written on each rank, read anywhere.

record/rank-00000/live.frames                                    newest rows, framed and checksummed
record/rank-00000/step-000000000001-000000002048.parquet         sealed rows of one kind
record/supervisor/…                                              failures and restarts
record/monitor/…                                                 findings and alerts
"""

from __future__ import annotations

from stoker.record.coverage import CoverageReport, samples_seen
from stoker.record.reading import Attempt, Gap, Record
from stoker.record.rows import names_of, rows_of
from stoker.record.segments import MONITOR, SUPERVISOR
from stoker.record.writing import RecordWriter

__all__ = [
    "MONITOR",
    "SUPERVISOR",
    "Attempt",
    "CoverageReport",
    "Gap",
    "Record",
    "RecordWriter",
    "names_of",
    "rows_of",
    "samples_seen",
]
